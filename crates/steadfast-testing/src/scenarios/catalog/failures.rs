//! The five scenarios of the first document: the behaviour of client-go while the server is unreachable.

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
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, doubt, until};
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
                with dropped packets. Both shutdowns are prompt, and no attempt follows.",
        clauses: "R10",
        bounds: ScenarioBounds::NONE.detection(2),
        seconds: 2,
        run: for_form!(shutdown_while_cut),
    },
    Scenario {
        name: "create-while-cut",
        faults: &[],
        source: ScenarioSource::FailureScenarios(4),
        summary: "An object is created while the server is unreachable, once with refused connections and once with \
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
        summary: "An object is created while the server is unreachable, with the default deadlines. Both requests end \
                within 30 s with an error that names server and cause, and no object is created twice.",
        clauses: "C12, R1, R10",
        bounds: ScenarioBounds::NONE.detection(2).recovery(15).lists(0),
        seconds: 20,
        run: for_form!(create_while_cut, Settings::default().headers_timeout),
    },
    Scenario {
        name: "recreate-while-cut",
        faults: &[CatalogFault::RecreatedWhileCut],
        source: ScenarioSource::FailureScenarios(5),
        summary: "An object is deleted and recreated during a network cut, and the history in between is compacted. \
                Two informers deliver the deletion of the old object and the addition of the new one, not an update.",
        clauses: "C1, C2, R5",
        bounds: ScenarioBounds::NONE.detection(2).recovery(5).lists(2),
        seconds: 1,
        run: for_form!(recreate_while_cut),
    },
];

async fn no_server_at_sync<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let deadline = Duration::from_secs(1);
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.fault();
    run.faults().stop();
    let config_maps = run.watch::<K>(Scope::all())?;

    let requested = Instant::now();
    let message = run.factory.wait_for_sync(deadline).await.err().map(|error| error.to_string()).unwrap_or_default();
    run.checks.within("the bounded wait", Some(requested.elapsed()), deadline + Duration::from_millis(500));
    run.checks.contains("the error of the wait", &message, &["configmaps", "refused", &run.address()]);
    ["a", "b", "c"].into_iter().try_for_each(|name| run.create(name, "1"))?;

    run.faults().start();
    let recovery = run.recovery(&[&config_maps], Instant::now(), Duration::from_secs(10)).await;
    // The informer may have just started to wait for its next attempt.
    run.checks.within("the sync after the server's start", recovery, Duration::from_secs(3));
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, recovery))
}

