//! Rejections: servers that ask clients to retry later, revoked credentials and permissions, and missing resources.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use steadfast::{Freshness, Informer, Kept, ReflectorSettings, Scope};
use steadfast_apiserver::{Answer, ApiServer, RequestRule, Verb};
use tokio::time::{Instant, sleep};

use crate::Held;
use crate::menu::fault::Fault;
use crate::menu::findings::Findings;
use crate::menu::ground::Ground;
use crate::menu::plan::Plan;
use crate::menu::scenario::{Bounds, Scenario, Source, Trouble, in_form};
use crate::menu::stage::{PROMPT, Stage, doubt, until};
use crate::widget_definition;

/// Timeout that is longer than any recovery in these scenarios.
const LONG: Duration = Duration::from_secs(90);
/// Maximum time between two attempts (R6), including the round trip.
const BETWEEN: Duration = Duration::from_secs(9);

/// Interval of the lists that replace a watch.
const POLL: Duration = Duration::from_secs(3);

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "server-busy",
        faults: &[Fault::ServerBusy],
        source: Source::Menu,
        summary: "The server responds to watches with 429 and 503 with Retry-After, with 500 and with 504, and once \
                with a Retry-After of an hour. The informer honours each delay, up to a minute, and does not list.",
        clauses: "R4, R6, R11",
        bounds: Bounds::NONE.recover(67).lists(0),
        seconds: 75,
        play: in_form!(server_busy),
    },
    Scenario {
        name: "credentials-refused",
        faults: &[Fault::CredentialsRotated],
        source: Source::Menu,
        summary: "After some time the server responds 401 to the only token. The cache is failed, names the cause \
                without the token, and stays readable. It resumes without a list when the server accepts the token \
                again.",
        clauses: "C2, C10, R4, R6",
        bounds: Bounds::NONE.notice(2).recover(9).lists(0),
        seconds: 15,
        play: in_form!(credentials_refused),
    },
    Scenario {
        name: "resource-refused",
        faults: &[Fault::ResourceRefused],
        source: Source::Menu,
        summary: "Secrets are forbidden. Widgets are first undefined, then defined, then removed with all their \
                objects. Config maps are not affected, the missing resources are named, and widgets follow their \
                definition.",
        clauses: "C2, C9, R6, R7",
        bounds: Bounds::NONE.recover(9),
        seconds: 25,
        play: in_form!(resource_refused),
    },
    Scenario {
        name: "refused-by-verb",
        faults: &[Fault::ResourceRefused],
        source: Source::Menu,
        summary: "Three servers serve lists, but reject streamed lists and watches as forbidden, with 405 or with \
                500. The informer polls by lists instead, here every 3 s, and reports this with the reason. A \
                deletion is delivered with the next list. The watch resumes when the server allows it.",
        clauses: "C2, C9, C10, R3, R6",
        bounds: Bounds::NONE.recover(9).lists(36),
        seconds: 45,
        play: in_form!(refused_by_verb),
    },
    Scenario {
        name: "permission-removed",
        faults: &[Fault::PermissionRemoved],
        source: Source::Menu,
        summary: "Permission to read config maps is removed before the objects, and so is the served version of \
                widgets. 403 and 404 imply no deletion: both caches are failed and stay readable. Deletions in the \
                meantime are delivered when the resources are served again.",
        clauses: "C2, C10, R7",
        bounds: Bounds::NONE.notice(2).recover(9).lists(2),
        seconds: 20,
        play: in_form!(permission_removed),
    },
];

async fn server_busy<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    stage.create("a", "0")?;
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    stage.fault();
    let mut slowest = None;
    for (code, asked) in [(429, 3), (503, 3), (500, 0), (504, 0), (503, 3600)] {
        let response = match asked {
            0 => Answer::code(code),
            seconds => Answer::retry_after(code, Duration::from_secs(seconds)),
        };
        stage.faults().answer_with(RequestRule::any().verb(Verb::Watch).times(1), response);
        stage.faults().end_watches();
        let ended = Instant::now();
        stage.change("a", &format!("{code} {asked}"))?;
        let back = stage.recovery(&[&config_maps], ended, LONG).await;
        let (least, most) = (asked.min(60), asked.min(60) * 11 / 10 + 1);
        stage.checks.within(&format!("the recovery from {code}"), back, Duration::from_secs(most));
        let patient = back.is_some_and(|back| back >= Duration::from_secs(least));
        stage
            .checks
            .expect(patient, format_args!("after {code} with a Retry-After of {asked} s, recovery took {back:?}"));
        slowest = slowest.max(back);
    }
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(None, slowest))
}

