//! Scenarios of `informer-cache-loss`: informers that failed permanently after a server restart, and pods with
//! alternating states.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use steadfast::transport::Protocol;
use steadfast::{Informer, ReflectorSettings, Scope};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule, Verb};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::CachedConfigMap;
use crate::TestkitError;
use crate::scenarios::catalog_fault::CatalogFault;
use crate::scenarios::findings::ScenarioFindings;
use crate::scenarios::scenario::{Scenario, ScenarioBounds, ScenarioSource, for_form};
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, WatchedInformer, wait_for_doubt};
use crate::scenarios::settings::ScenarioSettings;
use crate::scenarios::target::ScenarioTarget;

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "apiserver-restart",
        faults: &[CatalogFault::ServerRestarts],
        source: ScenarioSource::InformerCacheLoss,
        summary: "The server restarts under fifty informers on one HTTP/2 connection. Objects change during the \
                restart, and the server's watch cache is empty afterwards. All informers are fresh again with at most \
                one full transfer each, and at most four concurrent transfers.",
        clauses: "C2, R4, R5",
        bounds: ScenarioBounds::NONE.detection(2).recovery(8).lists(INFORMERS),
        seconds: 4,
        run: for_form!(apiserver_restart),
    },
    Scenario {
        name: "replica-change",
        faults: &[CatalogFault::ServerRestarts],
        source: ScenarioSource::InformerCacheLoss,
        summary: "One of two replicas stops under fifty informers, and a balancer sends them to the other replica, \
                which has their versions. All watches resume without a list.",
        clauses: "C3, R4",
        bounds: ScenarioBounds::NONE.recovery(5).lists(0),
        seconds: 1,
        run: for_form!(replica_change),
    },
    Scenario {
        name: "dead-connection",
        faults: &[CatalogFault::ServerRestarts, CatalogFault::BlackHole],
        source: ScenarioSource::InformerCacheLoss,
        summary: "The server restarts, and every request after that succeeds. Then packets are lost without an \
                error. The dead connection is detected within 15 s and receives no further request.",
        clauses: "R1, R4, R5",
        bounds: ScenarioBounds::NONE.detection(15).recovery(10).lists(1),
        seconds: 12,
        run: for_form!(dead_connection),
    },
    Scenario {
        name: "time-travel",
        faults: &[CatalogFault::LaggingReplica],
        source: ScenarioSource::InformerCacheLoss,
        summary: "The current replica stops, and its successor lags behind the cache, once at a resume and once at a \
                relist. Neither the cache nor a handler returns to an older state. The cache is complete when the \
                replica has caught up.",
        clauses: "C3, C4, R5",
        bounds: ScenarioBounds::NONE.recovery(10),
        seconds: 6,
        run: for_form!(time_travel),
    },
    Scenario {
        name: "no-events-for-a-while",
        faults: &[],
        source: ScenarioSource::InformerCacheLoss,
        summary: "The server behind a connection that responds to pings freezes, with a period of one second. \
                Freshness reports this within two periods, and changes in the meantime arrive when the server \
                resumes.",
        clauses: "C10, R2",
        bounds: ScenarioBounds::NONE.detection(3).recovery(10).lists(0),
        seconds: 8,
        run: for_form!(no_events_for_a_while),
    },
];

/// Number of informers of the service that failed in `informer-cache-loss`.
const INFORMERS: usize = 50;

/// Starts fifty informers. Each watches a namespace with one object.
async fn start_informers<K: CachedConfigMap>(run: &ScenarioRun) -> Result<Vec<WatchedInformer<K>>, TestkitError> {
    let mut informers = Vec::new();
    for number in 0..INFORMERS {
        let namespace = namespace(number);
        run.server.create(&serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
        }))?;
        run.create_in(&namespace, "state", "before")?;
        informers.push(run.watch::<K>(Scope::namespace(namespace))?);
    }
    run.wait_until_ready(&informers.iter().collect::<Vec<_>>()).await?;
    Ok(informers)
}

