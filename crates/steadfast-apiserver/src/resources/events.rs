//! Events: one collection that two groups of the API serve, each with its own names for the same fields.
//!
//! They are stored as those of `v1`; `events.k8s.io/v1` is another look at them.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::GroupResource;

/// The collection that both groups serve.
pub(super) static STORE: LazyLock<GroupResource> = LazyLock::new(|| GroupResource::new("", "events"));

/// The fields that have another name in `events.k8s.io/v1`: that of `v1` first.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// An event of `v1` as one of `events.k8s.io/v1`.
pub(super) fn to_new(event: &Value) -> Value {
    renamed(event, "events.k8s.io/v1", |field| NAMES.iter().find(|(old, _)| *old == field).map(|(_, new)| *new))
}

/// An event of `events.k8s.io/v1` as one of `v1`.
pub(super) fn to_core(event: &Value) -> Value {
    renamed(event, "v1", core_name)
}

/// The path in an event of `v1` of a field of `events.k8s.io/v1`.
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

    use super::{core_path, to_core, to_new};

    #[test]
    fn an_event_is_the_same_by_both_names_of_its_fields() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "message": "it began", "count": 2,
            "involvedObject": {"name": "p"}, "reason": "Begun", "reportingComponent": "c", "reportingInstance": "c-1",
        });
        let new = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a"}, "note": "it began",
            "deprecatedCount": 2, "regarding": {"name": "p"}, "reason": "Begun", "reportingController": "c",
            "reportingInstance": "c-1",
        });
        assert_eq!((to_new(&core), to_core(&new)), (new, core));
        assert_eq!((core_path("regarding.name"), core_path("reason")), ("involvedObject.name".into(), "reason".into()));
    }
}
