//! The five scenarios of `client-go-failure-scenarios`: the behaviour of client-go while the server is unreachable.

use std::time::Duration;

use crate::config_map;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;
use steadfast::transport::Settings;
use steadfast::{Freshness, Informer, InformerFactory, Scope};
use steadfast_apiserver::Verb;
use tokio::time::{Instant, sleep};

use crate::CachedConfigMap;
use crate::TestkitError;
use crate::scenarios::catalog_fault::CatalogFault;
use crate::scenarios::findings::ScenarioFindings;
use crate::scenarios::scenario::{Scenario, ScenarioBounds, ScenarioSource, for_form};
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, until, wait_for_doubt};
use crate::scenarios::settings::ScenarioSettings;
use crate::scenarios::target::ScenarioTarget;

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "no-server-at-sync",
        faults: &[CatalogFault::ServerAbsent],
        source: ScenarioSource::FailureScenarios(1),
        summary: "No server runs while a program waits for its first sync. The wait ends at its deadline with an \
                error that names the missing caches and the reason. The sync follows when the server is available.",
        clauses: "C9, C10, R6",
        bounds: ScenarioBounds::NONE.recovery(3),
        seconds: 2,
        run: for_form!(no_server_at_sync),
    },
    Scenario {
        name: "request-after-shutdown",
        faults: &[],
        source: ScenarioSource::FailureScenarios(2),
        summary: "The informers are shut down and the program continues to use the client, before and after its idle \
                connections were closed. The watches end, the connections close, and every request succeeds.",
        clauses: "R10",
        bounds: ScenarioBounds::NONE,
        seconds: 2,
        run: for_form!(request_after_shutdown, Duration::from_secs(1)),
    },
    Scenario {
        name: "idle-after-shutdown",
        faults: &[CatalogFault::ShutdownWhileCut],
        source: ScenarioSource::FaultCatalog,
        summary: "The informers are shut down and the program continues to use the client, before and after its idle \
                connections were closed (after 60 s). The watches end, the client closes its connections \
                before the server does, and every request succeeds.",
        clauses: "R10",
        bounds: ScenarioBounds::NONE,
        seconds: 65,
        run: for_form!(request_after_shutdown, Settings::default().idle_timeout),
    },
    Scenario {
        name: "shutdown-while-cut",
        faults: &[CatalogFault::ShutdownWhileCut],
        source: ScenarioSource::FailureScenarios(3),
        summary: "The informers are shut down while the server is unreachable, once with refused connections and once \
                with dropped packets. Both shutdowns end immediately, and no connection attempt follows.",
        clauses: "R10",
        bounds: ScenarioBounds::NONE.detection(2),
        seconds: 2,
        run: for_form!(shutdown_while_cut),
    },
    Scenario {
        name: "create-while-cut",
        faults: &[],
        source: ScenarioSource::FailureScenarios(4),
        summary: "While the server is unreachable, two objects are created: one with refused connections, one with \
                dropped packets. Both requests end within the deadline with an error that names server and cause, and \
                no object is created twice.",
        clauses: "R10",
        bounds: ScenarioBounds::NONE.detection(2).recovery(15).lists(0),
        seconds: 3,
        run: for_form!(create_while_cut, Duration::from_secs(2)),
    },
    Scenario {
        name: "write-while-cut",
        faults: &[CatalogFault::WriteWhileCut],
        source: ScenarioSource::FaultCatalog,
        summary: "While the server is unreachable, two objects are created with the default deadlines: one with refused \
                connections, one with dropped packets. Both requests end within 30 s with an error that names server \
                and cause, and no object is created twice.",
        clauses: "C12, R1, R10",
        bounds: ScenarioBounds::NONE.detection(2).recovery(15).lists(0),
        seconds: 20,
        run: for_form!(create_while_cut, Settings::default().headers_timeout),
    },
    Scenario {
        name: "recreate-while-cut",
        faults: &[CatalogFault::RecreatedWhileCut],
        source: ScenarioSource::FailureScenarios(5),
        summary: "An object is deleted and recreated while the client is disconnected, and the history in between is \
                compacted. Two informers deliver the deletion of the old object and the addition of the new one, not \
                an update.",
        clauses: "C1, C2, R5",
        bounds: ScenarioBounds::NONE.detection(2).recovery(5).lists(2),
        seconds: 1,
        run: for_form!(recreate_while_cut),
    },
];

