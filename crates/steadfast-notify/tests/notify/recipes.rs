//! The recipes of `docs/notify-recipes.md`, each run against a receiver with the behaviour of the real service.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use steadfast_notify::change::{EventSubject, ObjectChange, ObjectState};
use steadfast_notify::config::EventKind;
use steadfast_notify::sink::MessageSink;
use steadfast_notify::sink::stdout::JsonLines;
use steadfast_notify::{Engine, Plan};

use crate::folder::Folder;
use crate::receiver::{ReceivedRequest, Receiver, Reply};

/// Returns the configuration of a recipe, verbatim from the page.
fn recipe(name: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/notify-recipes.md");
    let page = std::fs::read_to_string(page).expect("the page of recipes");
    let (_, rest) = page.split_once(&format!("```toml {name}\n")).unwrap_or_else(|| panic!("no recipe {name}"));
    rest.split_once("\n```").expect("an end").0.to_owned()
}

/// A recipe in operation, with the address of the test receiver instead of the real address.
struct Fixture {
    engine: Engine,
    receiver: Receiver,
    rule: String,
    sink: String,
    folder: Folder,
}

impl Fixture {
    /// Starts the recipe `name`. `service_url` is the URL in the recipe, or the name of the file with the URL.
    async fn start(name: &str, service_url: &str, path: &str, secrets: &[(&str, &str)], receiver: Receiver) -> Self {
        let folder = Folder::new(&format!("recipe-{name}"));
        let url = receiver.url(path);
        let mut text = recipe(name);
        if service_url.starts_with("http") {
            assert!(text.contains(service_url), "{name}");
            text = text.replace(service_url, &url);
        } else {
            std::fs::write(folder.join(service_url), &url).expect("enough space");
        }
        for (file, secret) in secrets {
            std::fs::write(folder.join(file), secret).expect("enough space");
        }
        let plan =
            Plan::read(&folder.join("x.toml").display().to_string(), &text).unwrap_or_else(|reason| panic!("{reason}"));
        let stdout: Arc<dyn MessageSink> = Arc::new(JsonLines::new(std::io::sink(), |_| {}));
        let streams = plan.open(&stdout).await.unwrap_or_else(|reason| panic!("{reason}"));
        let rule = plan.rules[0].config.name.clone();
        let sink = plan.rules[0].config.to[0].clone();
        let engine = Engine::start(&plan, streams, 7, |_| {});
        Self { engine, receiver, rule, sink, folder }
    }

    async fn accept_status(&self, name: &str, kind: EventKind, status: Value) {
        let object = json!({"apiVersion": "v1", "metadata": {"name": name, "namespace": "shop"}, "status": status});
        let state = Some(ObjectState::new(object));
        let subject = EventSubject {
            cluster: "east".to_owned(),
            resource: "pods".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
        };
        let id = format!("uid-of-{name}@{status}{}", kind.name());
        let at = "2026-01-02T03:04:05.5Z".parse().unwrap_or(Timestamp::UNIX_EPOCH);
        let change = ObjectChange {
            old: match kind {
                EventKind::Added => None,
                EventKind::Updated => {
                    Some(ObjectState::new(json!({"apiVersion": "v1", "metadata": {"name": name}, "status": {}})))
                }
                EventKind::Deleted => state.clone(),
            },
            new: state.filter(|_| kind != EventKind::Deleted),
            ..ObjectChange::new(id, kind, subject, at)
        };
        self.engine.accept(&self.rule, &self.sink, Arc::new(change), || {}).await;
    }

    /// Waits until all messages are settled. Returns the requests, and the reasons of dead letters.
    async fn settle(&self) -> (Vec<ReceivedRequest>, Vec<String>) {
        assert_eq!(self.engine.drain(Duration::from_secs(30)).await, 0, "{:?}", self.engine.stats());
        let text = std::fs::read_to_string(self.folder.join("dead-letters.ndjson")).unwrap_or_default();
        let letters = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        (self.receiver.take(), letters.map(|letter| letter["why"].to_string()).collect())
    }
}

