//! One event as one line, for people or for programs.

use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject, TypeMeta};
use serde::Serialize;
use steadfast::{Certainty, DeleteReason, Event, ResourceVersion, Scope};

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// For people.
    Text {
        /// With colours.
        color: bool,
    },
    /// One JSON object a line.
    Json {
        /// With the whole object.
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
    certainty: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<DynamicObject>,
}

/// The line of `event`, at the present.
pub(crate) fn event(style: Style, resource: &str, described: &ApiResource, event: &Event<DynamicObject>) -> String {
    let now = Timestamp::now();
    match style {
        Style::Json { full } => json(now, full, resource, described, event),
        Style::Text { color } => text(now, color, resource, event),
    }
}

/// The line that says that everything there was has been told.
pub(crate) fn synced(
    style: Style,
    resource: &str,
    scope: &Scope,
    version: Option<&ResourceVersion>,
    objects: usize,
) -> String {
    let now = Timestamp::now();
    match style {
        Style::Json { .. } => encoded(&JsonLine {
            time: precise(now),
            kind: "Synced",
            resource,
            namespace: scope.in_namespace(),
            name: None,
            uid: None,
            resource_version: version.map(ResourceVersion::as_str),
            certainty: None,
            reason: None,
            object: None,
        }),
        Style::Text { .. } => {
            let at = version.map(|version| format!(" at {version}")).unwrap_or_default();
            format!("{} = {resource} synced{at}: {objects} in {scope}", clock(now))
        }
    }
}

fn json(now: Timestamp, full: bool, resource: &str, described: &ApiResource, event: &Event<DynamicObject>) -> String {
    let object = event.object();
    let own = object.metadata.resource_version.as_deref();
    let (version, certainty, reason) = match event {
        Event::Deleted { version, certainty, reason, .. } => (
            // A deletion that is inferred has no version of its own.
            version.as_ref().map(ResourceVersion::as_str),
            Some(certainty_name(*certainty)),
            Some(reason_name(*reason)),
        ),
        _ => (own, None, None),
    };
    encoded(&JsonLine {
        time: precise(now),
        kind: event.name(),
        resource,
        namespace: object.metadata.namespace.as_deref(),
        name: object.metadata.name.as_deref(),
        uid: object.metadata.uid.as_deref(),
        resource_version: version,
        certainty,
        reason,
        object: full.then(|| typed(object, described)),
    })
}

/// The object with its type, which the items of a list do not carry.
fn typed(object: &DynamicObject, described: &ApiResource) -> DynamicObject {
    let mut object = object.clone();
    let own = || TypeMeta { api_version: described.api_version.clone(), kind: described.kind.clone() };
    object.types.get_or_insert_with(own);
    object
}

fn encoded(line: &JsonLine<'_>) -> String {
    // Objects that were JSON are JSON again.
    serde_json::to_string(line).unwrap_or_default()
}

fn text(now: Timestamp, color: bool, resource: &str, event: &Event<DynamicObject>) -> String {
    let object = event.object();
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let place = match &object.metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    let (symbol, paint, more) = match event {
        Event::Added { .. } => ('+', "32", String::new()),
        Event::Updated { .. } | Event::Resynced { .. } => ('~', "33", String::new()),
        Event::Deleted { certainty, reason, .. } => ('-', "31", format!(" ({certainty}: {reason})")),
    };
    let line = format!("{symbol} {resource} {place}{more}");
    let clock = clock(now);
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
    }
}

/// RFC 3339, UTC, with microseconds, always.
fn precise(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// The time of day, UTC, for people.
pub(crate) fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    fn pods() -> ApiResource {
        ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&())
    }

    fn pod() -> Arc<DynamicObject> {
        let metadata = json!({"namespace": "shop", "name": "web-0", "uid": "u-1", "resourceVersion": "12"});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "n"}});
        Arc::new(serde_json::from_value(pod).expect("it is an object"))
    }

    fn deleted(certainty: Certainty, version: Option<&str>) -> Event<DynamicObject> {
        let reason = DeleteReason::Replaced;
        Event::Deleted { last: pod(), version: version.map(ResourceVersion::from), certainty, reason }
    }

    fn as_json(full: bool, told: &Event<DynamicObject>) -> Value {
        serde_json::from_str(&event(Style::Json { full }, "pods", &pods(), told)).expect("it is JSON")
    }

    #[test]
    fn json_has_the_fields_promised_and_no_others() {
        let line = as_json(false, &Event::Added { object: pod(), initial: true });
        let keys: Vec<&String> = line.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["name", "namespace", "resource", "resourceVersion", "time", "type", "uid"]);
        assert_eq!(
            (&line["type"], &line["uid"], &line["resourceVersion"]),
            (&json!("Added"), &json!("u-1"), &json!("12"))
        );
    }

    #[test]
    fn a_deletion_says_how_it_is_known_and_why_it_happened() {
        let line = as_json(false, &deleted(Certainty::Observed, Some("15")));
        assert_eq!((&line["certainty"], &line["reason"]), (&json!("Observed"), &json!("Replaced")));
        assert_eq!(line["resourceVersion"], "15");
        assert_eq!(as_json(false, &deleted(Certainty::Inferred, None))["resourceVersion"], Value::Null);
    }

    #[test]
    fn the_whole_object_comes_with_its_type() {
        let line = as_json(true, &Event::Added { object: pod(), initial: false });
        assert_eq!(line["object"]["kind"], "Pod");
        assert_eq!(line["object"]["spec"]["nodeName"], "n");
    }

    #[test]
    fn times_have_microseconds_even_where_they_are_zero() {
        assert_eq!(precise(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn people_see_symbol_place_and_how_a_deletion_is_known() {
        let line = event(Style::Text { color: false }, "pods", &pods(), &deleted(Certainty::Inferred, None));
        assert!(line.ends_with(" - pods shop/web-0 (inferred: replaced)"), "{line}");
    }
}
