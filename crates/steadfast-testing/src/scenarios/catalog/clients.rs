//! Faults on the client's side: handlers, selectors, connections, and the number of watches per connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use serde_json::json;
use steadfast::{Event, Scope};
use steadfast_apiserver::ApiServer;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::CachedConfigMap;
use crate::TestkitError;
use crate::scenarios::catalog_fault::CatalogFault;
use crate::scenarios::findings::ScenarioFindings;
use crate::scenarios::scenario::{Scenario, ScenarioBounds, ScenarioSource, for_form};
use crate::scenarios::scenario_run::{NAMESPACE, REACTION_TIMEOUT, ScenarioRun, WatchedInformer, until};
use crate::scenarios::settings::ScenarioSettings;
use crate::scenarios::target::ScenarioTarget;
use crate::scenarios::unread::{self, UnreadWatches};

/// Timeout that is longer than any recovery in these scenarios.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of watches, more than the streams that one connection may have.
const WATCH_COUNT: usize = 130;

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "goaway",
        faults: &[CatalogFault::GoAway],
        source: ScenarioSource::FaultCatalog,
        summary: "130 watches run against a server that allows 100 streams per connection. All connections receive \
                GOAWAY three times, while requests continue. No request waits behind a watch. All watches move to new \
                connections, without a list.",
        clauses: "C3, R4",
        bounds: ScenarioBounds::NONE.recovery(3).lists(0),
        seconds: 4,
        run: for_form!(goaway),
    },
    Scenario {
        name: "frames-split",
        faults: &[CatalogFault::UndecodableObject],
        source: ScenarioSource::FaultCatalog,
        summary: "All bodies arrive in chunks of seven bytes, and then of 4,999 bytes with one object of a megabyte. \
                Chunks also end within characters. Every object arrives unchanged, without an additional list.",
        clauses: "C11, R8",
        bounds: ScenarioBounds::NONE.recovery(10).lists(1),
        seconds: 5,
        run: for_form!(frames_split),
    },
    Scenario {
        name: "slow-reader",
        faults: &[CatalogFault::SlowReader],
        source: ScenarioSource::FaultCatalog,
        summary: "The server disconnects any client that leaves fifty events unread, and a handler is stuck while \
                thousands of events arrive. The socket is still read, and the single watch stays open.",
        clauses: "C8, R4",
        bounds: ScenarioBounds::NONE.recovery(5).lists(0),
        seconds: 5,
        run: for_form!(slow_reader),
    },
    Scenario {
        name: "unread-streams",
        faults: &[CatalogFault::SlowReader],
        source: ScenarioSource::FaultCatalog,
        summary: "Twenty watches of kube run on the informers' connection, each with megabytes that the program does \
                not read for minutes. No change of the informers is late, no other request waits, and no cache is in \
                doubt.",
        clauses: "C8, C10",
        bounds: ScenarioBounds::NONE.recovery(2).lists(0),
        seconds: 150,
        run: for_form!(unread_streams),
    },
    Scenario {
        name: "bad-handlers",
        faults: &[CatalogFault::BadHandler],
        source: ScenarioSource::FaultCatalog,
        summary: "One handler panics at every call, one never returns, one takes a second per call, and one is \
                healthy. The healthy handler receives every event immediately. The number of pending events of the \
                others is limited by the number of objects.",
        clauses: "C5, C7, C8",
        bounds: ScenarioBounds::NONE.recovery(5).lists(0),
        seconds: 10,
        run: for_form!(bad_handlers),
    },
    Scenario {
        name: "selector-churn",
        faults: &[CatalogFault::SelectorChurn],
        source: ScenarioSource::FaultCatalog,
        summary: "Objects enter and leave a selector repeatedly, while watched and while disconnected. Each stay in \
                the selector is delivered as one addition and one removal. The reason of a removal is `DeletedOrLeft`, \
                never a certain deletion.",
        clauses: "C1, C2",
        bounds: ScenarioBounds::NONE.recovery(3).lists(0),
        seconds: 2,
        run: for_form!(selector_churn),
    },
];

