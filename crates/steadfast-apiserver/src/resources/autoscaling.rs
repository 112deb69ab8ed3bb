//! Autoscalers: stored in the form of `autoscaling/v2`, and converted for `autoscaling/v1`.
//!
//! `v1` has one metric, the CPU utilization. As on a real server, annotations keep all other fields of `v2` in JSON.
//! Unlike on a real server, the keys of this JSON are in alphabetical order.

use serde_json::{Map, Value, json};

/// API version of the older form.
const V1: &str = "autoscaling/v1";
/// API version of the stored form.
const V2: &str = "autoscaling/v2";

const METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR_ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// Utilization of an autoscaler of `v1` without a metric.
const DEFAULT_UTILIZATION_PERCENT: i64 = 80;

/// Fields of one kind of metric: the name in `v1`, and the JSON pointer in `v2`.
type FieldNames = &'static [(&'static str, &'static str)];

/// Kinds of metrics in a specification: the field that contains the metric, and the fields within.
const SPEC_METRIC_KINDS: &[(&str, FieldNames)] = &[
    (
        "object",
        &[
            ("target", "/describedObject"),
            ("metricName", "/metric/name"),
            ("targetValue", "/target/value"),
            ("selector", "/metric/selector"),
            ("averageValue", "/target/averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "/metric/name"),
            ("targetAverageValue", "/target/averageValue"),
            ("selector", "/metric/selector"),
        ],
    ),
    (
        "resource",
        &[
            ("name", "/name"),
            ("targetAverageUtilization", "/target/averageUtilization"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "/name"),
            ("targetAverageUtilization", "/target/averageUtilization"),
            ("targetAverageValue", "/target/averageValue"),
            ("container", "/container"),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "/metric/name"),
            ("metricSelector", "/metric/selector"),
            ("targetValue", "/target/value"),
            ("targetAverageValue", "/target/averageValue"),
        ],
    ),
];

/// Kinds of metrics in a status: the field that contains the metric, and the fields within.
const STATUS_METRIC_KINDS: &[(&str, FieldNames)] = &[
    (
        "object",
        &[
            ("target", "/describedObject"),
            ("metricName", "/metric/name"),
            ("currentValue", "/current/value"),
            ("selector", "/metric/selector"),
            ("averageValue", "/current/averageValue"),
        ],
    ),
    (
        "pods",
        &[
            ("metricName", "/metric/name"),
            ("currentAverageValue", "/current/averageValue"),
            ("selector", "/metric/selector"),
        ],
    ),
    (
        "resource",
        &[
            ("name", "/name"),
            ("currentAverageUtilization", "/current/averageUtilization"),
            ("currentAverageValue", "/current/averageValue"),
        ],
    ),
    (
        "containerResource",
        &[
            ("name", "/name"),
            ("currentAverageUtilization", "/current/averageUtilization"),
            ("currentAverageValue", "/current/averageValue"),
            ("container", "/container"),
        ],
    ),
    (
        "external",
        &[
            ("metricName", "/metric/name"),
            ("metricSelector", "/metric/selector"),
            ("currentValue", "/current/value"),
            ("currentAverageValue", "/current/averageValue"),
        ],
    ),
];

/// Converts an autoscaler of `v1` to `v2`.
pub(super) fn to_v2(mut object: Value) -> Value {
    set_version(&mut object, V2);
    let mut metrics = annotation_json(&object, METRICS_ANNOTATION)
        .map(|kept| convert_each(&kept, |metric| metric_to_v2(metric, SPEC_METRIC_KINDS, "target")));
    if let Some(utilization) = take_field(&mut object, "spec", "targetCPUUtilizationPercentage") {
        metrics
            .get_or_insert_default()
            .push(cpu_metric("target", &json!({"type": "Utilization", "averageUtilization": utilization})));
    }
    let metrics = metrics.filter(|metrics| !metrics.is_empty()).unwrap_or_else(|| {
        vec![cpu_metric("target", &json!({"type": "Utilization", "averageUtilization": DEFAULT_UTILIZATION_PERCENT}))]
    });
    if object.get("spec").is_some_and(Value::is_object) {
        object["spec"]["metrics"] = metrics.into();
        if let Some(behavior) = annotation_json(&object, BEHAVIOR_ANNOTATION).filter(Value::is_object) {
            object["spec"]["behavior"] = with_first_letters(&behavior, char::to_ascii_lowercase);
        }
    }
    let current = take_field(&mut object, "status", "currentCPUUtilizationPercentage");
    let current = current.map(|utilization| vec![cpu_metric("current", &json!({"averageUtilization": utilization}))]);
    // The annotation has more information than the field.
    let current = annotation_json(&object, CURRENT_METRICS_ANNOTATION)
        .map(|kept| convert_each(&kept, |metric| metric_to_v2(metric, STATUS_METRIC_KINDS, "current")))
        .or(current);
    // `v2` omits the number if it is zero.
    if object.pointer("/status/currentReplicas").is_some_and(|replicas| *replicas == 0) {
        take_field(&mut object, "status", "currentReplicas");
    }
    if object.get("status").is_some_and(Value::is_object) {
        object["status"]["currentMetrics"] = current.map_or(Value::Null, Value::from);
        if let Some(conditions) = annotation_json(&object, CONDITIONS_ANNOTATION).filter(Value::is_array) {
            object["status"]["conditions"] = conditions;
        }
    }
    drop_annotations(&mut object);
    object
}

