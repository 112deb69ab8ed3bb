//! A controller that keeps a fixed number of children per parent, based on its cache, as in common tutorials. The
//! server's watch lags and connections are reset. Counts the children above the required number, with Steadfast and
//! with kube-runtime.
//!
//! Runs in virtual time, with the same faults for both libraries.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{self, WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use steadfast::{Connection, Informer, InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_controller::{Action, Controller, back_off};
use steadfast_testing::proxy::NetworkFaults;
use steadfast_testing::{Children, FaultSchedule, InMemory, config_map};

use crate::BenchError;

/// Required number of children per parent.
const CHILDREN_PER_PARENT: usize = 3;

/// Number of faults per run.
const FAULTS_PER_RUN: usize = 60;

/// Limit of children that exist at once. A run ends at this limit, because its continuation would take minutes.
const RUNAWAY_CHILD_COUNT: usize = 1000;

/// Counts children above the required number, with Steadfast and with kube-runtime.
#[derive(clap::Args)]
pub(crate) struct DuplicatesArgs {
    /// Number of runs
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Runs only the controller of Steadfast; the runs of kube-runtime take most of the time
    #[arg(long)]
    ours: bool,
}

/// Results of the runs.
#[derive(Default)]
struct Tally {
    /// Number of runs with a surplus child.
    runs_with_surplus: u64,
    /// Number of runs that were ended at the limit.
    runaways: u64,
    /// Highest number of children of one parent at once, in the runs that were not ended at the limit.
    max_children: usize,
}

/// Executes all runs, and prints the results.
pub(crate) fn run(args: &DuplicatesArgs) -> Result<(), BenchError> {
    println!(
        "{} runs, two parents with {CHILDREN_PER_PARENT} children each, {FAULTS_PER_RUN} faults per run",
        args.seeds
    );
    for (name, is_ours) in [("steadfast", true), ("kube-runtime", false)] {
        if args.ours && !is_ours {
            continue;
        }
        let mut tally = Tally::default();
        for seed in args.first..args.first + args.seeds {
            // Each run has its own clock, and therefore its own thread.
            let outcome = std::thread::scope(|scope| scope.spawn(|| run_seed(seed, is_ours)).join());
            let max_children = outcome.map_err(|_| format!("seed {seed} panicked"))??;
            tally.runs_with_surplus += u64::from(max_children > CHILDREN_PER_PARENT);
            if max_children >= RUNAWAY_CHILD_COUNT {
                tally.runaways += 1;
            } else {
                tally.max_children = tally.max_children.max(max_children);
            }
        }
        let Tally { runs_with_surplus, runaways, max_children } = tally;
        println!(
            "{name}: {runs_with_surplus} of them had a surplus child; {runaways} of these ended at \
             {RUNAWAY_CHILD_COUNT} children of one parent, the others had at most {max_children} at once"
        );
    }
    Ok(())
}

/// Executes one run. Returns the highest number of children of one parent at once, or at least
/// `RUNAWAY_CHILD_COUNT` if the run was ended at the limit.
fn run_seed(seed: u64, is_ours: bool) -> Result<usize, BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(async {
        let server = ApiServer::builder().seed(seed).in_memory().start().await?;
        let network = NetworkFaults::seeded(seed);
        let client = InMemory { seed, network: network.clone(), ..InMemory::default() };
        let connection = client.connection(&server).await?;
        for parent in ["a", "b"] {
            server.create(&config_map(parent, "1"))?;
        }
        if is_ours {
            let factory = InformerFactory::new(&connection);
            let (client, children) = (connection.client(), factory.informer::<Pod>(Scope::all())?);
            let context = Arc::new((client, ChildCache::Informer(children)));
            let controller = Controller::<ConfigMap>::new(&factory, Scope::all()).owns::<Pod>(Scope::all());
            let controller = controller.run(reconcile_with_steadfast, back_off, context)?;
            // The faults end before the controller is dropped, so that late duplicates count too.
            inject_faults(seed, &server, &network).await?;
            drop(controller);
        } else {
            let running = tokio::spawn(run_kube_runtime(connection));
            inject_faults(seed, &server, &network).await?;
            running.abort();
        }
        Ok(most_children(&server))
    })
}