async fn goaway<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let server = ApiServer::builder().max_streams(100);
    let mut run = ScenarioRun::start(&target, ScenarioSettings { server, ..ScenarioSettings::default() }).await?;
    let mut watched = Vec::new();
    for number in 0..WATCH_COUNT {
        let namespace = format!("team-{number:03}");
        run.server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }))?;
        run.create_in(&namespace, "state", "0")?;
        watched.push(run.watch::<K>(Scope::namespace(namespace))?);
    }
    let informers: Vec<&WatchedInformer<K>> = watched.iter().collect();
    run.wait_until_ready(&informers).await?;
    run.mark_fault();
    let mut slowest = None;
    for round in 1..=3 {
        run.faults().goaway();
        let drain_start = Instant::now();
        for number in 0..WATCH_COUNT {
            run.change_in(&format!("team-{number:03}"), "state", &round.to_string())?;
        }
        let namespaces: Api<Namespace> = Api::all(run.connection.client());
        for _ in 0..20 {
            let request_start = Instant::now();
            let response = namespaces.get("default").await;
            run.checks.expect(response.is_ok(), format_args!("a request failed: {response:?}"));
            run.checks.expect_within("a request next to the watches", Some(request_start.elapsed()), REACTION_TIMEOUT);
        }
        let recovered_after = run.wait_for_recovery(&informers, drain_start, RECOVERY_TIMEOUT).await;
        run.checks.expect_within(
            &format!("reconnect of all watches after drain {round}"),
            recovered_after,
            RECOVERY_TIMEOUT,
        );
        slowest = slowest.max(recovered_after);
        sleep(Duration::from_secs(1)).await;
        let watch_count = run.server.request_counts().watches;
        run.checks.expect(
            watch_count >= round * WATCH_COUNT,
            format_args!("only {watch_count} watches after {round} drains"),
        );
    }
    run.settle(&informers).await;
    Ok(run.findings(None, slowest))
}

async fn frames_split<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("small", "Grüße, 世界 🦀")?;
    let fault_time = run.mark_fault();
    run.faults().split_bodies(7);
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    for round in 0..20 {
        run.change("small", &format!("{round} Grüße, 世界 🦀"))?;
    }
    let recovered_after = run.wait_for_recovery(&[&config_maps], fault_time, RECOVERY_TIMEOUT).await;
    run.checks.expect_within("the delivery of the split bodies", recovered_after, REACTION_TIMEOUT);
    run.faults().split_bodies(4_999);
    run.faults().end_watches();
    run.create("huge", &"é🦀".repeat(1_000_000 / 6))?;
    let creation_time = Instant::now();
    let recovery = run.wait_for_recovery(&[&config_maps], creation_time, RECOVERY_TIMEOUT).await;
    for name in ["small", "huge"] {
        let cached = config_maps.informer.lister()?.get(NAMESPACE, name)?;
        let cached_data = cached.and_then(|cached| serde_json::to_value(&cached.config_map()?.data).ok());
        let stored_data = run.server.get("configmaps", NAMESPACE, name)?.get("data").cloned();
        run.checks.expect(cached_data == stored_data, format_args!("{name} differs from the server's object"));
    }
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, recovery))
}

async fn slow_reader<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let server = ApiServer::builder().slow_watch_limits(50, Duration::from_millis(200));
    let mut run = ScenarioRun::start(&target, ScenarioSettings { server, ..ScenarioSettings::default() }).await?;
    for object in 0..10 {
        run.create(&format!("object-{object}"), "0")?;
    }
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    let stuck = config_maps.informer.on_event_async(|_: Event<K>| std::future::pending())?;
    run.mark_fault();
    let before = run.server.request_counts().watches;
    for round in 1..=200 {
        for object in 0..10 {
            run.change(&format!("object-{object}"), &format!("{round} {}", "x".repeat(500)))?;
        }
        sleep(Duration::from_millis(5)).await;
    }
    let last_change = Instant::now();
    let recovery = run.wait_for_recovery(&[&config_maps], last_change, RECOVERY_TIMEOUT).await;
    run.checks.expect_equal("reopened watches", &run.server.request_counts().watches, &before);
    run.checks.expect_at_most("pending events of the stuck handler", stuck.stats().entries, 10);
    stuck.remove();
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, recovery))
}

