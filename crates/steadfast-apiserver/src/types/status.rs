//! Status of built-in kinds: zero values that a real server always writes.

use serde_json::{Map, Value, json};

use super::table::{Field, FieldShape, ValueType, fields, type_for_kind};

/// Maximum nesting of the structs that are completed. No status is nested deeper.
const MAX_DEPTH: usize = 8;

/// Optional fields that Go writes even if they are zero, because they have no `omitempty`. The schemas of a real server
/// do not contain this information.
const WRITTEN_OPTIONAL: [(&str, &str); 6] = [
    ("apps.v1.StatefulSetStatus", "availableReplicas"),
    ("policy.v1.PodDisruptionBudgetStatus", "currentHealthy"),
    ("policy.v1.PodDisruptionBudgetStatus", "desiredHealthy"),
    ("policy.v1.PodDisruptionBudgetStatus", "disruptionsAllowed"),
    ("policy.v1.PodDisruptionBudgetStatus", "expectedPods"),
    ("autoscaling.v2.HorizontalPodAutoscalerStatus", "currentMetrics"),
];

/// Adds the status of an object of a built-in kind if the status is absent, and the zero values within.
pub(crate) fn complete_status(api_version: &str, kind: &str, object: &mut Value) {
    let kind_fields = type_for_kind(api_version, kind).and_then(fields).unwrap_or_default();
    if let (Some(field), Value::Object(object)) = (kind_fields.iter().find(|field| field.name == "status"), object) {
        complete_field(field, object, MAX_DEPTH);
    }
}

/// Sets each zero count that a real server omits from a status to null, so that a merge patch removes the count.
#[cfg(any(test, feature = "world"))]
pub(crate) fn null_omitted_counts(api_version: &str, kind: &str, status: &mut Value) {
    let type_of_status = type_for_kind(api_version, kind).and_then(fields).and_then(|kind_fields| {
        let field = kind_fields.iter().find(|field| field.name == "status")?;
        if let FieldShape::One(ValueType::Named(name)) = field.shape { Some(name) } else { None }
    });
    let (Some(type_name), Value::Object(status)) = (type_of_status, status) else { return };
    for field in fields(type_name).unwrap_or_default() {
        // A pointer to zero is not nil, so Go writes the zero.
        let is_omitted = !field.is_pointer && !is_always_written(type_name, field);
        if let Some(value) = status.get_mut(field.name)
            && is_omitted
            && *value == 0
        {
            *value = Value::Null;
        }
    }
}

/// Returns whether Go writes the zero value of a field of a status.
fn is_always_written(type_name: &str, field: &Field) -> bool {
    field.is_required || WRITTEN_OPTIONAL.contains(&(type_name, field.name))
}

/// Completes a field that is a struct. Adds the struct if it is absent, and the zero values that Go writes for its
/// absent fields.
fn complete_field(field: &'static Field, object: &mut Map<String, Value>, depth: usize) {
    let FieldShape::One(ValueType::Named(name)) = field.shape else { return };
    if field.is_pointer || depth == 0 {
        return;
    }
    let value = object.entry(field.name).or_insert_with(|| json!({}));
    if value.is_null() {
        *value = json!({});
    }
    let Value::Object(value) = value else { return };
    for inner in fields(name).unwrap_or_default() {
        if is_always_written(name, inner)
            && !inner.is_pointer
            && value.get(inner.name).is_none_or(Value::is_null)
            && let Some(zero) = zero_value(inner.shape)
        {
            value.insert(inner.name.to_owned(), zero);
        }
        complete_field(inner, value, depth - 1);
    }
}

/// Returns the zero value of a field; `None` for structs, which are completed by their fields.
fn zero_value(shape: FieldShape) -> Option<Value> {
    match shape {
        FieldShape::One(ValueType::Text) => Some("".into()),
        FieldShape::One(ValueType::Bool) => Some(false.into()),
        FieldShape::One(ValueType::Integer32 | ValueType::Integer64) => Some(0.into()),
        FieldShape::List(_) => Some(Value::Null),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{complete_status, null_omitted_counts};

    fn completed(api_version: &str, kind: &str, mut object: Value) -> Value {
        complete_status(api_version, kind, &mut object);
        object["status"].take()
    }

    /// Compares the zero values with those of a real server.
    #[test]
    fn status_has_the_zero_values_of_go() {
        for (api_version, kind, status) in [
            ("apps/v1", "Deployment", json!({})),
            ("apps/v1", "ReplicaSet", json!({"replicas": 0})),
            ("apps/v1", "StatefulSet", json!({"availableReplicas": 0, "replicas": 0})),
            (
                "apps/v1",
                "DaemonSet",
                json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}),
            ),
            ("v1", "Service", json!({"loadBalancer": {}})),
            ("v1", "ResourceQuota", json!({})),
            (
                "policy/v1",
                "PodDisruptionBudget",
                json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}),
            ),
            ("autoscaling/v2", "HorizontalPodAutoscaler", json!({"currentMetrics": null, "desiredReplicas": 0})),
            ("autoscaling/v1", "HorizontalPodAutoscaler", json!({"currentReplicas": 0, "desiredReplicas": 0})),
            ("storage.k8s.io/v1", "VolumeAttachment", json!({"attached": false})),
            ("v1", "ConfigMap", Value::Null),
        ] {
            assert_eq!(completed(api_version, kind, json!({})), status, "{kind}");
        }
        let node = completed("v1", "Node", json!({}));
        assert_eq!(node["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
        assert_eq!(node["nodeInfo"]["osImage"], "");
    }

    #[test]
    fn omitted_counts_become_null() {
        let nulls = |api_version: &str, kind: &str, counts: &[&str]| {
            let mut status: Value = counts.iter().map(|count| ((*count).to_owned(), json!(0))).collect();
            null_omitted_counts(api_version, kind, &mut status);
            counts.iter().copied().filter(|count| status[count].is_null()).collect::<Vec<_>>().join(" ")
        };
        let counts = ["replicas", "readyReplicas", "availableReplicas", "terminatingReplicas"];
        assert_eq!(nulls("apps/v1", "Deployment", &counts), "replicas readyReplicas availableReplicas");
        assert_eq!(nulls("apps/v1", "ReplicaSet", &counts), "readyReplicas availableReplicas");
        let counts = ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "collisionCount"];
        assert_eq!(nulls("apps/v1", "StatefulSet", &counts), "readyReplicas currentReplicas");
        let counts = ["numberReady", "numberMisscheduled", "numberAvailable", "updatedNumberScheduled"];
        assert_eq!(nulls("apps/v1", "DaemonSet", &counts), "numberAvailable updatedNumberScheduled");
        let counts = ["active", "ready", "succeeded", "failed", "terminating"];
        assert_eq!(nulls("batch/v1", "Job", &counts), "active succeeded failed");
        let mut status = json!({"replicas": 2, "conditions": [], "updatedReplicas": 0});
        null_omitted_counts("apps/v1", "Deployment", &mut status);
        assert_eq!(status, json!({"replicas": 2, "conditions": [], "updatedReplicas": null}));
    }

    #[test]
    fn given_status_keeps_its_values() {
        let daemon_set = json!({"status": {"numberReady": 3, "numberMisscheduled": null, "conditions": []}});
        let expected = json!({
            "conditions": [], "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0,
            "numberReady": 3,
        });
        assert_eq!(completed("apps/v1", "DaemonSet", daemon_set), expected);
    }
}
