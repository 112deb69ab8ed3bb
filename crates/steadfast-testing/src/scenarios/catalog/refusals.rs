//! Rejections: servers that request a later retry, revoked credentials and permissions, and missing resources.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use steadfast::{Cacheable, Freshness, Informer, ReflectorSettings, Scope};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule, Verb};
use tokio::time::{Instant, sleep};

use crate::CachedConfigMap;
use crate::TestkitError;
use crate::scenarios::catalog_fault::CatalogFault;
use crate::scenarios::findings::ScenarioFindings;
use crate::scenarios::scenario::{Scenario, ScenarioBounds, ScenarioSource, for_form};
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, until, wait_for_doubt};
use crate::scenarios::settings::ScenarioSettings;
use crate::scenarios::target::ScenarioTarget;
use crate::widget_definition;

/// Timeout that is longer than any recovery in these scenarios.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum time between two attempts (R6), including the round trip.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(9);

/// Interval of the lists that replace a watch.
const LIST_INTERVAL: Duration = Duration::from_secs(3);

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "server-busy",
        faults: &[CatalogFault::ServerBusy],
        source: ScenarioSource::FaultCatalog,
        summary: "The server responds to watches with 429 and 503 with Retry-After, with 500 and with 504, and once \
                with a Retry-After of an hour. The informer honours each delay, up to a minute, and does not list.",
        clauses: "R4, R6, R11",
        bounds: ScenarioBounds::NONE.recovery(67).lists(0),
        seconds: 75,
        run: for_form!(server_busy),
    },
    Scenario {
        name: "credentials-refused",
        faults: &[CatalogFault::CredentialsRotated],
        source: ScenarioSource::FaultCatalog,
        summary: "After some time the server responds 401 to the only token. The cache fails, and its state names the \
                cause without the token. The cached objects stay readable. The informer resumes without a list when \
                the server accepts the token again.",
        clauses: "C2, C10, R4, R6",
        bounds: ScenarioBounds::NONE.detection(2).recovery(9).lists(0),
        seconds: 15,
        run: for_form!(credentials_refused),
    },
    Scenario {
        name: "resource-refused",
        faults: &[CatalogFault::ResourceRefused],
        source: ScenarioSource::FaultCatalog,
        summary: "Secrets are forbidden. Widgets are first undefined, then defined, then removed with all their \
                objects. Config maps are not affected, errors name the missing resources, and widgets follow their \
                definition.",
        clauses: "C2, C9, R6, R7",
        bounds: ScenarioBounds::NONE.recovery(9),
        seconds: 25,
        run: for_form!(resource_refused),
    },
    Scenario {
        name: "refused-by-verb",
        faults: &[CatalogFault::ResourceRefused],
        source: ScenarioSource::FaultCatalog,
        summary: "Three servers serve lists, but reject streamed lists and watches with 403, 405 or 500. The informer \
                then lists periodically, in this scenario every 3 s, and reports this with the reason. A deletion is \
                delivered with the next list. The watch resumes when the server allows it.",
        clauses: "C2, C9, C10, R3, R6",
        bounds: ScenarioBounds::NONE.recovery(9).lists(36),
        seconds: 45,
        run: for_form!(refused_by_verb),
    },
    Scenario {
        name: "permission-removed",
        faults: &[CatalogFault::PermissionRemoved],
        source: ScenarioSource::FaultCatalog,
        summary: "Permission to read config maps is removed before the objects, and so is the served version of \
                widgets. The informers do not treat 403 and 404 as deletions: both caches fail, and their objects stay \
                readable. Deletions in the meantime are delivered when the resources are served again.",
        clauses: "C2, C10, R7",
        bounds: ScenarioBounds::NONE.detection(2).recovery(9).lists(2),
        seconds: 20,
        run: for_form!(permission_removed),
    },
];

async fn server_busy<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "0")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    run.mark_fault();
    let mut slowest = None;
    for (code, retry_after) in [(429, 3), (503, 3), (500, 0), (504, 0), (503, 3600)] {
        let response = match retry_after {
            0 => InjectedResponse::code(code),
            seconds => InjectedResponse::retry_after(code, Duration::from_secs(seconds)),
        };
        run.faults().respond(RequestRule::any().verb(Verb::Watch).times(1), response);
        run.faults().end_watches();
        let watch_end = Instant::now();
        run.change("a", &format!("{code} {retry_after}"))?;
        let recovered_after = run.wait_for_recovery(&[&config_maps], watch_end, RECOVERY_TIMEOUT).await;
        let (min_seconds, max_seconds) = (retry_after.min(60), retry_after.min(60) * 11 / 10 + 1);
        run.checks.expect_within(
            &format!("the recovery from {code}"),
            recovered_after,
            Duration::from_secs(max_seconds),
        );
        let has_waited =
            recovered_after.is_some_and(|recovered_after| recovered_after >= Duration::from_secs(min_seconds));
        run.checks.expect(
            has_waited,
            format_args!("after {code} with a Retry-After of {retry_after} s, recovery took {recovered_after:?}"),
        );
        slowest = slowest.max(recovered_after);
    }
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, slowest))
}