fn namespace(number: usize) -> String {
    format!("team-{number:02}")
}

/// Changes the object of each namespace. In every fifth namespace, recreates the object instead.
fn change_all(run: &ScenarioRun) -> Result<(), TestkitError> {
    for number in 0..INFORMERS {
        let namespace = namespace(number);
        if number % 5 == 0 {
            run.server.delete_named("configmaps", &namespace, "state")?;
            run.create_in(&namespace, "state", "another")?;
        } else {
            run.change_in(&namespace, "state", "after")?;
        }
    }
    Ok(())
}

fn expect_one_http2_connection(run: &mut ScenarioRun) {
    let connections = run.connection.connections();
    let watching: Vec<_> =
        connections.iter().filter(|connection| connection.carries_watches && connection.streams > 0).collect();
    run.checks.expect_equal("connections that carry watches", &watching.len(), &1);
    let http2 = watching.iter().all(|connection| connection.protocol == Some(Protocol::Http2));
    run.checks.expect(http2, "a watch is not on HTTP/2");
}

async fn apiserver_restart<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    let watched = start_informers::<K>(&run).await?;
    let informers: Vec<&WatchedInformer<K>> = watched.iter().collect();
    expect_one_http2_connection(&mut run);
    let transfers_before = run.full_transfers();

    let fault = run.mark_fault();
    run.faults().stop();
    change_all(&run)?;
    let detection = wait_for_doubt(&informers, fault, REACTION_TIMEOUT).await;
    run.checks.expect_within("the doubt of all informers", detection, REACTION_TIMEOUT);
    sleep(Duration::from_secs(1)).await;
    run.faults().start();
    let recovery = run.wait_for_recovery(&informers, Instant::now(), Duration::from_secs(15)).await;
    run.checks.expect_within("the recovery of all informers", recovery, Duration::from_secs(8));
    run.settle(&informers).await;

    run.checks.expect_at_most("full transfers after the restart", run.full_transfers() - transfers_before, INFORMERS);
    let concurrent_transfers = run.server.request_counts().most_concurrent_transfers;
    run.checks.expect_at_most("concurrent full transfers", concurrent_transfers, 4);
    Ok(run.findings(detection, recovery))
}

async fn replica_change<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let server = ApiServer::builder().replicas(2);
    let mut run =
        ScenarioRun::start(&target, ScenarioSettings { server, proxied: true, ..ScenarioSettings::default() }).await?;
    let watched = start_informers::<K>(&run).await?;
    let informers: Vec<&WatchedInformer<K>> = watched.iter().collect();
    let transfers_before = run.full_transfers();

    run.route_to(1);
    let fault = run.mark_fault();
    run.faults().replica(0).stop();
    change_all(&run)?;
    // The second replica already runs, so the fault ends immediately after its start.
    let recovery = run.wait_for_recovery(&informers, fault, Duration::from_secs(15)).await;
    run.checks.expect_within("the recovery of all informers", recovery, Duration::from_secs(5));
    run.settle(&informers).await;
    run.checks.expect_equal("full transfers after the change", &(run.full_transfers() - transfers_before), &0);
    run.checks.expect_equal("watches on the other replica", &run.server.open_watches(1), &INFORMERS);
    let detection = wait_for_doubt(&informers, fault, Duration::ZERO).await;
    Ok(run.findings(detection, recovery))
}

