//! Lines in each format.

use kube::core::ApiResource;
use serde_json::json;
use steadfast::{Certainty, DeleteReason, Scope};

use super::*;
use crate::output_format::OutputFormat;
use crate::watch::owners::OwnerChain;
use crate::watch::watched::{Deletion, EventTime};

fn subject(kind: &str) -> Subject {
    let gvk = kube::core::GroupVersionKind::gvk("", "v1", kind);
    let plural = format!("{}s", kind.to_lowercase());
    let api_resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
    Subject::new(plural, api_resource, Scope::namespace("shop"))
}

fn pods() -> Subject {
    subject("Pod")
}

fn pod(phase: &str) -> Value {
    let metadata = json!({"namespace": "shop", "name": "web-0", "uid": "u-1", "resourceVersion": "12"});
    json!({"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": phase}})
}

fn added() -> DecodedEvent<'static> {
    DecodedEvent {
        name: "Added",
        old: None,
        object: pod("Running"),
        deletion: None,
        call: call(1),
        owners: OwnerChain::default(),
        time: EventTime::Now,
    }
}

fn deleted(certainty: Certainty, version: Option<&ResourceVersion>) -> DecodedEvent<'_> {
    let deletion = Deletion { version, certainty, reason: DeleteReason::Replaced };
    DecodedEvent { name: "Deleted", deletion: Some(deletion), ..added() }
}

fn update(old: Value, object: Value) -> DecodedEvent<'static> {
    DecodedEvent { name: "Updated", old: Some(old), object, ..added() }
}

fn updated() -> DecodedEvent<'static> {
    update(pod("Pending"), pod("Running"))
}

pub(super) fn json_style(full: bool) -> Style {
    Style { format: Format::Json { full }, content: Content::default() }
}

pub(super) fn plain_style() -> Style {
    let format =
        Format::Text { color: false, width: Width::Unlimited, clock: Clock::choose(true), extras: Extras::default() };
    Style { format, content: Content::default() }
}

fn line(style: &Style, event: &DecodedEvent<'_>) -> String {
    style.event(&pods(), event, None).text.expect("a line")
}

fn line_as_json(full: bool, event: &DecodedEvent<'_>) -> Value {
    serde_json::from_str(&line(&json_style(full), event)).expect("valid JSON")
}

/// Creates a call for `changes` changes.
fn call(changes: u64) -> Call {
    let mut call = Call::default();
    call.changes = changes;
    call
}