/// Converts a stored autoscaler to `v1`.
pub(super) fn to_v1(stored: &Value) -> Value {
    let mut object = stored.clone();
    set_version(&mut object, V1);
    drop_annotations(&mut object);
    let mut annotations = Vec::new();
    let metrics = take_field(&mut object, "spec", "metrics").unwrap_or_default();
    let metrics = metrics.as_array().map(Vec::as_slice).unwrap_or_default();
    let utilization = |metric: &Value| {
        Some(metric.pointer("/resource/target/averageUtilization").filter(|_| is_cpu(metric))?.clone())
    };
    if let Some(utilization) = metrics.iter().find_map(utilization) {
        object["spec"]["targetCPUUtilizationPercentage"] = utilization;
    }
    let other_metrics = metrics.iter().filter(|metric| utilization(metric).is_none());
    annotations.push((
        METRICS_ANNOTATION,
        other_metrics.map(|metric| metric_to_v1(metric, SPEC_METRIC_KINDS)).collect::<Vec<_>>().into(),
    ));
    let current = take_field(&mut object, "status", "currentMetrics").unwrap_or_default();
    let current = current.as_array().map(Vec::as_slice).unwrap_or_default();
    let cpu_metrics = current.iter().filter(|metric| is_cpu(metric));
    if let Some(utilization) =
        cpu_metrics.filter_map(|metric| metric.pointer("/resource/current/averageUtilization")).next_back()
    {
        object["status"]["currentCPUUtilizationPercentage"] = utilization.clone();
    }
    if object.get("status").is_some_and(Value::is_object) && object["status"].get("currentReplicas").is_none() {
        // `v1` always has the number.
        object["status"]["currentReplicas"] = 0.into();
    }
    annotations.push((
        CURRENT_METRICS_ANNOTATION,
        current.iter().map(|metric| metric_to_v1(metric, STATUS_METRIC_KINDS)).collect::<Vec<_>>().into(),
    ));
    annotations
        .extend(take_field(&mut object, "status", "conditions").map(|conditions| (CONDITIONS_ANNOTATION, conditions)));
    let behavior = take_field(&mut object, "spec", "behavior");
    // As on a real server, names start with a capital letter: the encoded Go type has no JSON names.
    annotations.extend(
        behavior.map(|behavior| (BEHAVIOR_ANNOTATION, with_first_letters(&behavior, char::to_ascii_uppercase))),
    );
    for (name, value) in annotations {
        if value.as_array().is_none_or(|items| !items.is_empty()) {
            object["metadata"]["annotations"][name] = value.to_string().into();
        }
    }
    object
}

/// Replaces the API version of an object that contains one. Stored objects contain none.
fn set_version(object: &mut Value, api_version: &str) {
    if let Some(version) = object.get_mut("apiVersion") {
        *version = api_version.into();
    }
}

fn cpu_metric(place: &str, value: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", place: value}})
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric.pointer("/resource/name").is_some_and(|name| name == "cpu")
}

fn take_field(object: &mut Value, part: &str, field: &str) -> Option<Value> {
    object.get_mut(part)?.as_object_mut()?.remove(field).filter(|value| !value.is_null())
}

/// Returns the JSON in an annotation; `None` if the annotation is absent or not JSON.
fn annotation_json(object: &Value, annotation: &str) -> Option<Value> {
    serde_json::from_str(object.get("metadata")?.get("annotations")?.get(annotation)?.as_str()?).ok()
}

