//! Formats of one event, or one change of freshness, as a line of text or JSON.

use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject, TypeMeta};
use serde::Serialize;
use steadfast::{Call, Certainty, DeleteReason, Event, ResourceVersion, Scope};

use crate::clock::{Clock, precise};

/// Format of lines.
#[derive(Clone, Debug)]
pub(crate) enum Style {
    /// Text for people.
    Text {
        /// Enables colours.
        color: bool,
        /// Time zone of the times.
        clock: Clock,
    },
    /// One JSON object per line.
    Json {
        /// Includes the whole object.
        full: bool,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonLine<'a> {
    time: String,
    #[serde(rename = "type")]
    kind: &'static str,
    resource: &'a str,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    uid: Option<&'a str>,
    resource_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certainty: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<DynamicObject>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FreshnessLine<'a> {
    time: String,
    #[serde(rename = "type")]
    kind: &'static str,
    resource: &'a str,
    namespace: Option<&'a str>,
    state: &'a str,
    why: Option<&'a str>,
    doubt_seconds: f64,
}

/// The watched resource and its name in the output lines.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The resource with its group: `deployments.apps`.
    pub(crate) name: String,
    pub(crate) api_resource: ApiResource,
    pub(crate) scope: Scope,
}

/// Change of a cache's freshness.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Transition {
    /// The new state.
    pub(crate) state: &'static str,
    /// Reason of the doubt; `None` if the cache is fresh again.
    pub(crate) why: Option<String>,
    /// Duration of the doubt until now or until its end, in seconds.
    pub(crate) doubt_seconds: f64,
}

impl Style {
    /// Formats `event`, delivered by `call`, with the current time.
    pub(crate) fn event(&self, subject: &Subject, event: &Event<DynamicObject>, call: Call) -> String {
        let now = Timestamp::now();
        match self {
            Self::Json { full } => json(now, *full, subject, event, call),
            Self::Text { color, clock } => text(&clock.of_day(now), *color, &subject.name, event, call.changes),
        }
    }

    /// Returns a warning for standard error if events before this one were merged because output was too slow.
    pub(crate) fn missed(&self, subject: &Subject, call: Call) -> Option<String> {
        match self {
            Self::Text { clock, .. } if call.missed > 0 => {
                let (clock, resource, missed) = (clock.of_day(Timestamp::now()), &subject.name, call.missed);
                Some(format!(
                    "{clock} ! {resource}: {missed} events merged: they came faster than they could be written"
                ))
            }
            _ => None,
        }
    }

    /// Formats the line after the initial objects.
    pub(crate) fn synced(&self, subject: &Subject, version: Option<&ResourceVersion>, objects: usize) -> String {
        let now = Timestamp::now();
        match self {
            Self::Json { .. } => encoded(&JsonLine {
                time: precise(now),
                kind: "Synced",
                resource: &subject.name,
                namespace: subject.scope.in_namespace(),
                name: None,
                uid: None,
                resource_version: version.map(ResourceVersion::as_str),
                changes: None,
                missed: None,
                certainty: None,
                reason: None,
                object: None,
            }),
            Self::Text { clock, .. } => {
                let at = version.map(|version| format!(" at {version}")).unwrap_or_default();
                let (clock, Subject { name, scope, .. }) = (clock.of_day(now), subject);
                format!("{clock} = {name} synced{at}: {objects} in {scope}")
            }
        }
    }

    /// Formats a change of freshness as a line among the events. Returns `None` for text, since people read standard
    /// error.
    pub(crate) fn freshness(&self, subject: &Subject, became: &Transition) -> Option<String> {
        match self {
            Self::Text { .. } => None,
            Self::Json { .. } => Some(encoded(&FreshnessLine {
                time: precise(Timestamp::now()),
                kind: "Freshness",
                resource: &subject.name,
                namespace: subject.scope.in_namespace(),
                state: became.state,
                why: became.why.as_deref(),
                // Whole milliseconds, without the digits of binary fractions.
                doubt_seconds: (became.doubt_seconds * 1000.0).round() / 1000.0,
            })),
        }
    }
}