async fn request_after_shutdown<K: CachedConfigMap>(
    target: ScenarioTarget,
    idle: Duration,
) -> Result<ScenarioFindings, TestkitError> {
    let transport = Settings { idle_timeout: idle, ..Settings::default() };
    let mut run = ScenarioRun::start(&target, ScenarioSettings { transport, ..ScenarioSettings::default() }).await?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.ready(&[&config_maps]).await?;
    ["a", "b", "c"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    run.settle(&[&config_maps]).await;

    run.fault();
    run.factory.shutdown();
    let namespaces: Api<Namespace> = Api::all(run.connection.client());
    let first = namespaces.create(&PostParams::default(), &namespace("after-shutdown")).await;
    run.checks.expect(first.is_ok(), format_args!("the first request after the shutdown: {first:?}"));
    let ended = until(REACTION_TIMEOUT, || run.server.open_watches(0) == 0).await;
    run.checks.within("the end of the watches", ended, REACTION_TIMEOUT);

    let is_open = || run.server.connections().iter().any(|connection| connection.ended.is_none());
    let closed = until(idle + Duration::from_secs(5), || !is_open()).await;
    run.checks.within("the end of the idle connections", closed, idle + Duration::from_secs(4));
    let before = run.server.connections().len();
    let second = namespaces.create(&PostParams::default(), &namespace("after-idling")).await;
    run.checks.expect(second.is_ok(), format_args!("the request after the idle connections: {second:?}"));
    run.checks.expect(run.server.connections().len() > before, "no new connection was opened");
    Ok(run.findings_of_stopped())
}

fn namespace(name: &str) -> Namespace {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Namespace { metadata, ..Namespace::default() }
}

async fn shutdown_while_cut<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.ready(&[&config_maps]).await?;
    ["a", "b", "c"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    run.settle(&[&config_maps]).await;

    let swallowed = InformerFactory::new(&run.connection);
    let other = run.builder::<K>(&swallowed, Scope::namespace("default")).start()?;
    other.wait_for_sync(REACTION_TIMEOUT).await?;
    run.faults().black_hole(true);
    shut_down::<K>(&mut run, &swallowed, &other, "with dropped packets").await;
    run.faults().black_hole(false);

    // The setup settled at this same virtual instant, and a shutdown takes no virtual time.
    sleep(Duration::from_millis(10)).await;
    let fault = run.fault();
    run.faults().cut();
    let detection = doubt(&[&config_maps], fault, REACTION_TIMEOUT).await;
    run.checks.within("the doubt", detection, REACTION_TIMEOUT);
    // After some attempts, the informer waits for the next one.
    sleep(Duration::from_millis(700)).await;
    let factory = run.factory.clone();
    shut_down::<K>(&mut run, &factory, &config_maps.informer, "with rejected connections").await;
    let attempts = steadfast::unstable::dial_count(&run.connection);
    sleep(Duration::from_secs(1)).await;
    run.checks.same(
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
    how: &str,
) {
    let message = Instant::now();
    let undelivered = factory.shutdown();
    let stopped = until(REACTION_TIMEOUT, || matches!(informer.freshness(), Freshness::Stopped(_))).await;
    run.checks.within(&format!("the shutdown {how}"), stopped.map(|_| message.elapsed()), Duration::from_millis(500));
    run.checks.same("undelivered events", &undelivered.events, &0);
}

async fn create_while_cut<K: CachedConfigMap>(
    target: ScenarioTarget,
    deadline: Duration,
) -> Result<ScenarioFindings, TestkitError> {
    let transport = Settings { headers_timeout: deadline, ..Settings::default() };
    let mut run = ScenarioRun::start(&target, ScenarioSettings { transport, ..ScenarioSettings::default() }).await?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.ready(&[&config_maps]).await?;
    // If neither creation arrives, this object is the whole history.
    run.create("before", "1")?;
    run.settle(&[&config_maps]).await;
    let address = run.address();

    let fault = run.fault();
    run.faults().cut();
    let detection = doubt(&[&config_maps], fault, REACTION_TIMEOUT).await;
    run.checks.within("the doubt", detection, REACTION_TIMEOUT);
    // The port closes shortly after the connections are reset.
    sleep(Duration::from_millis(100)).await;
    create_fails(&mut run, "refused", deadline, &[&address, "refused"]).await;
    run.faults().heal();
    let first = run.recovery(&[&config_maps], Instant::now(), Duration::from_secs(10)).await;
    // Opens a connection on which packets are dropped later.
    Api::<Namespace>::all(run.connection.client()).get("default").await?;

    run.faults().black_hole(true);
    create_fails(&mut run, "swallowed", deadline, &[&address, "no response"]).await;
    run.faults().heal();
    let healed = Instant::now();
    // The held packet of the request arrives now. The network causes this, and it happens at most once.
    sleep(Duration::from_millis(300)).await;
    let second = run.recovery(&[&config_maps], healed, Duration::from_secs(15)).await;
    let requests = run.server.requests();
    let sent = requests.iter().filter(|request| request.verb == Verb::Create).count();
    run.checks.at_most("requests to create that reached the server", sent, 1);
    run.settle(&[&config_maps]).await;
    let recovery = first.max(second);
    run.checks.within("the recovery", recovery, Duration::from_secs(15));
    Ok(run.findings(detection, recovery))
}

async fn create_fails(run: &mut ScenarioRun, name: &str, deadline: Duration, message_part: &[&str]) {
    let api: Api<ConfigMap> = Api::default_namespaced(run.connection.client());
    let requested = Instant::now();
    let created = api.create(&PostParams::default(), &config_map(name, "1")).await;
    let took = requested.elapsed();
    run.checks.within(&format!("the failure to create {name:?}"), Some(took), deadline + Duration::from_millis(500));
    let message = created.err().map(|error| error.to_string()).unwrap_or_default();
    run.checks.contains(&format!("the error about {name:?}"), &message, message_part);
}

async fn recreate_while_cut<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    ["a", "b"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    let everywhere = run.watch::<K>(Scope::all())?;
    let here = run.watch::<K>(Scope::namespace("default"))?;
    run.ready(&[&everywhere, &here]).await?;

    let fault = run.fault();
    run.faults().cut();
    run.recreate("a", "2")?;
    run.delete("b")?;
    run.server.compact();
    run.faults().expire_events();
    let detection = doubt(&[&everywhere, &here], fault, REACTION_TIMEOUT).await;
    run.checks.within("the doubt", detection, REACTION_TIMEOUT);
    run.faults().heal();
    let recovery = run.recovery(&[&everywhere, &here], Instant::now(), Duration::from_secs(10)).await;
    run.checks.within("the recovery", recovery, Duration::from_secs(5));
    run.settle(&[&everywhere, &here]).await;

    for (name, watched) in [("everywhere", &everywhere), ("here", &here)] {
        let recreated = watched.recording.descriptions("default/a");
        let wanted = ["Added", "Deleted Inferred Replaced", "Added"].map(str::to_owned).to_vec();
        run.checks.same(&format!("events of the recreated object {name}"), &recreated, &wanted);
        let deleted = watched.recording.descriptions("default/b");
        let wanted = ["Added", "Deleted Inferred Deleted"].map(str::to_owned).to_vec();
        run.checks.same(&format!("events of the deleted object {name}"), &deleted, &wanted);
    }
    run.checks.at_most("full transfers", run.lists(), 4);
    Ok(run.findings(detection, recovery))
}
