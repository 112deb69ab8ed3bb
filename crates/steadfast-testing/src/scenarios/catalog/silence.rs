//! Silent connections and streams that do not end, with the library's default times.

use std::time::Duration;

use steadfast::{Freshness, Scope};
use steadfast_apiserver::{ApiServer, Verb};
use tokio::time::{Instant, sleep};

use crate::CachedConfigMap;
use crate::TestkitError;
use crate::proxy::Direction;
use crate::scenarios::catalog_fault::CatalogFault;
use crate::scenarios::findings::ScenarioFindings;
use crate::scenarios::scenario::{Scenario, ScenarioBounds, ScenarioSource, for_form};
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, wait_for_doubt};
use crate::scenarios::settings::ScenarioSettings;
use crate::scenarios::target::ScenarioTarget;

/// Seconds after which a probe has failed: one period, its jitter of up to a tenth, and 5 s of the probe's timeout
/// (R2).
const MAX_PROBE_SECS: u64 = 60 + 6 + 5;

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "black-hole",
        faults: &[CatalogFault::BlackHole],
        source: ScenarioSource::FaultCatalog,
        summary: "Packets are lost without an error: in both directions, then only to the server, then only to the \
                client. Each time the informer is in doubt within 15 s. It resumes without a list when packets pass \
                again.",
        clauses: "C10, R1, R4",
        bounds: ScenarioBounds::NONE.detection(15).recovery(20).lists(0),
        seconds: 45,
        run: for_form!(black_hole),
    },
    Scenario {
        name: "idle-flow-dropped",
        faults: &[CatalogFault::IdleFlowDropped],
        source: ScenarioSource::FaultCatalog,
        summary: "A middlebox forgets flows after 240 s without traffic and drops later packets. Nothing changes for \
                five minutes, and the first change after that arrives immediately. The client's pings have kept the \
                flow active.",
        clauses: "C10, R1, R4",
        bounds: ScenarioBounds::NONE.recovery(2).lists(0),
        seconds: 300,
        run: for_form!(idle_flow_dropped),
    },
    Scenario {
        name: "frozen-server",
        faults: &[CatalogFault::FrozenServer],
        source: ScenarioSource::FaultCatalog,
        summary: "Connections are alive and pings are acknowledged, but the server behind them is frozen. A request \
                without a response makes the cache suspect and then stale. No list follows when the server resumes.",
        clauses: "C10, R2, R2a, R4",
        bounds: ScenarioBounds::NONE.detection(15).recovery(15).lists(0),
        seconds: 135,
        run: for_form!(frozen, |server, on| server.faults().freeze(on)),
    },
    Scenario {
        name: "frozen-etcd",
        faults: &[CatalogFault::FrozenEtcd],
        source: ScenarioSource::FaultCatalog,
        summary: "The etcd behind a live server is frozen, and bookmarks with an equal version continue. Such \
                bookmarks are not proofs of freshness. The cache is suspect and then stale, and no list follows when \
                etcd resumes.",
        clauses: "C10, R2, R4",
        bounds: ScenarioBounds::NONE.detection(MAX_PROBE_SECS).recovery(15).lists(0),
        seconds: 135,
        run: for_form!(frozen, |server, on| server.faults().freeze_etcd(on)),
    },
    Scenario {
        name: "stalled-stream",
        faults: &[CatalogFault::StalledStream],
        source: ScenarioSource::FaultCatalog,
        summary: "One of two watches on a healthy connection stalls permanently. A second watch, opened on another \
                connection, delivers the missing events within two periods. The other watch is not affected.",
        clauses: "C10, C11, R2",
        bounds: ScenarioBounds::NONE.recovery(120).lists(0),
        seconds: 75,
        run: for_form!(stalled_stream),
    },
    Scenario {
        name: "quiet-and-healthy",
        faults: &[],
        source: ScenarioSource::FaultCatalog,
        summary: "Nothing changes for five minutes on a healthy server. The cache stays fresh, and no watch is \
                reopened because of the silence.",
        clauses: "C10, R2",
        bounds: ScenarioBounds::NONE.lists(0),
        seconds: 300,
        run: for_form!(quiet_and_healthy),
    },
];

async fn black_hole<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run =
        ScenarioRun::start(&target, ScenarioSettings { proxied: true, ..ScenarioSettings::default() }).await?;
    run.create("a", "0")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    let (mut detection, mut recovery) = (Some(Duration::ZERO), Some(Duration::ZERO));
    for direction in [Direction::Both, Direction::ToServer, Direction::ToClient] {
        let network = run.network().ok_or("the setup has no faulty network")?.clone();
        let fault = run.mark_fault();
        network.black_hole(direction, true);
        if direction != Direction::ToServer {
            run.change("a", &format!("{direction:?}"))?;
        }
        let doubt_delay = wait_for_doubt(&[&config_maps], fault, Duration::from_secs(60)).await;
        run.checks.expect_within(&format!("the doubt about {direction:?}"), doubt_delay, Duration::from_secs(15));
        sleep(Duration::from_secs(1)).await;
        network.heal();
        let fault_end = Instant::now();
        run.create(&format!("{direction:?}").to_lowercase(), "1")?;
        let recovered_after = run.wait_for_recovery(&[&config_maps], fault_end, Duration::from_secs(60)).await;
        detection = detection.zip(doubt_delay).map(|(one, two)| one.max(two));
        recovery = recovery.zip(recovered_after).map(|(one, two)| one.max(two));
    }
    run.settle(&[&config_maps]).await;
    Ok(run.findings(detection, recovery))
}