/// Rejects the first request with 429, like the burst limits of these receivers.
fn limit_first_request(number: usize, reply: Reply) -> Reply {
    if number == 0 { (429, Some(("retry-after", "1".to_owned())), "rate_limited".to_owned()) } else { reply }
}

fn slack_reply(request: &ReceivedRequest) -> Reply {
    if request.path != "/services/T00/B00/token" {
        return (404, None, "no_service".to_owned());
    }
    if !request.header("content-type").starts_with("application/json") || request.json().is_null() {
        return (400, None, "invalid_payload".to_owned());
    }
    match request.json()["text"].as_str() {
        None | Some("") => (400, None, "no_text".to_owned()),
        Some(text) if text.contains(['<', '>']) => (400, None, "invalid_payload".to_owned()),
        Some(_) => (200, None, "ok".to_owned()),
    }
}

#[tokio::test]
async fn slack_gets_its_text() {
    let receiver = Receiver::start(|request, number| limit_first_request(number, slack_reply(request))).await;
    let fixture = Fixture::start("slack", "slack-url", "/services/T00/B00/token", &[], receiver).await;
    fixture.accept_status("web", EventKind::Updated, json!({"phase": "Failed", "reason": "<Evicted> & gone"})).await;
    fixture.accept_status("other", EventKind::Updated, json!({"phase": "Running"})).await;
    let (requests, letters) = fixture.settle().await;
    assert_eq!((requests.len(), letters.len()), (2, 0), "once after the rate limit: {letters:?}");
    let text = "Pod shop/web failed: &lt;Evicted&gt; &amp; gone";
    assert_eq!((requests[1].method.as_str(), requests[1].json()), ("POST", json!({"text": text})));

    // Replaces the webhook URL, as after a leak.
    std::fs::write(fixture.folder.join("slack-url"), fixture.receiver.url("/services/T00/B00/other"))
        .expect("enough space");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    fixture.accept_status("web-2", EventKind::Added, json!({"phase": "Failed"})).await;
    let (_, letters) = fixture.settle().await;
    assert_eq!(letters, ["\"the server returned 404 Not Found: no_service\""]);
}

fn teams_reply(request: &ReceivedRequest) -> Reply {
    if !request.path.ends_with("&sig=signature") {
        return (401, None, json!({"error": {"code": "DirectApiAuthorizationRequired"}}).to_string());
    }
    let card = request.json();
    let content = &card["attachments"][0]["content"];
    let is_card = card["type"] == "message"
        && card["attachments"][0]["contentType"] == "application/vnd.microsoft.card.adaptive"
        && content["type"] == "AdaptiveCard"
        && content["version"].is_string()
        && content["body"].as_array().is_some_and(|blocks| blocks.iter().all(|block| block["text"].is_string()));
    if is_card {
        (202, None, String::new())
    } else {
        (400, None, json!({"error": {"code": "TriggerInputSchemaMismatch"}}).to_string())
    }
}

#[tokio::test]
async fn teams_gets_a_card() {
    let receiver = Receiver::start(|request, number| limit_first_request(number, teams_reply(request))).await;
    let path = "/workflows/1/triggers/manual/paths/invoke?api-version=1&sig=signature";
    let fixture = Fixture::start("teams", "teams-url", path, &[], receiver).await;
    fixture.accept_status("web", EventKind::Added, json!({"phase": "Failed"})).await;
    let (requests, letters) = fixture.settle().await;
    assert_eq!((requests.len(), letters.len()), (2, 0), "{letters:?}");
    let blocks = requests[1].json()["attachments"][0]["content"]["body"].clone();
    assert_eq!((&blocks[0]["text"], &blocks[1]["text"]), (&json!("Pod failed: web"), &json!("shop in east")));
}