async fn credentials_refused<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let token = "the-token-of-this-run";
    let server = ApiServer::builder().token(token);
    let mut stage = Stage::set(&ground, Plan { server, ..Plan::default() }).await?;
    stage.create("a", "1")?;
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    let fault = stage.fault();
    stage.faults().replace_tokens(&["the-token-of-others"]);
    stage.faults().end_watches();
    let notice = doubt(&[&config_maps], fault, LONG).await;
    until(PROMPT, || matches!(config_maps.informer.freshness(), Freshness::Failed(_))).await;
    sleep(Duration::from_secs(3)).await;
    let told = config_maps.informer.freshness().to_string();
    stage.checks.says("the freshness", &told, &["failed", "401"]);
    stage.checks.expect(!told.contains(token), "the freshness contains the token");
    stage.change("a", "2")?;
    stage.checks.same("readable objects", &config_maps.informer.snapshot().iter().count(), &1);
    stage.faults().replace_tokens(&[token]);
    let recover = stage.recovery(&[&config_maps], Instant::now(), LONG).await;
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(notice, recover))
}

async fn resource_refused<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    stage.create("a", "1")?;
    let started = stage.fault();
    stage.faults().answer_with(RequestRule::any().resource("secrets"), Answer::Forbidden);
    let secrets = stage.factory.informer::<Secret>(Scope::all())?;
    let widgets = stage.factory.informer_with::<DynamicObject>(&widget(), Scope::all())?;
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    stage.checks.within("the sync of config maps", Some(started.elapsed()), PROMPT);
    let told = stage.factory.wait_for_sync(Duration::from_secs(3)).await.err().map(|error| error.to_string());
    let told = told.unwrap_or_default();
    let parts =
        ["secrets in all namespaces: failed", "403 Forbidden", "needs list and watch on secrets", "widgets", "404"];
    stage.checks.says("the error of the wait", &told, &parts);
    stage.checks.expect(!told.contains("configmaps"), "the error of the wait names config maps");
    let asked = stage.server.requests().iter().filter(|request| request.code == Some(403)).count();
    stage.checks.at_most("requests for secrets in three seconds", asked, 10);

    define(&stage.server, true)?;
    stage.server.create(&json!({
        "apiVersion": "steadfast.test/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
    }))?;
    let served = until(LONG, || holds(&widgets, 1)).await;
    stage.checks.within("the sync of widgets", served, BETWEEN);
    stage.faults().answer_truly();
    let allowed = until(LONG, || secrets.has_synced() && secrets.freshness().is_fresh()).await;
    // Each time is measured from its own start, because the second rejection ends after the first.
    let recover = allowed.zip(served).map(|(allowed, served)| allowed.max(served));

    stage.server.delete_named("customresourcedefinitions", "", &format!("widgets.{GROUP}"))?;
    let emptied = until(PROMPT, || widgets.snapshot().iter().count() == 0).await;
    stage.checks.within("the end of the widgets", emptied, PROMPT);
    let failed = until(PROMPT, || matches!(widgets.freshness(), Freshness::Failed(_))).await;
    stage.checks.within("the failure of widgets", failed, PROMPT);
    let changed = Instant::now();
    stage.change("a", "2")?;
    let seen = stage.recovery(&[&config_maps], changed, PROMPT).await;
    stage.checks.within("a concurrent change of a config map", seen, PROMPT);
    widgets.stop();
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(None, recover))
}

async fn refused_by_verb<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let refusals = [Answer::Forbidden, Answer::code(405), Answer::code(500)];
    let played = refusals.map(|response| without_watches::<K>(&ground, response));
    let mut findings = futures::future::try_join_all(played).await?.into_iter();
    let first = findings.next().ok_or("three servers have findings")?;
    Ok(findings.fold(first, Findings::and))
}

