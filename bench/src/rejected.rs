//! Delay from a change to its reconcile while sources fail, with our controller and with kube-runtime's. One scenario
//! has a permanently rejected source and two working ones, as in stackabletech/trino-operator#936. The other scenario
//! has seven sources with connection resets.
//!
//! Runs in virtual time. The jitter of kube-runtime's backoff does not depend on a seed, so its figures vary a little
//! from run to run.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount};
use kube::api::Api;
use kube::runtime::{self, watcher};
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use steadfast::{Connection, InformerFactory, Scope};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule};
use steadfast_controller::{Action, Controller, back_off};
use steadfast_testing::{InMemory, config_map, pod};
use tokio::time::Instant;

use crate::BenchError;

/// Time before the first change, in which the backoff of the rejected source grows to its maximum.
const BACKOFF_GROWTH_TIME: Duration = Duration::from_mins(10);

/// Wait after the last change, before the reconciles are counted.
const FINAL_WAIT: Duration = Duration::from_mins(10);

/// Measures the delay of reconciles while the server rejects one source.
#[derive(clap::Args)]
pub(crate) struct RejectedArgs {
    /// Number of changes in each of the two working sources
    #[arg(long, default_value_t = 100)]
    changes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ControllerLibrary {
    Steadfast,
    KubeRuntime,
}

/// Injected fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InjectedFault {
    NoFault,
    /// The third source is permanently rejected.
    Refusal,
    /// The controller has seven working sources, and all connections are reset at each change.
    Reset,
}

impl InjectedFault {
    /// Returns the intervals between two changes.
    fn change_intervals(self) -> &'static [Duration] {
        const INTERVALS: [Duration; 4] =
            [Duration::from_secs(1), Duration::from_secs(10), Duration::from_mins(1), Duration::from_mins(5)];
        // At shorter intervals, the resets would measure only the backoff.
        if self == Self::Reset { &INTERVALS[3..] } else { &INTERVALS }
    }
}

/// Delay from each change to its reconcile; `None` without a reconcile.
struct Delays {
    objects: Vec<Option<Duration>>,
    owned_pods: Vec<Option<Duration>>,
}

/// Executes all runs, and prints the results.
pub(crate) fn run(args: &RejectedArgs) -> Result<(), BenchError> {
    let changes = args.changes;
    println!(
        "a controller of config maps that owns pods and secrets: {changes} config maps are changed and {changes} pods created, in turn"
    );
    for (name, library, fault) in [
        ("kube-runtime, no rejection", ControllerLibrary::KubeRuntime, InjectedFault::NoFault),
        ("kube-runtime, secrets rejected", ControllerLibrary::KubeRuntime, InjectedFault::Refusal),
        ("steadfast, secrets rejected", ControllerLibrary::Steadfast, InjectedFault::Refusal),
        (
            "kube-runtime, seven sources, connections reset at each change",
            ControllerLibrary::KubeRuntime,
            InjectedFault::Reset,
        ),
        (
            "steadfast, seven sources, connections reset at each change",
            ControllerLibrary::Steadfast,
            InjectedFault::Reset,
        ),
    ] {
        println!("{name}:");
        for interval in fault.change_intervals() {
            // Each run has its own clock, and therefore its own thread.
            let result =
                std::thread::scope(|scope| scope.spawn(|| run_scenario(library, fault, *interval, changes)).join());
            let delays = result.map_err(|_| format!("{name}, each {interval:?}: panicked"))??;
            println!(
                "  one change every {} s: config maps {}; pods {}",
                interval.as_secs(),
                summarize(delays.objects),
                summarize(delays.owned_pods)
            );
        }
    }
    Ok(())
}

/// Formats the median, the maximum, and the number of changes without a reconcile.
fn summarize(delays: Vec<Option<Duration>>) -> String {
    let total = delays.len();
    let mut delays: Vec<_> = delays.into_iter().flatten().collect();
    delays.sort_unstable();
    let seconds = |index: usize| delays.get(index).map_or(0.0, Duration::as_secs_f64);
    let (median, max) = (seconds(delays.len() / 2), seconds(delays.len().saturating_sub(1)));
    let lost_count = total - delays.len();
    let lost_text = if lost_count > 0 { format!(", {lost_count} without a reconcile") } else { String::new() };
    format!("{median:.1} s (maximum {max:.1}){lost_text}")
}

/// Times of the reconciles, by object.
#[derive(Default)]
struct ReconcileTimes(Mutex<HashMap<String, Vec<Instant>>>);

impl ReconcileTimes {
    fn record(&self, map: &ConfigMap) {
        let mut times = self.0.lock();
        times.entry(map.name_any()).or_default().push(Instant::now());
    }

    /// Returns the delay from `since` to the first reconcile of `name` that started after it.
    fn delay_since(&self, name: &str, since: Instant) -> Option<Duration> {
        let times = self.0.lock();
        // Reconciles that started before the change do not count, even if they end later.
        times.get(name)?.iter().find(|at| **at >= since).map(|at| *at - since)
    }
}