fn pagerduty_reply(request: &ReceivedRequest) -> Reply {
    let event = request.json();
    let invalid = |what: &str| {
        let body = json!({"status": "invalid event", "message": "Event object is invalid", "errors": [what]});
        (400, None, body.to_string())
    };
    if event["routing_key"].as_str().is_none_or(|key| key.len() != 32) {
        return invalid("'routing_key' is missing or invalid");
    }
    let action = event["event_action"].as_str().unwrap_or_default();
    if !["trigger", "acknowledge", "resolve"].contains(&action) {
        return invalid("'event_action' is missing or invalid");
    }
    if action == "trigger" {
        for field in ["summary", "source", "severity"] {
            if event["payload"][field].as_str().is_none_or(str::is_empty) {
                return invalid("a field of 'payload' is missing or blank");
            }
        }
        if !["critical", "error", "warning", "info"]
            .contains(&event["payload"]["severity"].as_str().unwrap_or_default())
        {
            return invalid("'payload.severity' is invalid");
        }
        if event["payload"]["timestamp"].as_str().is_none_or(|time| time.parse::<Timestamp>().is_err()) {
            return invalid("'payload.timestamp' is invalid");
        }
    } else if event["dedup_key"].as_str().is_none_or(str::is_empty) {
        return invalid("'dedup_key' is missing");
    }
    let body = json!({"status": "success", "message": "Event processed", "dedup_key": event["dedup_key"]});
    (202, None, body.to_string())
}

const ROUTING_KEY: &str = "0123456789abcdef0123456789abcdef";

#[tokio::test]
async fn pagerduty_triggers_and_resolves() {
    let receiver = Receiver::start(|request, number| limit_first_request(number, pagerduty_reply(request))).await;
    let secrets = [("pagerduty-routing-key", ROUTING_KEY)];
    let service_url = "https://events.pagerduty.com/v2/enqueue";
    let fixture = Fixture::start("pagerduty", service_url, "/v2/enqueue", &secrets, receiver).await;
    fixture.accept_status("web", EventKind::Updated, json!({"unavailableReplicas": 1})).await;
    fixture.accept_status("web", EventKind::Updated, json!({"unavailableReplicas": 2})).await;
    fixture.accept_status("web", EventKind::Updated, json!({})).await;
    fixture.accept_status("gone", EventKind::Deleted, json!({"unavailableReplicas": 1})).await;
    let (requests, letters) = fixture.settle().await;
    assert_eq!(letters, Vec::<String>::new());
    let mut accepted: Vec<(Value, Value)> = requests[1..]
        .iter()
        .map(|request| (request.json()["dedup_key"].clone(), request.json()["event_action"].clone()))
        .filter(|(key, _)| key == "east/shop/web")
        .collect();
    accepted.dedup();
    assert_eq!(
        accepted.iter().map(|(_, action)| action.as_str()).collect::<Vec<_>>(),
        [Some("trigger"), Some("resolve")]
    );
    assert!(requests.iter().any(|request| request.json()["dedup_key"] == "east/shop/gone"));

    // Invalid routing key: the reason names the field and hides the key.
    std::fs::write(fixture.folder.join("pagerduty-routing-key"), "short-key").expect("enough space");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    fixture.accept_status("web", EventKind::Updated, json!({"unavailableReplicas": 1})).await;
    let (_, letters) = fixture.settle().await;
    assert!(letters[0].contains("400 Bad Request") && letters[0].contains("'routing_key' is missing"), "{letters:?}");
    assert!(!letters[0].contains("short-key"), "{letters:?}");
}