async fn credentials_refused<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let token = "the-token-of-this-run";
    let server = ApiServer::builder().token(token);
    let mut run = ScenarioRun::start(&target, ScenarioSettings { server, ..ScenarioSettings::default() }).await?;
    run.create("a", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    let fault = run.mark_fault();
    run.faults().replace_tokens(&["the-token-of-others"]);
    run.faults().end_watches();
    let detection = wait_for_doubt(&[&config_maps], fault, RECOVERY_TIMEOUT).await;
    until(REACTION_TIMEOUT, || matches!(config_maps.informer.freshness(), Freshness::Failed(_))).await;
    sleep(Duration::from_secs(3)).await;
    let freshness = config_maps.informer.freshness().to_string();
    run.checks.expect_contains("the freshness", &freshness, &["failed", "401"]);
    run.checks.expect(!freshness.contains(token), "the freshness contains the token");
    run.change("a", "2")?;
    run.checks.expect_equal("readable objects", &config_maps.informer.snapshot().iter().count(), &1);
    run.faults().replace_tokens(&[token]);
    let recovery = run.wait_for_recovery(&[&config_maps], Instant::now(), RECOVERY_TIMEOUT).await;
    run.settle(&[&config_maps]).await;
    Ok(run.findings(detection, recovery))
}

async fn resource_refused<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "1")?;
    let started = run.mark_fault();
    run.faults().respond(RequestRule::any().resource("secrets"), InjectedResponse::Forbidden);
    let secrets = run.factory.informer::<Secret>(Scope::all())?;
    let widgets = run.factory.informer_with::<DynamicObject>(&widget(), Scope::all())?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    run.checks.expect_within("the sync of config maps", Some(started.elapsed()), REACTION_TIMEOUT);
    let error = run.factory.wait_for_sync(Duration::from_secs(3)).await.err().map(|error| error.to_string());
    let error = error.unwrap_or_default();
    let error_parts =
        ["secrets in all namespaces: failed", "403 Forbidden", "needs list and watch on secrets", "widgets", "404"];
    run.checks.expect_contains("the error of the wait", &error, &error_parts);
    run.checks.expect(!error.contains("configmaps"), "the error of the wait names config maps");
    let rejected_requests = run.server.requests().iter().filter(|request| request.code == Some(403)).count();
    run.checks.expect_at_most("requests for secrets in three seconds", rejected_requests, 10);

    define(&run.server, true)?;
    run.server.create(&json!({
        "apiVersion": "steadfast.test/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
    }))?;
    let sync_delay = until(RECOVERY_TIMEOUT, || has_object_count(&widgets, 1)).await;
    run.checks.expect_within("the sync of widgets", sync_delay, MAX_RETRY_INTERVAL);
    run.faults().clear_rules();
    let secrets_recovery = until(RECOVERY_TIMEOUT, || secrets.has_synced() && secrets.freshness().is_fresh()).await;
    // Each time is measured from its own start, because the second rejection ends after the first one.
    let recovery =
        secrets_recovery.zip(sync_delay).map(|(secrets_recovery, sync_delay)| secrets_recovery.max(sync_delay));

    run.server.delete_named("customresourcedefinitions", "", &format!("widgets.{GROUP}"))?;
    let removal_delay = until(REACTION_TIMEOUT, || widgets.snapshot().iter().count() == 0).await;
    run.checks.expect_within("the end of the widgets", removal_delay, REACTION_TIMEOUT);
    let failure_delay = until(REACTION_TIMEOUT, || matches!(widgets.freshness(), Freshness::Failed(_))).await;
    run.checks.expect_within("the failure of widgets", failure_delay, REACTION_TIMEOUT);
    let changed = Instant::now();
    run.change("a", "2")?;
    let change_recovery = run.wait_for_recovery(&[&config_maps], changed, REACTION_TIMEOUT).await;
    run.checks.expect_within("a concurrent change of a config map", change_recovery, REACTION_TIMEOUT);
    widgets.stop();
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, recovery))
}

async fn refused_by_verb<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let refusals = [InjectedResponse::Forbidden, InjectedResponse::code(405), InjectedResponse::code(500)];
    let runs = refusals.map(|response| without_watches::<K>(&target, response));
    let mut findings = futures::future::try_join_all(runs).await?.into_iter();
    let first = findings.next().ok_or("three servers have findings")?;
    Ok(findings.fold(first, ScenarioFindings::and))
}