fn json(now: Timestamp, full: bool, subject: &Subject, event: &Event<DynamicObject>, call: Call) -> String {
    let object = event.object();
    let own = object.metadata.resource_version.as_deref();
    let (version, certainty, reason) = match event {
        Event::Deleted { version, certainty, reason, .. } => (
            // An inferred deletion has no version of its own.
            version.as_ref().map(ResourceVersion::as_str),
            Some(certainty_name(*certainty)),
            Some(reason_name(*reason)),
        ),
        _ => (own, None, None),
    };
    encoded(&JsonLine {
        time: precise(now),
        kind: event.name(),
        resource: &subject.name,
        namespace: object.metadata.namespace.as_deref(),
        name: object.metadata.name.as_deref(),
        uid: object.metadata.uid.as_deref(),
        resource_version: version,
        changes: Some(call.changes),
        missed: (call.missed > 0).then_some(call.missed),
        certainty,
        reason,
        object: full.then(|| typed(object, &subject.api_resource)),
    })
}

/// Returns the object with its type. Items of a list lack the type.
fn typed(object: &DynamicObject, api_resource: &ApiResource) -> DynamicObject {
    let mut object = object.clone();
    let own = || TypeMeta { api_version: api_resource.api_version.clone(), kind: api_resource.kind.clone() };
    object.types.get_or_insert_with(own);
    object
}

fn encoded(line: &impl Serialize) -> String {
    // Cannot fail: the objects were parsed from JSON.
    serde_json::to_string(line).unwrap_or_default()
}

fn text(clock: &str, color: bool, resource: &str, event: &Event<DynamicObject>, changes: u64) -> String {
    let object = event.object();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let place = match &object.metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    let (symbol, paint, known) = match event {
        Event::Added { .. } => ('+', "32", None),
        Event::Updated { .. } | Event::Resynced { .. } => ('~', "33", None),
        Event::Deleted { certainty, reason, .. } => ('-', "31", Some(format!("{certainty}: {reason}"))),
    };
    // Merged changes are marked, so that the reader does not take them for one change.
    let merged = (changes > 1).then(|| format!("{changes} changes"));
    let more: Vec<String> = known.into_iter().chain(merged).collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join("; ")) };
    let line = format!("{symbol} {resource} {place}{more}");
    if color { format!("{clock} \x1b[{paint}m{line}\x1b[0m") } else { format!("{clock} {line}") }
}

fn certainty_name(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Observed => "Observed",
        Certainty::Inferred => "Inferred",
    }
}