fn drop_annotations(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { return };
    annotations.retain(|name, _| {
        ![METRICS_ANNOTATION, CURRENT_METRICS_ANNOTATION, CONDITIONS_ANNOTATION, BEHAVIOR_ANNOTATION]
            .contains(&name.as_str())
    });
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

fn convert_each(list: &Value, convert: impl Fn(&Value) -> Value) -> Vec<Value> {
    list.as_array().into_iter().flatten().map(convert).collect()
}

fn metric_to_v1(metric: &Value, kinds: &[(&str, FieldNames)]) -> Value {
    let mut converted = json!({"type": metric["type"]});
    for (kind, names) in kinds {
        let Some(source) = metric.get(kind) else { continue };
        let fields =
            names.iter().filter_map(|(name, pointer)| Some(((*name).to_owned(), source.pointer(pointer)?.clone())));
        converted[kind] = fields.collect::<Map<_, _>>().into();
    }
    converted
}

fn metric_to_v2(metric: &Value, kinds: &[(&str, FieldNames)], part: &str) -> Value {
    let mut converted = json!({"type": metric["type"]});
    for (kind, names) in kinds {
        let Some(source) = metric.get(kind) else { continue };
        let mut fields = json!({});
        for (name, pointer) in *names {
            let Some(value) = source.get(name) else { continue };
            let path = pointer.trim_start_matches('/');
            match path.split_once('/') {
                Some((outer, inner)) => fields[outer][inner] = value.clone(),
                None => fields[path] = value.clone(),
            }
        }
        if part == "target" {
            let has = |name: &str| fields.pointer(&format!("/target/{name}")).is_some();
            let target = match () {
                () if has("averageUtilization") => "Utilization",
                () if has("averageValue") || !has("value") => "AverageValue",
                () => "Value",
            };
            fields["target"]["type"] = target.into();
        }
        converted[kind] = fields;
    }
    converted
}

/// Returns the value with the first letter of each key converted by `convert_letter`, and without null fields.
fn with_first_letters(value: &Value, convert_letter: fn(&char) -> char) -> Value {
    match value {
        Value::Object(fields) => {
            let renamed = fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
                let mut characters = name.chars();
                let first: String = characters.next().iter().map(convert_letter).collect();
                (first + characters.as_str(), with_first_letters(value, convert_letter))
            });
            renamed.collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(|item| with_first_letters(item, convert_letter)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{to_v1, to_v2};

    #[test]
    fn utilization_is_a_metric_of_v2() {
        let v1 = json!({
            "apiVersion": "autoscaling/v1", "metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50},
            "status": {"currentReplicas": 0, "desiredReplicas": 0, "currentCPUUtilizationPercentage": 40},
        });
        let v2 = to_v2(v1.clone());
        let target = json!({"type": "Utilization", "averageUtilization": 50});
        assert_eq!(
            v2["spec"],
            json!({"maxReplicas": 3, "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]})
        );
        assert_eq!(v2["apiVersion"], "autoscaling/v2");
        let mut back = to_v1(&v2);
        // The status is kept as an annotation too.
        let annotation = back["metadata"].as_object_mut().and_then(|metadata| metadata.remove("annotations"));
        assert!(annotation.is_some_and(|kept| kept.to_string().contains("current-metrics")));
        assert_eq!(back, v1);
    }

    #[test]
    fn other_fields_survive_conversion_to_v1() {
        let v2 = json!({
            "apiVersion": "autoscaling/v2", "metadata": {"name": "a", "annotations": {"own": "x"}},
            "spec": {
                "maxReplicas": 3,
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
                    {"type": "Object", "object": {
                        "metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "Value", "value": "2"},
                        "describedObject": {"kind": "Service", "name": "s", "apiVersion": "v1"},
                    }},
                    {"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "2"}}},
                    {"type": "ContainerResource", "containerResource": {
                        "name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 5},
                    }},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 7}}},
                ],
                "behavior": {"scaleUp": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}},
            },
            "status": {
                "currentReplicas": 1, "desiredReplicas": 2, "conditions": [{"type": "AbleToScale", "status": "True"}],
                "currentMetrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "current": {"averageUtilization": 3, "averageValue": "1"},
                }}],
            },
        });
        let v1 = to_v1(&v2);
        assert_eq!(v1["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 7}));
        assert_eq!(v1["metadata"]["annotations"]["own"], "x");
        let behavior =
            v1["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/behavior"].as_str().unwrap_or_default();
        assert!(behavior.contains(r#""ScaleUp":{"Policies":[{"PeriodSeconds":15"#), "{behavior}");
        assert_eq!(to_v2(v1), v2);
    }
}