async fn idle_flow_dropped<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run =
        ScenarioRun::start(&target, ScenarioSettings { proxied: true, ..ScenarioSettings::default() }).await?;
    run.create("a", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    run.wait_for_watches(1).await;
    let started = run.mark_fault();
    let network = run.network().ok_or("the setup has no faulty network")?;
    network.drop_idle_after(Some(Duration::from_secs(240)));
    sleep(Duration::from_secs(290)).await;
    run.expect_no_doubt(&config_maps, started);
    run.change("a", "2")?;
    let change_recovery = run.wait_for_recovery(&[&config_maps], Instant::now(), Duration::from_secs(60)).await;
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, change_recovery))
}

/// Freezes the servers behind the connection for two periods.
async fn frozen<K: CachedConfigMap>(
    target: ScenarioTarget,
    freeze: fn(&ApiServer, bool),
) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    run.wait_for_watches(1).await;
    let fault = run.mark_fault();
    freeze(&run.server, true);
    let detection = wait_for_doubt(&[&config_maps], fault, Duration::from_secs(180)).await;
    sleep(Duration::from_secs(125).saturating_sub(fault.elapsed())).await;
    let freshness = config_maps.informer.freshness();
    let is_stale = matches!(freshness, Freshness::Stale(_));
    run.checks.expect(is_stale, format_args!("after two periods the freshness is {freshness}"));
    freeze(&run.server, false);
    let fault_end = Instant::now();
    run.change("a", "2")?;
    let recovery = run.wait_for_recovery(&[&config_maps], fault_end, Duration::from_secs(60)).await;
    run.settle(&[&config_maps]).await;
    Ok(run.findings(detection, recovery))
}

async fn stalled_stream<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    // On a healthy connection, no client can detect a stalled stream's missing events within one period.
    let mut run =
        ScenarioRun::start(&target, ScenarioSettings { lag: Duration::from_secs(120), ..ScenarioSettings::default() })
            .await?;
    run.create("a", "1")?;
    let healthy = run.watch::<K>(Scope::namespace("kube-system"))?;
    run.wait_until_ready(&[&healthy]).await?;
    run.wait_for_watches(1).await;
    let earlier_requests: Vec<u64> = run.server.requests().iter().map(|request| request.id).collect();
    let stalled_informer = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&stalled_informer]).await?;
    run.wait_for_watches(2).await;
    let connections = run.server.connections().len();
    let fault = run.mark_fault();
    for request in run.server.requests().iter().filter(|request| !earlier_requests.contains(&request.id)) {
        run.faults().stall_stream(request.id, true);
    }
    run.change("a", "2")?;
    let recovery = run.wait_for_recovery(&[&stalled_informer], fault, Duration::from_secs(180)).await;
    let has_new_connection = run.server.connections().len() > connections;
    run.checks.expect(has_new_connection, "the second watch is not on another connection");
    run.create_in("kube-system", "b", "1")?;
    let change_recovery = run.wait_for_recovery(&[&healthy], Instant::now(), REACTION_TIMEOUT).await;
    run.checks.expect_within("a change on the other watch", change_recovery, REACTION_TIMEOUT);
    run.settle(&[&stalled_informer, &healthy]).await;
    let detection = wait_for_doubt(&[&stalled_informer], fault, Duration::ZERO).await;
    Ok(run.findings(detection, recovery))
}

async fn quiet_and_healthy<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    run.wait_for_watches(1).await;
    let started = run.mark_fault();
    let requests_before = run.server.requests().len();
    sleep(Duration::from_secs(290)).await;
    run.expect_no_doubt(&config_maps, started);
    let requests = run.server.requests();
    let later_requests = requests.iter().skip(requests_before);
    let long_watches =
        later_requests.filter(|request| request.verb == Verb::Watch && timeout_seconds(&request.query) > 10);
    run.checks.expect_equal("reopened watches", &long_watches.count(), &0);
    run.checks.expect_at_most("probes", run.server.request_counts().probes, 5);
    run.change("a", "2")?;
    let change_recovery = run.wait_for_recovery(&[&config_maps], Instant::now(), REACTION_TIMEOUT).await;
    run.checks.expect_within("the change after the silence", change_recovery, REACTION_TIMEOUT);
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, None))
}

/// Returns the requested timeout of a watch, in seconds.
fn timeout_seconds(query: &str) -> u64 {
    let timeout_text = query.split('&').find_map(|part| part.strip_prefix("timeoutSeconds="));
    timeout_text.and_then(|seconds| seconds.parse().ok()).unwrap_or(u64::MAX)
}