fn keys(line: &Value) -> Vec<&str> {
    line.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn json_line_has_documented_fields_only() {
    let added_line = line_as_json(false, &added());
    let common = ["changeCount", "name", "namespace", "resource", "resourceVersion", "time", "type", "uid"];
    assert_eq!(keys(&added_line), common);
    assert_eq!(
        (&added_line["type"], &added_line["uid"], &added_line["resourceVersion"], &added_line["changeCount"]),
        (&json!("Added"), &json!("u-1"), &json!("12"), &json!(1))
    );
    let updated = line_as_json(false, &updated());
    let mut expected = [&common[..], &["changes", "hidden"]].concat();
    expected.sort_unstable();
    assert_eq!(keys(&updated), expected);
    assert_eq!(updated["changes"], json!([{"path": "status.phase", "old": "Pending", "new": "Running"}]));
    assert_eq!(updated["hidden"], 0);
}

#[test]
fn deletion_line_has_certainty_and_reason() {
    let line = line_as_json(false, &deleted(Certainty::Observed, Some(&"15".into())));
    assert_eq!((&line["certainty"], &line["reason"]), (&json!("Observed"), &json!("Replaced")));
    assert_eq!(line["resourceVersion"], "15");
    assert_eq!(line_as_json(false, &deleted(Certainty::Inferred, None))["resourceVersion"], Value::Null);
}

#[test]
fn full_object_has_its_type() {
    let line = line_as_json(true, &added());
    assert_eq!(line["object"]["kind"], "Pod");
    assert_eq!(line["object"]["spec"]["nodeName"], "n");
}

#[test]
fn text_line_describes_event() {
    let style = plain_style();
    let update = line(&style, &updated());
    assert!(update.ends_with("Z ~ pods shop/web-0 phase Pending→Running on n"), "{update}");
    let deletion = line(&style, &deleted(Certainty::Inferred, None));
    assert!(deletion.ends_with("Z - pods shop/web-0 Running on n (inferred: replaced)"), "{deletion}");
    let added = style.event(&pods(), &added(), Some("recreated")).text.expect("a line");
    assert!(added.ends_with("Z + pods shop/web-0 Running on n (recreated)"), "{added}");
}

#[test]
fn extras_follow_the_description() {
    let mut style = plain_style();
    let Format::Text { extras, .. } = &mut style.format else { panic!("text") };
    *extras = Extras { state: true, diff: true, label_columns: vec!["app".to_owned()], all_labels: true };
    let mut event = updated();
    event.object["metadata"]["labels"] = json!({"tier": "front"});
    let line = line(&style, &event);
    let expected = "phase Pending→Running on n, label +tier=front [Running on n] app=<none>,tier=front\n    \
                    + metadata.labels:\n    +   tier: front\n    - status.phase: Pending\n    + status.phase: Running";
    assert!(line.ends_with(expected), "{line}");
}

#[test]
fn noise_has_no_text_line() {
    let object = |version: &str| json!({"metadata": {"name": "web-0", "uid": "u", "resourceVersion": version}});
    let event = update(object("1"), object("2"));
    let event_line = plain_style().event(&pods(), &event, None);
    assert_eq!((event_line.text, event_line.counted), (None, Counted::Hidden));
    let verbose = Style { content: Content { noise: true, ..Content::default() }, ..plain_style() };
    assert!(line(&verbose, &event).ends_with("~ pods web-0 metadata.resourceVersion 1→2"));
    let line = line_as_json(false, &event);
    assert_eq!((&line["changes"], &line["hidden"]), (&json!([]), &json!(1)));
}

#[test]
fn merged_changes_are_marked() {
    assert!(
        line(&plain_style(), &DecodedEvent { call: call(3), ..updated() })
            .ends_with(" phase Pending→Running on n (3 changes)")
    );
    let deletion = line(&plain_style(), &DecodedEvent { call: call(2), ..deleted(Certainty::Observed, None) });
    assert!(deletion.ends_with("(observed: replaced; 2 changes)"), "{deletion}");
    let json = line_as_json(false, &DecodedEvent { call: call(3), ..updated() });
    assert_eq!((&json["changeCount"], json.get("missed")), (&json!(3), None));
}

#[test]
fn merged_events_are_reported_and_counted() {
    let mut call = call(1);
    assert_eq!(plain_style().missed(&pods(), call), None);
    call.missed = 4;
    let warning = plain_style().missed(&pods(), call).expect("a warning");
    assert!(warning.ends_with("Z ! pods: 4 events merged: they came faster than they could be written"), "{warning}");
    assert_eq!(json_style(false).missed(&pods(), call), None);
    let json = line_as_json(false, &DecodedEvent { call, ..added() });
    assert_eq!((&json["changeCount"], &json["missed"]), (&json!(1), &json!(4)));
}

#[test]
fn secret_values_are_hidden_in_every_format() {
    let subject = subject("Secret");
    let secret = |value: &str| {
        let applied = json!({"data": {"password": value}}).to_string();
        let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
        // The label repeats the value.
        let labels = json!({"leak": value});
        let metadata =
            json!({"namespace": "shop", "name": "db", "uid": "u", "annotations": annotations, "labels": labels});
        json!({"metadata": metadata, "data": {"password": value}})
    };
    let event = update(secret("cGxhbnRlZDE="), secret("cGxhbnRlZDI="));
    let text = |extras: Extras| Style {
        format: Format::Text { color: false, width: Width::Unlimited, clock: Clock::choose(true), extras },
        content: Content::default(),
    };
    let label_columns = vec!["leak".to_owned()];
    let extras = Extras { state: true, diff: true, label_columns, all_labels: true };
    let objects = |format: &str| {
        let format = match format.parse() {
            Ok(OutputFormat::JsonPath(path)) => ObjectFormat::JsonPath(path),
            Ok(OutputFormat::CustomColumns(columns)) => ObjectFormat::CustomColumns(columns),
            _ => ObjectFormat::Yaml,
        };
        Style { format: Format::Objects { format, clock: Clock::choose(true) }, content: Content::default() }
    };
    let (path, columns) = ("jsonpath={.data} {.metadata}", "custom-columns=D:.data,M:.metadata");
    for style in [
        plain_style(),
        text(extras),
        json_style(true),
        json_style(false),
        objects("yaml"),
        objects(path),
        objects(columns),
    ] {
        let line = style.event(&subject, &event, None).text.expect("a line");
        assert!(line.contains("password") && !line.contains("cGxhbnRlZD"), "{line}");
        let with_secrets = Style { content: Content { secrets: true, ..Content::default() }, ..style };
        let line = with_secrets.event(&subject, &event, None).text.expect("a line");
        assert!(line.contains("cGxhbnRlZDI="), "{line}");
    }
}

#[test]
fn freshness_line_is_json_only() {
    let stale = Transition { state: "Stale", reason: Some("reset".to_owned()), doubt_seconds: 1.23456 };
    assert_eq!(plain_style().freshness(&pods(), &stale, None), None);
    let line = json_style(false).freshness(&pods(), &stale, None).expect("a line");
    let line: Value = serde_json::from_str(&line).expect("valid JSON");
    assert_eq!(keys(&line), ["doubtSeconds", "namespace", "reason", "resource", "state", "time", "type"]);
    assert_eq!(
        (&line["type"], &line["state"], &line["reason"]),
        (&json!("Freshness"), &json!("Stale"), &json!("reset"))
    );
    assert_eq!((&line["namespace"], &line["doubtSeconds"]), (&json!("shop"), &json!(1.235)));
    let fresh = Transition { state: "Fresh", reason: None, doubt_seconds: 2.0 };
    let missed = Counts { added: 3, deleted: 1, changed: 12, hidden: 2 };
    let line = json_style(false).freshness(&pods(), &fresh, Some(missed)).expect("a line");
    let line: Value = serde_json::from_str(&line).expect("valid JSON");
    assert_eq!(line["whileDisconnected"], json!({"added": 3, "deleted": 1, "changed": 12}));
}