async fn unread_streams<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    // These limits are high, so the server does not close the unread watches.
    let server = ApiServer::builder().slow_watch_limits(1_000_000, Duration::from_secs(3600));
    let mut run = ScenarioRun::start(&target, ScenarioSettings { server, ..ScenarioSettings::default() }).await?;
    run.create("a", "0")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    let client = run.connection.client();
    let fault_time = run.mark_fault();
    let unread_responses = UnreadWatches::open(&client, &run.server.revision().to_string()).await?;
    unread::create_large_secrets(&run.server)?;
    let namespaces: Api<Namespace> = Api::all(client);
    let mut slowest = None;
    // The rounds last for more than two periods. A starved stream would put the cache in doubt, and be reopened.
    for round in 1..=26 {
        sleep(Duration::from_secs(5)).await;
        run.change("a", &round.to_string())?;
        let recovered_after = run.wait_for_recovery(&[&config_maps], Instant::now(), RECOVERY_TIMEOUT).await;
        run.checks.expect_within("a change next to unread responses", recovered_after, REACTION_TIMEOUT);
        slowest = slowest.max(recovered_after);
        let request_start = Instant::now();
        let response = timeout(RECOVERY_TIMEOUT, namespaces.get("default")).await;
        run.checks.expect(matches!(response, Ok(Ok(_))), format_args!("a request failed: {response:?}"));
        run.checks.expect_within("a request next to unread responses", Some(request_start.elapsed()), REACTION_TIMEOUT);
    }
    run.expect_no_doubt(&config_maps, fault_time);
    drop(unread_responses);
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, slowest))
}

async fn bad_handlers<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    for object in 0..10 {
        run.create(&format!("object-{object}"), "0")?;
    }
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    run.mark_fault();
    let (release, released) = watch::channel(false);
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let informer = &config_maps.informer;
    let panicking = informer.on_event_async(move |_: Event<K>| {
        counter.fetch_add(1, Ordering::Relaxed);
        async { std::panic::resume_unwind(Box::new("a handler that always panics")) }
    })?;
    let stuck = informer.on_event_async(move |_: Event<K>| {
        let mut released = released.clone();
        async move { drop(released.wait_for(|released| *released).await) }
    })?;
    let slow = informer.on_event_async(|_: Event<K>| sleep(Duration::from_secs(1)))?;
    for round in 1..=50 {
        for object in 0..10 {
            run.change(&format!("object-{object}"), &round.to_string())?;
        }
        sleep(Duration::from_millis(20)).await;
    }
    let last_change = Instant::now();
    let recovery = run.wait_for_recovery(&[&config_maps], last_change, RECOVERY_TIMEOUT).await;
    for (handler_name, registration) in [("panicking", &panicking), ("stuck", &stuck), ("slow", &slow)] {
        let entries = registration.stats().entries;
        run.checks.expect_at_most(&format!("pending events of the {handler_name} handler"), entries, 10);
    }
    run.checks.expect(calls.load(Ordering::Relaxed) > 10, "the panicking handler is no longer called");
    release.send_replace(true);
    for registration in [&panicking, &stuck, &slow] {
        registration.remove();
    }
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, recovery))
}

async fn selector_churn<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    ["a", "b"].into_iter().try_for_each(|name| run.create(name, "0"))?;
    let web = run.watch::<K>(Scope::all().labels("app=web"))?;
    run.wait_until_ready(&[&web]).await?;
    run.mark_fault();
    for round in 0..10 {
        set_label(&run, "a", if round % 2 == 0 { "web" } else { "db" }, round)?;
        set_label(&run, "b", if round % 3 == 0 { "web" } else { "db" }, round)?;
        // Waits for each event. Otherwise the handler could receive merged events.
        until(REACTION_TIMEOUT, || web.recording.of("default/a").len() > round as usize).await;
    }
    let stays = web.recording.descriptions("default/a");
    let expected: Vec<String> =
        ["Added", "Deleted Observed DeletedOrLeft"].repeat(5).into_iter().map(str::to_owned).collect();
    run.checks.expect_equal("events of an object that entered and left five times", &stays, &expected);
    let mut slowest = None;
    for round in 10..20 {
        run.faults().cut();
        set_label(&run, "a", "web", round)?;
        set_label(&run, "a", "db", round)?;
        set_label(&run, "a", "web", round)?;
        set_label(&run, "b", if round % 2 == 0 { "web" } else { "db" }, round)?;
        run.faults().heal();
        let recovered_after = run.wait_for_recovery(&[&web], Instant::now(), RECOVERY_TIMEOUT).await;
        slowest = slowest.max(recovered_after);
    }
    run.settle(&[&web]).await;
    Ok(run.findings(None, slowest))
}

fn set_label(run: &ScenarioRun, name: &str, app: &str, round: u32) -> Result<(), TestkitError> {
    let patch = json!({ "metadata": { "labels": { "app": app } }, "data": { "value": round.to_string() } });
    run.server.merge_patch("configmaps", NAMESPACE, name, patch)?;
    Ok(())
}
