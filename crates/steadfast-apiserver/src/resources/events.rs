//! Events: one collection that two API groups serve with different field names.
//!
//! Events are stored in the form of `v1` and converted for `events.k8s.io/v1`.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::GroupResource;

/// Collection that both API groups share.
pub(super) static RESOURCE: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new("", "events"));

/// Fields with another name in `events.k8s.io/v1`; the name in `v1` comes first.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts an event of `v1` to `events.k8s.io/v1`.
pub(super) fn to_events_v1(event: &Value) -> Value {
    renamed(event, "events.k8s.io/v1", |field| NAMES.iter().find(|(old, _)| *old == field).map(|(_, new)| *new))
}

/// Converts an event of `events.k8s.io/v1` to `v1`.
pub(super) fn to_core_v1(event: &Value) -> Value {
    renamed(event, "v1", core_name)
}

/// Converts a field path of `events.k8s.io/v1` to the path in `v1`.
pub(super) fn core_path(path: &str) -> String {
    let (field, rest) = path.split_once('.').map_or((path, None), |(field, rest)| (field, Some(rest)));
    let field = core_name(field).unwrap_or(field);
    rest.map_or_else(|| field.to_owned(), |rest| format!("{field}.{rest}"))
}

fn core_name(field: &str) -> Option<&'static str> {
    NAMES.iter().find(|(_, new)| *new == field).map(|(old, _)| *old)
}

fn renamed(event: &Value, api_version: &str, name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let fields = event.as_object().into_iter().flatten();
    let mut renamed: Map<String, Value> =
        fields.map(|(field, value)| (name(field).unwrap_or(field).to_owned(), value.clone())).collect();
    if renamed.contains_key("apiVersion") {
        renamed.insert("apiVersion".to_owned(), api_version.into());
    }
    Value::Object(renamed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{core_path, to_core_v1, to_events_v1};

    #[test]
    fn event_conversion_round_trips() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "message": "it began", "count": 2,
            "involvedObject": {"name": "p"}, "reason": "Begun", "reportingComponent": "c", "reportingInstance": "c-1",
        });
        let new = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"}, "note": "it began",
            "deprecatedCount": 2, "regarding": {"name": "p"}, "reason": "Begun", "reportingController": "c",
            "reportingInstance": "c-1",
        });
        assert_eq!((to_events_v1(&core), to_core_v1(&new)), (new, core));
        assert_eq!((core_path("regarding.name"), core_path("reason")), ("involvedObject.name".into(), "reason".into()));
    }
}