async fn without_watches<K: Held>(ground: &Ground, response: Answer) -> Result<Findings, Trouble> {
    let reflector = ReflectorSettings { poll_every: Some(POLL), ..ReflectorSettings::default() };
    let mut stage = Stage::set(ground, Plan { reflector, ..Plan::default() }).await?;
    ["a", "b"].into_iter().try_for_each(|name| stage.create(name, "1"))?;
    stage.fault();
    let rule = RequestRule::any().resource("configmaps").verb(Verb::StreamedList).verb(Verb::Watch);
    stage.faults().answer_with(rule, response.clone());
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    let polled = || match config_maps.informer.freshness() {
        Freshness::Fresh { polled: Some(polled), .. } => Some(polled.to_string()),
        _ => None,
    };
    let told = until(LONG, || polled().is_some()).await;
    stage.checks.within(&format!("{response:?}: the replacement of the watch by lists"), told, BETWEEN * 2);
    stage.checks.says("the freshness", &polled().unwrap_or_default(), &["listed every 3 s for want of a watch"]);
    let changed = Instant::now();
    stage.change("a", "2")?;
    stage.delete("b")?;
    let recover = stage.recovery(&[&config_maps], changed, LONG).await;
    stage.faults().answer_truly();
    let watched = until(LONG, || config_maps.informer.freshness().is_fresh() && polled().is_none()).await;
    stage.checks.within(&format!("{response:?}: the return to a watch"), watched, POLL * 6 + BETWEEN);
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(None, recover))
}

async fn permission_removed<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    ["a", "b"].into_iter().try_for_each(|name| stage.create(name, "1"))?;
    define(&stage.server, true)?;
    stage.server.create(&json!({
        "apiVersion": "steadfast.test/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"},
    }))?;
    let config_maps = stage.watch::<K>(Scope::all())?;
    let widgets = stage.factory.informer_with::<DynamicObject>(&widget(), Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    widgets.wait_for_sync(PROMPT).await?;

    let fault = stage.fault();
    stage.faults().answer_with(RequestRule::any().resource("configmaps"), Answer::Forbidden);
    define(&stage.server, false)?;
    // A real server lets a watch run to its end, and rejects the next one.
    stage.faults().end_watches();
    let notice = doubt(&[&config_maps], fault, LONG).await;
    stage.delete("a")?;
    stage.change("b", "2")?;
    sleep(Duration::from_secs(3)).await;
    for (what, told) in [("config maps", config_maps.informer.freshness()), ("widgets", widgets.freshness())] {
        let failed = matches!(told, Freshness::Failed(_));
        stage.checks.expect(failed, format_args!("the freshness of rejected {what} is {told}"));
    }
    stage.checks.same("readable config maps", &config_maps.informer.snapshot().iter().count(), &2);
    stage.checks.expect(holds(&widgets, 1), "the widget is missing");
    let told = config_maps.recording.in_words("default/a");
    stage.checks.same("events of the deleted object before its deletion could be known", &told.len(), &1);

    stage.faults().answer_truly();
    define(&stage.server, true)?;
    let healed = Instant::now();
    let recover = stage.recovery(&[&config_maps], healed, LONG).await;
    let served = until(LONG, || widgets.freshness().is_fresh()).await.map(|_| healed.elapsed());
    stage.checks.within("the recovery of widgets", served, BETWEEN);
    stage.checks.expect(holds(&widgets, 1), "the widget is missing");
    widgets.stop();
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(notice, recover.max(served)))
}

const GROUP: &str = "steadfast.test";

fn widget() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", "Widget"))
}

/// Defines widgets, or stops serving their version.
fn define(api_server: &ApiServer, served: bool) -> Result<(), Trouble> {
    let mut definition = widget_definition(GROUP);
    definition["spec"]["versions"][0]["served"] = served.into();
    let known = api_server.get("customresourcedefinitions", "", &format!("widgets.{GROUP}"));
    match known {
        Ok(known) => {
            definition["metadata"]["resourceVersion"] =
                known.pointer("/metadata/resourceVersion").cloned().unwrap_or(Value::Null);
            api_server.replace(&definition)?;
        }
        Err(_) => {
            api_server.create(&definition)?;
        }
    }
    Ok(())
}

/// Returns `true` if `informer` contains this number of objects, fresh or not.
fn holds<K: Kept>(informer: &Informer<K>, objects: usize) -> bool {
    informer.snapshot().iter().count() == objects
}