async fn no_server_at_sync<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let deadline = Duration::from_secs(1);
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.mark_fault();
    run.faults().stop();
    let config_maps = run.watch::<K>(Scope::all())?;

    let request_start = Instant::now();
    let message = run.factory.wait_for_sync(deadline).await.err().map(|error| error.to_string()).unwrap_or_default();
    run.checks.expect_within("the bounded wait", Some(request_start.elapsed()), deadline + Duration::from_millis(500));
    run.checks.expect_contains("the error of the wait", &message, &["configmaps", "refused", &run.address()]);
    ["a", "b", "c"].into_iter().try_for_each(|name| run.create(name, "1"))?;

    run.faults().start();
    let recovery = run.wait_for_recovery(&[&config_maps], Instant::now(), Duration::from_secs(10)).await;
    // The informer may have just started to wait for its next attempt.
    run.checks.expect_within("the sync after the server's start", recovery, Duration::from_secs(3));
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, recovery))
}

async fn request_after_shutdown<K: CachedConfigMap>(
    target: ScenarioTarget,
    idle_timeout: Duration,
) -> Result<ScenarioFindings, TestkitError> {
    let transport = Settings { idle_timeout, ..Settings::default() };
    let mut run = ScenarioRun::start(&target, ScenarioSettings { transport, ..ScenarioSettings::default() }).await?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    ["a", "b", "c"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    run.settle(&[&config_maps]).await;

    run.mark_fault();
    run.factory.shutdown();
    let namespaces: Api<Namespace> = Api::all(run.connection.client());
    let first_response = namespaces.create(&PostParams::default(), &namespace("after-shutdown")).await;
    run.checks.expect(first_response.is_ok(), format_args!("the first request after the shutdown: {first_response:?}"));
    let watches_end = until(REACTION_TIMEOUT, || run.server.open_watches(0) == 0).await;
    run.checks.expect_within("the end of the watches", watches_end, REACTION_TIMEOUT);

    let is_open = || run.server.connections().iter().any(|connection| connection.ended.is_none());
    let connections_closed = until(idle_timeout + Duration::from_secs(5), || !is_open()).await;
    run.checks.expect_within(
        "the end of the idle connections",
        connections_closed,
        idle_timeout + Duration::from_secs(4),
    );
    let connections_before = run.server.connections().len();
    let second_response = namespaces.create(&PostParams::default(), &namespace("after-idling")).await;
    run.checks
        .expect(second_response.is_ok(), format_args!("the request after the idle connections: {second_response:?}"));
    run.checks.expect(run.server.connections().len() > connections_before, "no new connection was opened");
    Ok(run.findings_of_stopped())
}

fn namespace(name: &str) -> Namespace {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Namespace { metadata, ..Namespace::default() }
}

async fn shutdown_while_cut<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    ["a", "b", "c"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    run.settle(&[&config_maps]).await;

    let dropped_factory = InformerFactory::new(&run.connection);
    let dropped_informer = run.builder::<K>(&dropped_factory, Scope::namespace("default")).start()?;
    dropped_informer.wait_for_sync(REACTION_TIMEOUT).await?;
    run.faults().black_hole(true);
    shut_down::<K>(&mut run, &dropped_factory, &dropped_informer, "with dropped packets").await;
    run.faults().black_hole(false);

    // The setup settled at this same virtual instant, and a shutdown takes no virtual time.
    sleep(Duration::from_millis(10)).await;
    let fault = run.mark_fault();
    run.faults().cut();
    let detection = wait_for_doubt(&[&config_maps], fault, REACTION_TIMEOUT).await;
    run.checks.expect_within("the doubt", detection, REACTION_TIMEOUT);
    // After some attempts, the informer waits for the next one.
    sleep(Duration::from_millis(700)).await;
    let factory = run.factory.clone();
    shut_down::<K>(&mut run, &factory, &config_maps.informer, "with rejected connections").await;
    let attempts = steadfast::unstable::dial_count(&run.connection);
    sleep(Duration::from_secs(1)).await;
    run.checks.expect_equal(
        "attempts, including those after the shutdown",
        &steadfast::unstable::dial_count(&run.connection),
        &attempts,
    );
    Ok(run.findings(detection, None))
}

async fn shut_down<K: CachedConfigMap>(
    run: &mut ScenarioRun,
    factory: &InformerFactory,
    informer: &Informer<K>,
    condition: &str,
) {
    let start = Instant::now();
    let undelivered = factory.shutdown();
    let stop_delay = until(REACTION_TIMEOUT, || matches!(informer.freshness(), Freshness::Stopped(_))).await;
    run.checks.expect_within(
        &format!("the shutdown {condition}"),
        stop_delay.map(|_| start.elapsed()),
        Duration::from_millis(500),
    );
    run.checks.expect_equal("undelivered events", &undelivered.events, &0);
}

async fn create_while_cut<K: CachedConfigMap>(
    target: ScenarioTarget,
    deadline: Duration,
) -> Result<ScenarioFindings, TestkitError> {
    let transport = Settings { headers_timeout: deadline, ..Settings::default() };
    let mut run = ScenarioRun::start(&target, ScenarioSettings { transport, ..ScenarioSettings::default() }).await?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    // If neither creation arrives, this object is the whole history.
    run.create("before", "1")?;
    run.settle(&[&config_maps]).await;
    let address = run.address();

    let fault = run.mark_fault();
    run.faults().cut();
    let detection = wait_for_doubt(&[&config_maps], fault, REACTION_TIMEOUT).await;
    run.checks.expect_within("the doubt", detection, REACTION_TIMEOUT);
    // The port closes shortly after the connections are reset.
    sleep(Duration::from_millis(100)).await;
    expect_create_failure(&mut run, "refused", deadline, &[&address, "refused"]).await;
    run.faults().heal();
    let first_recovery = run.wait_for_recovery(&[&config_maps], Instant::now(), Duration::from_secs(10)).await;
    // Opens a connection on which packets are dropped later.
    Api::<Namespace>::all(run.connection.client()).get("default").await?;

    run.faults().black_hole(true);
    expect_create_failure(&mut run, "swallowed", deadline, &[&address, "no response"]).await;
    run.faults().heal();
    let fault_end = Instant::now();
    // The held packet of the request arrives now. The network causes this, and it happens at most once.
    sleep(Duration::from_millis(300)).await;
    let second_recovery = run.wait_for_recovery(&[&config_maps], fault_end, Duration::from_secs(15)).await;
    let requests = run.server.requests();
    let create_requests = requests.iter().filter(|request| request.verb == Verb::Create).count();
    run.checks.expect_at_most("requests to create that reached the server", create_requests, 1);
    run.settle(&[&config_maps]).await;
    let recovery = first_recovery.max(second_recovery);
    run.checks.expect_within("the recovery", recovery, Duration::from_secs(15));
    Ok(run.findings(detection, recovery))
}

async fn expect_create_failure(run: &mut ScenarioRun, name: &str, deadline: Duration, message_part: &[&str]) {
    let api: Api<ConfigMap> = Api::default_namespaced(run.connection.client());
    let request_start = Instant::now();
    let result = api.create(&PostParams::default(), &config_map(name, "1")).await;
    let took = request_start.elapsed();
    run.checks.expect_within(
        &format!("the failure to create {name:?}"),
        Some(took),
        deadline + Duration::from_millis(500),
    );
    let message = result.err().map(|error| error.to_string()).unwrap_or_default();
    run.checks.expect_contains(&format!("the error about {name:?}"), &message, message_part);
}

async fn recreate_while_cut<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    ["a", "b"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    let everywhere = run.watch::<K>(Scope::all())?;
    let namespaced = run.watch::<K>(Scope::namespace("default"))?;
    run.wait_until_ready(&[&everywhere, &namespaced]).await?;

    let fault = run.mark_fault();
    run.faults().cut();
    run.recreate("a", "2")?;
    run.delete("b")?;
    run.server.compact();
    run.faults().expire_events();
    let detection = wait_for_doubt(&[&everywhere, &namespaced], fault, REACTION_TIMEOUT).await;
    run.checks.expect_within("the doubt", detection, REACTION_TIMEOUT);
    run.faults().heal();
    let recovery = run.wait_for_recovery(&[&everywhere, &namespaced], Instant::now(), Duration::from_secs(10)).await;
    run.checks.expect_within("the recovery", recovery, Duration::from_secs(5));
    run.settle(&[&everywhere, &namespaced]).await;

    for (name, watched) in [("everywhere", &everywhere), ("here", &namespaced)] {
        let recreated_events = watched.recording.descriptions("default/a");
        let expected = ["Added", "Deleted Inferred Replaced", "Added"].map(str::to_owned).to_vec();
        run.checks.expect_equal(&format!("events of the recreated object {name}"), &recreated_events, &expected);
        let deleted_events = watched.recording.descriptions("default/b");
        let expected = ["Added", "Deleted Inferred Deleted"].map(str::to_owned).to_vec();
        run.checks.expect_equal(&format!("events of the deleted object {name}"), &deleted_events, &expected);
    }
    run.checks.expect_at_most("full transfers", run.full_transfers(), 4);
    Ok(run.findings(detection, recovery))
}