fn reason_name(reason: DeleteReason) -> &'static str {
    match reason {
        DeleteReason::Deleted => "Deleted",
        DeleteReason::Replaced => "Replaced",
        DeleteReason::DeletedOrLeft => "DeletedOrLeft",
        DeleteReason::Left => "Left",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use steadfast::Object;

    use super::*;

    fn pods() -> Subject {
        let api_resource = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        Subject { name: "pods".to_owned(), api_resource, scope: Scope::namespace("shop") }
    }

    fn pod() -> Object<DynamicObject> {
        let metadata = json!({"namespace": "shop", "name": "web-0", "uid": "u-1", "resourceVersion": "12"});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "n"}});
        serde_json::from_value::<DynamicObject>(pod).expect("it is an object").into()
    }

    fn deleted(certainty: Certainty, version: Option<&str>) -> Event<DynamicObject> {
        let reason = DeleteReason::Replaced;
        Event::Deleted { last: pod(), version: version.map(ResourceVersion::from), certainty, reason }
    }

    fn as_json(full: bool, told: &Event<DynamicObject>) -> Value {
        serde_json::from_str(&Style::Json { full }.event(&pods(), told, call(1))).expect("it is JSON")
    }

    /// Creates a call for `changes` changes.
    fn call(changes: u64) -> Call {
        let mut call = Call::default();
        call.changes = changes;
        call
    }

    fn plain() -> Style {
        Style::Text { color: false, clock: Clock::choose(true) }
    }

    #[test]
    fn json_line_has_documented_fields_only() {
        let line = as_json(false, &Event::Added { object: pod(), initial: true });
        let keys: Vec<&String> = line.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["changes", "name", "namespace", "resource", "resourceVersion", "time", "type", "uid"]);
        assert_eq!(
            (&line["type"], &line["uid"], &line["resourceVersion"], &line["changes"]),
            (&json!("Added"), &json!("u-1"), &json!("12"), &json!(1))
        );
    }

    #[test]
    fn deletion_line_has_certainty_and_reason() {
        let line = as_json(false, &deleted(Certainty::Observed, Some("15")));
        assert_eq!((&line["certainty"], &line["reason"]), (&json!("Observed"), &json!("Replaced")));
        assert_eq!(line["resourceVersion"], "15");
        assert_eq!(as_json(false, &deleted(Certainty::Inferred, None))["resourceVersion"], Value::Null);
    }

    #[test]
    fn full_object_has_its_type() {
        let line = as_json(true, &Event::Added { object: pod(), initial: false });
        assert_eq!(line["object"]["kind"], "Pod");
        assert_eq!(line["object"]["spec"]["nodeName"], "n");
    }

    #[test]
    fn text_line_has_symbol_name_and_certainty() {
        let line = plain().event(&pods(), &deleted(Certainty::Inferred, None), call(1));
        assert!(line.ends_with("Z - pods shop/web-0 (inferred: replaced)"), "{line}");
    }

    #[test]
    fn merged_changes_are_marked() {
        let updated = Event::Updated { old: pod(), new: pod() };
        assert!(plain().event(&pods(), &updated, call(1)).ends_with(" ~ pods shop/web-0"));
        assert!(plain().event(&pods(), &updated, call(3)).ends_with(" ~ pods shop/web-0 (3 changes)"));
        let line = plain().event(&pods(), &deleted(Certainty::Observed, Some("15")), call(2));
        assert!(line.ends_with(" - pods shop/web-0 (observed: replaced; 2 changes)"), "{line}");
        let json: Value =
            serde_json::from_str(&Style::Json { full: false }.event(&pods(), &updated, call(3))).expect("JSON");
        assert_eq!((&json["changes"], json.get("missed")), (&json!(3), None));
    }

    #[test]
    fn merged_events_are_reported_and_counted() {
        let (added, mut call) = (Event::Added { object: pod(), initial: false }, call(1));
        assert_eq!(plain().missed(&pods(), call), None);
        call.missed = 4;
        let aside = plain().missed(&pods(), call).expect("a warning");
        assert!(aside.ends_with("Z ! pods: 4 events merged: they came faster than they could be written"), "{aside}");
        assert_eq!(Style::Json { full: false }.missed(&pods(), call), None);
        let json: Value =
            serde_json::from_str(&Style::Json { full: false }.event(&pods(), &added, call)).expect("JSON");
        assert_eq!((&json["changes"], &json["missed"]), (&json!(1), &json!(4)));
    }

    #[test]
    fn freshness_line_is_json_only() {
        let stale = Transition { state: "Stale", why: Some("reset".to_owned()), doubt_seconds: 1.23456 };
        assert_eq!(plain().freshness(&pods(), &stale), None);
        let line = Style::Json { full: false }.freshness(&pods(), &stale).expect("a line");
        let line: Value = serde_json::from_str(&line).expect("it is JSON");
        let keys: Vec<&String> = line.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["doubtSeconds", "namespace", "resource", "state", "time", "type", "why"]);
        assert_eq!(
            (&line["type"], &line["state"], &line["why"]),
            (&json!("Freshness"), &json!("Stale"), &json!("reset"))
        );
        assert_eq!((&line["namespace"], &line["doubtSeconds"]), (&json!("shop"), &json!(1.235)));
    }
}