fn alertmanager_reply(request: &ReceivedRequest) -> Reply {
    let bad = |what: &str| (400, None, json!(what).to_string());
    let time = |value: &Value| value.as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let Some(alerts) = request.json().as_array().cloned() else { return bad("parsing alerts body failed") };
    for alert in alerts {
        let labels = alert["labels"].as_object().cloned().unwrap_or_default();
        if !labels.get("alertname").is_some_and(Value::is_string) || !labels.values().all(Value::is_string) {
            return bad("at least one label pair required");
        }
        let (Some(starts), Some(ends)) = (time(&alert["startsAt"]), time(&alert["endsAt"])) else {
            return bad("invalid time");
        };
        if ends < starts {
            return bad("start time must be before end time");
        }
    }
    (200, None, String::new())
}

#[tokio::test]
async fn alertmanager_fires_until_the_object_is_well() {
    let receiver = Receiver::start(|request, number| match number {
        // Alertmanager sets no rate limit; during its restart a proxy returns 503.
        0 => (503, None, String::new()),
        _ => alertmanager_reply(request),
    })
    .await;
    let service_url = "http://alertmanager.monitoring.svc:9093/api/v2/alerts";
    let fixture = Fixture::start("alertmanager", service_url, "/api/v2/alerts", &[], receiver).await;
    fixture.accept_status("web", EventKind::Updated, json!({"unavailableReplicas": 1})).await;
    fixture.accept_status("web", EventKind::Updated, json!({"unavailableReplicas": 0})).await;
    let (requests, letters) = fixture.settle().await;
    assert_eq!((requests.len(), letters.len()), (3, 0), "{letters:?}");
    let (fires, ends) = (requests[1].json()[0].clone(), requests[2].json()[0].clone());
    assert_eq!(fires["labels"], ends["labels"], "the same alert");
    assert_eq!((&fires["endsAt"], &ends["endsAt"]), (&json!("2100-01-01T00:00:00Z"), &json!("2026-01-02T03:04:05.5Z")));
}

fn loki_reply(request: &ReceivedRequest) -> Reply {
    if !request.header("content-type").starts_with("application/json") {
        return (415, None, "unsupported media type".to_owned());
    }
    let body = request.json();
    for stream in body["streams"].as_array().into_iter().flatten() {
        let has_labels = stream["stream"]
            .as_object()
            .is_some_and(|labels| !labels.is_empty() && labels.values().all(Value::is_string));
        let has_lines = stream["values"].as_array().is_some_and(|lines| {
            lines.iter().all(|line| line[0].as_str().is_some_and(|at| at.parse::<i64>().is_ok()) && line[1].is_string())
        });
        if !has_labels || !has_lines {
            return (400, None, "error parsing labels or values\n".to_owned());
        }
    }
    if body["streams"].is_array() { (204, None, String::new()) } else { (400, None, "no streams\n".to_owned()) }
}

#[tokio::test]
async fn loki_gets_lines_in_batches() {
    let receiver = Receiver::start(|request, number| match number {
        // Loki's response has no `Retry-After` header.
        0 => (429, None, "Ingestion rate limit exceeded for user fake".to_owned()),
        _ => loki_reply(request),
    })
    .await;
    let service_url = "http://loki.monitoring.svc:3100/loki/api/v1/push";
    let fixture = Fixture::start("loki", service_url, "/loki/api/v1/push", &[], receiver).await;
    for number in 0..50 {
        fixture.accept_status(&format!("pod-{number}"), EventKind::Added, json!({"phase": "Running"})).await;
    }
    let (requests, letters) = fixture.settle().await;
    assert_eq!(letters, Vec::<String>::new());
    let mut lines: Vec<String> = Vec::new();
    for request in requests.iter().filter(|request| loki_reply(request).0 == 204).skip(1) {
        for stream in request.json()["streams"].as_array().into_iter().flatten() {
            assert_eq!(stream["values"][0][0], "1767323045500000000");
            lines.push(stream["values"][0][1].as_str().unwrap_or_default().to_owned());
        }
    }
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 50);
    assert!(lines.contains(&"Added shop/pod-7 Running".to_owned()), "{lines:?}");
    assert!(requests.len() < 20, "{} requests for 50 lines", requests.len());
}