async fn dead_connection<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;

    run.mark_fault();
    run.faults().stop();
    sleep(Duration::from_millis(200)).await;
    run.faults().start();
    let restart = Instant::now();
    wait_until_listening(&run).await?;
    send_requests(&mut run, "after the restart").await;
    run.change("a", "2")?;
    let restart_recovery = run.wait_for_recovery(&[&config_maps], restart, Duration::from_secs(10)).await;
    run.checks.expect_within("the recovery from the restart", restart_recovery, Duration::from_secs(3));

    let (fault, black_hole_start) = (Instant::now(), run.server.elapsed());
    run.faults().black_hole(true);
    run.change("a", "3")?;
    let detection = wait_for_doubt(&[&config_maps], fault, Duration::from_secs(20)).await;
    run.checks.expect_within("the doubt about a connection whose packets are lost", detection, Duration::from_secs(15));
    // Bytes that were sent during the black hole arrive now, on connections that clients must no longer use.
    let fault_end = Instant::now();
    let black_hole_end = run.server.elapsed();
    run.faults().heal();
    send_requests(&mut run, "after the black hole").await;
    let recovery = run.wait_for_recovery(&[&config_maps], fault_end, Duration::from_secs(15)).await;
    run.checks.expect_within("the recovery from the black hole", recovery, Duration::from_secs(10));
    run.settle(&[&config_maps]).await;

    let connections = run.server.connections();
    let was_dead =
        |id: u64| connections.iter().find(|connection| connection.id == id && connection.opened_at < black_hole_start);
    let requests = run.server.requests();
    let requests_on_dead =
        requests.iter().filter(|request| request.at > black_hole_end && was_dead(request.connection).is_some());
    run.checks.expect_equal("requests on failed connections", &requests_on_dead.count(), &0);
    Ok(run.findings(detection, recovery.max(restart_recovery)))
}