/// Executes one run with a change every `interval`.
fn run_scenario(
    library: ControllerLibrary,
    fault: InjectedFault,
    interval: Duration,
    count: usize,
) -> Result<Delays, BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(async {
        let server = ApiServer::builder().in_memory().start().await?;
        if fault == InjectedFault::Refusal {
            server.faults().respond(RequestRule::any().resource("secrets"), InjectedResponse::Forbidden);
        }
        let (objects, owners) = (names("object", count), names("owner", count));
        for name in objects.iter().chain(&owners) {
            server.create(&config_map(name, "before"))?;
        }
        let connection = InMemory::default().connection(&server).await?;
        let reconcile_times = Arc::new(ReconcileTimes::default());
        let running = match library {
            ControllerLibrary::Steadfast => run_steadfast(&connection, fault, reconcile_times.clone())?,
            ControllerLibrary::KubeRuntime => run_kube_runtime(&connection, fault, reconcile_times.clone()),
        };
        let running = tokio::spawn(running);
        // The retries of the rejected source have reached their maximum delay before the first change.
        tokio::time::sleep(BACKOFF_GROWTH_TIME).await;

        let (mut changed_at, mut created_at) = (Vec::new(), Vec::new());
        let reset_connections = || {
            if fault == InjectedFault::Reset {
                server.faults().reset();
            }
        };
        for (object, owner) in objects.iter().zip(&owners) {
            // Each object is changed once, so that the next reconcile of the object belongs to the change. A reset
            // right before the change hides the change until all watches are open again.
            reset_connections();
            server.merge_patch("configmaps", "default", object, serde_json::json!({ "data": { "value": "after" } }))?;
            changed_at.push(Instant::now());
            tokio::time::sleep(interval).await;
            reset_connections();
            server.create(&pod_of(owner))?;
            created_at.push(Instant::now());
            tokio::time::sleep(interval).await;
        }
        tokio::time::sleep(FINAL_WAIT).await;
        running.abort();

        let delays = |names: &[String], since: &[Instant]| {
            names.iter().zip(since).map(|(name, since)| reconcile_times.delay_since(name, *since)).collect()
        };
        Ok(Delays { objects: delays(&objects, &changed_at), owned_pods: delays(&owners, &created_at) })
    })
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

/// Returns a pod that the config map `owner` owns.
fn pod_of(owner: &str) -> Pod {
    let mut child = pod(&format!("of-{owner}"), "");
    let mut map = config_map(owner, "");
    // The server does not verify owner references, so any UID works here.
    map.metadata.uid = Some("any".to_owned());
    child.metadata.owner_references = map.controller_owner_ref(&()).map(|owner| vec![owner]);
    child
}

/// Runs our controller while it is polled.
fn run_steadfast(
    connection: &Connection,
    fault: InjectedFault,
    reconcile_times: Arc<ReconcileTimes>,
) -> Result<BoxFuture<'static, ()>, BenchError> {
    let factory = InformerFactory::new(connection);
    let reconcile = |map: Arc<ConfigMap>, reconcile_times: Arc<ReconcileTimes>| async move {
        reconcile_times.record(&map);
        Ok::<_, Infallible>(Action::await_change())
    };
    let mut controller =
        Controller::<ConfigMap>::new(&factory, Scope::all()).owns::<Pod>(Scope::all()).owns::<Secret>(Scope::all());
    if fault == InjectedFault::Reset {
        controller = controller
            .owns::<Service>(Scope::all())
            .owns::<ServiceAccount>(Scope::all())
            .owns::<PersistentVolumeClaim>(Scope::all())
            .owns::<LimitRange>(Scope::all());
    }
    let controller = controller.run(reconcile, back_off, reconcile_times)?;
    Ok(Box::pin(async move {
        // The controller runs in tasks of its own. This future only keeps the values alive.
        std::future::pending::<()>().await;
        drop((controller, factory));
    }))
}

/// Runs kube-runtime's controller with its default settings.
fn run_kube_runtime(
    connection: &Connection,
    fault: InjectedFault,
    reconcile_times: Arc<ReconcileTimes>,
) -> BoxFuture<'static, ()> {
    let (client, config) = (connection.client(), watcher::Config::default);
    let reconcile = |map: Arc<ConfigMap>, reconcile_times: Arc<ReconcileTimes>| async move {
        reconcile_times.record(&map);
        Ok::<_, Infallible>(runtime::controller::Action::await_change())
    };
    let policy =
        |_: Arc<ConfigMap>, _: &Infallible, _: Arc<ReconcileTimes>| runtime::controller::Action::await_change();
    let mut controller = runtime::Controller::new(Api::<ConfigMap>::all(client.clone()), config())
        .owns(Api::<Pod>::all(client.clone()), config())
        .owns(Api::<Secret>::all(client.clone()), config());
    if fault == InjectedFault::Reset {
        controller = controller
            .owns(Api::<Service>::all(client.clone()), config())
            .owns(Api::<ServiceAccount>::all(client.clone()), config())
            .owns(Api::<PersistentVolumeClaim>::all(client.clone()), config())
            .owns(Api::<LimitRange>::all(client), config());
    }
    Box::pin(controller.run(reconcile, policy, reconcile_times).for_each(|_| std::future::ready(())))
}