async fn inject_faults(seed: u64, server: &ApiServer, network: &NetworkFaults) -> Result<(), BenchError> {
    let mut faults = FaultSchedule::new(seed, server, network);
    for step in 0..FAULTS_PER_RUN {
        faults.inject_next().await;
        match faults.random(8) {
            0 => {
                // A deleted child must be replaced. A stale cache may still contain the child, or count its successor
                // twice.
                if let Some(name) = pods(server).live.into_values().flatten().nth(faults.random(6) as usize) {
                    server.delete_named("pods", "default", &name)?;
                }
            }
            1 => {
                let parent = ["a", "b"][faults.random(2) as usize];
                let patch = json!({ "data": { "value": step.to_string() } });
                server.merge_patch("configmaps", "default", parent, patch)?;
            }
            _ => {}
        }
        // The limit is checked after each step, as each surplus child makes the next reconciles slower.
        if most_children(server) >= RUNAWAY_CHILD_COUNT {
            return Ok(());
        }
    }
    faults.end();
    // Time for both libraries to converge after the last fault.
    tokio::time::sleep(Duration::from_mins(2)).await;
    Ok(())
}

/// Returns the highest number of children of one parent at once.
fn most_children(server: &ApiServer) -> usize {
    pods(server).max_at_once.into_values().max().unwrap_or_default()
}

/// Returns the current and former children, from the server's own history.
fn pods(server: &ApiServer) -> Children {
    Children::of(server, "", "pods")
}

/// Cache of the children.
enum ChildCache {
    Informer(Informer<Pod>),
    Store(Store<Pod>),
}

type Context = (Client, ChildCache);

/// Creates the children that the cache lacks.
async fn keep_children(parent: &ConfigMap, (client, children): &Context) -> Result<(), kube::Error> {
    let uid = parent.uid().unwrap_or_default();
    let is_own = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.uid == uid);
    let child_count = match children {
        ChildCache::Informer(pods) => match pods.lister() {
            Ok(lister) => lister.all().iter().filter(|pod| is_own(pod)).count(),
            // No lister exists before the sync: an unsynced cache would show no children.
            Err(_) => return Ok(()),
        },
        ChildCache::Store(pods) => pods.state().iter().filter(|pod| is_own(pod)).count(),
    };
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    // This count from the cache is a common mistake of controllers: the cache may lack the children that an earlier
    // reconcile has created.
    for _ in child_count..CHILDREN_PER_PARENT {
        let mut child = steadfast_testing::pod("", "");
        child.metadata.name = None;
        child.metadata.generate_name = Some(format!("{}-", parent.name_any()));
        child.metadata.namespace = Some("default".to_owned());
        child.metadata.owner_references = parent.controller_owner_ref(&()).map(|owner| vec![owner]);
        pods.create(&PostParams::default(), &child).await?;
    }
    Ok(())
}

async fn reconcile_with_steadfast(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
    keep_children(&parent, &context).await?;
    Ok(Action::await_change())
}

/// Runs the same controller with kube-runtime. One watch fills its store, and another triggers the reconciles, as
/// `owns` does.
async fn run_kube_runtime(connection: Connection) {
    let client = connection.client();
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let (store, writer) = reflector::store();
    let watch = runtime::reflector(writer, watcher(pods.clone(), watcher::Config::default())).default_backoff();
    let store_task = tokio::spawn(watch.for_each(|_| std::future::ready(())));
    let context = Arc::new((client.clone(), ChildCache::Store(store.clone())));
    // Reconciles must not start with an empty store, as kube-runtime's documentation advises.
    drop(store.wait_until_ready().await);
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let reconcile = |parent: Arc<ConfigMap>, context: Arc<Context>| async move {
        keep_children(&parent, &context).await?;
        Ok::<_, kube::Error>(runtime::controller::Action::await_change())
    };
    let policy = |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Context>| {
        runtime::controller::Action::requeue(Duration::from_secs(1))
    };
    let controller = runtime::Controller::new(maps, watcher::Config::default()).owns(pods, watcher::Config::default());
    controller.run(reconcile, policy, context).for_each(|_| std::future::ready(())).await;
    store_task.abort();
}