/// Waits until the server's port is open.
async fn wait_until_listening(run: &ScenarioRun) -> Result<(), TestkitError> {
    let Some(address) = run.server.address(0) else {
        // In memory, the server accepts connections from its start.
        return Ok(());
    };
    timeout(REACTION_TIMEOUT, async {
        while TcpStream::connect(address).await.is_err() {
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await?;
    Ok(())
}

/// Sends twenty requests, like a program that has not noticed the fault.
async fn send_requests(run: &mut ScenarioRun, occasion: &str) {
    let namespaces: Api<Namespace> = Api::all(run.connection.client());
    for _ in 0..20 {
        let response = namespaces.get("default").await;
        let error_text = response.as_ref().err().map(ToString::to_string).unwrap_or_default();
        run.checks.expect(response.is_ok(), format_args!("a request {occasion} failed: {error_text}"));
    }
}

async fn time_travel<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let server = ApiServer::builder().replicas(2).cache_catch_up_timeout(Duration::from_millis(300));
    let mut run =
        ScenarioRun::start(&target, ScenarioSettings { server, proxied: true, ..ScenarioSettings::default() }).await?;
    ["a", "b"].into_iter().try_for_each(|name| run.create(name, "0"))?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    let backwards_detector = BackwardsDetector::start(config_maps.informer.clone());

    // The client resumes on a lagging replica.
    let fault = run.mark_fault();
    let resume_recovery = move_to_lagging::<K>(&mut run, &config_maps, LagMove::Resuming).await?;
    let detection = wait_for_doubt(&[&config_maps], fault, Duration::ZERO).await;
    run.checks.expect_equal("full transfers at the resume", &run.full_transfers(), &1);

    // The client relists on a lagging replica.
    run.faults().replica(0).start();
    run.faults().replica(0).respond(RequestRule::any().verb(Verb::Watch).times(1), InjectedResponse::code(410));
    let relist_recovery = move_to_lagging::<K>(&mut run, &config_maps, LagMove::Relisting).await?;
    run.checks.expect(run.full_transfers() > 1, "no relist was sent");
    run.settle(&[&config_maps]).await;
    run.checks.expect(!backwards_detector.went_back(), "a reader received an older value after a newer one");
    Ok(run.findings(detection, resume_recovery.max(relist_recovery)))
}

/// Move of a client to a lagging replica.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LagMove {
    /// The client resumes with its version, and moves from the first replica to the second.
    Resuming,
    /// The client lists, and moves from the second replica to the first.
    Relisting,
}

/// Makes one replica lag, and stops the other. Returns the time until recovery after the lag ends.
async fn move_to_lagging<K: CachedConfigMap>(
    run: &mut ScenarioRun,
    config_maps: &WatchedInformer<K>,
    lag_move: LagMove,
) -> Result<Option<Duration>, TestkitError> {
    let (stopped_replica, lagging_replica, values) = match lag_move {
        LagMove::Resuming => (0, 1, 100..110),
        LagMove::Relisting => (1, 0, 200..210),
    };
    run.faults().replica(lagging_replica).lag(true);
    for value in values.clone() {
        run.change("a", &value.to_string())?;
        // The delay prevents the events from being merged.
        sleep(Duration::from_millis(10)).await;
    }
    let change_recovery = run.wait_for_recovery(&[config_maps], Instant::now(), REACTION_TIMEOUT).await;
    run.checks.expect_within("the changes before the disconnect", change_recovery, REACTION_TIMEOUT);
    run.route_to(lagging_replica);
    run.faults().replica(stopped_replica).stop();
    sleep(Duration::from_secs(2)).await;
    if lag_move == LagMove::Relisting {
        let freshness = config_maps.informer.freshness();
        run.checks.expect(
            !freshness.is_fresh(),
            format_args!("the freshness while waiting for a lagging replica is {freshness}"),
        );
    }
    run.change("a", &values.end.to_string())?;
    run.faults().replica(lagging_replica).lag(false);
    let recovery = run.wait_for_recovery(&[config_maps], Instant::now(), Duration::from_secs(15)).await;
    run.checks.expect_within("the recovery once the replica has caught up", recovery, Duration::from_secs(10));
    Ok(recovery)
}

/// Reader of one value. It detects a return to an older value.
struct BackwardsDetector {
    went_back: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl BackwardsDetector {
    fn start<K: CachedConfigMap>(informer: Informer<K>) -> Self {
        let went_back = Arc::new(AtomicBool::new(false));
        let state = went_back.clone();
        let task = tokio::spawn(async move {
            let mut highest_value = 0;
            loop {
                let found = informer.lister().ok().and_then(|lister| lister.get("default", "a").ok().flatten());
                let value = found.and_then(|object| object.value("value")?.parse::<u32>().ok());
                if value.is_none_or(|value| value < highest_value) {
                    state.store(true, Ordering::Relaxed);
                }
                highest_value = highest_value.max(value.unwrap_or_default());
                sleep(Duration::from_millis(2)).await;
            }
        });
        Self { went_back, task }
    }

    fn went_back(&self) -> bool {
        self.went_back.load(Ordering::Relaxed)
    }
}

impl Drop for BackwardsDetector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn no_events_for_a_while<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let period = Duration::from_secs(1);
    let reflector = ReflectorSettings { period, probe_deadline: period, ..ReflectorSettings::default() };
    let server = ApiServer::builder().bookmark_period(period);
    let mut run =
        ScenarioRun::start(&target, ScenarioSettings { server, reflector, ..ScenarioSettings::default() }).await?;
    run.create("a", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    sleep(2 * period).await;
    run.change("a", "2")?;
    let change_recovery = run.wait_for_recovery(&[&config_maps], Instant::now(), REACTION_TIMEOUT).await;
    run.checks.expect_within("a change before the fault", change_recovery, REACTION_TIMEOUT);

    let fault = run.mark_fault();
    run.faults().freeze(true);
    run.change("a", "3")?;
    run.create("b", "1")?;
    let detection = wait_for_doubt(&[&config_maps], fault, Duration::from_secs(10)).await;
    run.checks.expect_within("the doubt after the freeze", detection, 2 * period + Duration::from_millis(500));
    sleep(period).await;
    run.faults().freeze(false);
    let recovery = run.wait_for_recovery(&[&config_maps], Instant::now(), Duration::from_secs(15)).await;
    run.checks.expect_within("the recovery", recovery, Duration::from_secs(10));
    run.settle(&[&config_maps]).await;
    Ok(run.findings(detection, recovery))
}