async fn without_watches<K: CachedConfigMap>(
    target: &ScenarioTarget,
    response: InjectedResponse,
) -> Result<ScenarioFindings, TestkitError> {
    let reflector = ReflectorSettings { poll_every: Some(LIST_INTERVAL), ..ReflectorSettings::default() };
    let mut run = ScenarioRun::start(target, ScenarioSettings { reflector, ..ScenarioSettings::default() }).await?;
    ["a", "b"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    run.mark_fault();
    let rule = RequestRule::any().resource("configmaps").verb(Verb::StreamedList).verb(Verb::Watch);
    run.faults().respond(rule, response.clone());
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    let polling_reason = || match config_maps.informer.freshness() {
        Freshness::Fresh { polled: Some(polled), .. } => Some(polled.to_string()),
        _ => None,
    };
    let replacement_delay = until(RECOVERY_TIMEOUT, || polling_reason().is_some()).await;
    run.checks.expect_within(
        &format!("{response:?}: the replacement of the watch by lists"),
        replacement_delay,
        MAX_RETRY_INTERVAL * 2,
    );
    run.checks.expect_contains(
        "the freshness",
        &polling_reason().unwrap_or_default(),
        &["listed every 3 s without a watch"],
    );
    let changed = Instant::now();
    run.change("a", "2")?;
    run.delete("b")?;
    let recovery = run.wait_for_recovery(&[&config_maps], changed, RECOVERY_TIMEOUT).await;
    run.faults().clear_rules();
    let watch_return_delay =
        until(RECOVERY_TIMEOUT, || config_maps.informer.freshness().is_fresh() && polling_reason().is_none()).await;
    run.checks.expect_within(
        &format!("{response:?}: the return to a watch"),
        watch_return_delay,
        LIST_INTERVAL * 6 + MAX_RETRY_INTERVAL,
    );
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, recovery))
}

async fn permission_removed<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    ["a", "b"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    define(&run.server, true)?;
    run.server.create(&json!({
        "apiVersion": "steadfast.test/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
    }))?;
    let config_maps = run.watch::<K>(Scope::all())?;
    let widgets = run.factory.informer_with::<DynamicObject>(&widget(), Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    widgets.wait_for_sync(REACTION_TIMEOUT).await?;

    let fault = run.mark_fault();
    run.faults().respond(RequestRule::any().resource("configmaps"), InjectedResponse::Forbidden);
    define(&run.server, false)?;
    // A real server lets a watch run to its end, and rejects the next one.
    run.faults().end_watches();
    let detection = wait_for_doubt(&[&config_maps], fault, RECOVERY_TIMEOUT).await;
    run.delete("a")?;
    run.change("b", "2")?;
    sleep(Duration::from_secs(3)).await;
    for (resource_name, freshness) in
        [("config maps", config_maps.informer.freshness()), ("widgets", widgets.freshness())]
    {
        let has_failed = matches!(freshness, Freshness::Failed(_));
        run.checks.expect(has_failed, format_args!("the freshness of rejected {resource_name} is {freshness}"));
    }
    run.checks.expect_equal("readable config maps", &config_maps.informer.snapshot().iter().count(), &2);
    run.checks.expect(has_object_count(&widgets, 1), "the widget is missing");
    let events = config_maps.recording.descriptions("default/a");
    run.checks.expect_equal("events of the deleted object before its deletion could be known", &events.len(), &1);

    run.faults().clear_rules();
    define(&run.server, true)?;
    let fault_end = Instant::now();
    let recovery = run.wait_for_recovery(&[&config_maps], fault_end, RECOVERY_TIMEOUT).await;
    let sync_delay = until(RECOVERY_TIMEOUT, || widgets.freshness().is_fresh()).await.map(|_| fault_end.elapsed());
    run.checks.expect_within("the recovery of widgets", sync_delay, MAX_RETRY_INTERVAL);
    run.checks.expect(has_object_count(&widgets, 1), "the widget is missing");
    widgets.stop();
    run.settle(&[&config_maps]).await;
    Ok(run.findings(detection, recovery.max(sync_delay)))
}

const GROUP: &str = "steadfast.test";

fn widget() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", "Widget"))
}

/// Defines widgets, or stops serving their version.
fn define(api_server: &ApiServer, is_served: bool) -> Result<(), TestkitError> {
    let mut definition = widget_definition(GROUP);
    definition["spec"]["versions"][0]["served"] = is_served.into();
    let existing = api_server.get("customresourcedefinitions", "", &format!("widgets.{GROUP}"));
    match existing {
        Ok(existing) => {
            definition["metadata"]["resourceVersion"] =
                existing.pointer("/metadata/resourceVersion").cloned().unwrap_or(Value::Null);
            api_server.replace(&definition)?;
        }
        Err(_) => {
            api_server.create(&definition)?;
        }
    }
    Ok(())
}

/// Returns `true` if `informer` contains this number of objects, fresh or not.
fn has_object_count<K: Cacheable>(informer: &Informer<K>, objects: usize) -> bool {
    informer.snapshot().iter().count() == objects
}
