//! Noise: changes of bookkeeping fields only. These are versions, field managers, heartbeats, lease renewals,
//! timestamps of a status.

use serde_json::Value;

use super::diff::Change;
use super::kind::Kind;
use super::path::Segment;

/// Metadata that every write changes.
const NOISE_METADATA: [&str; 4] =
    ["metadata/managedFields", "metadata/resourceVersion", "metadata/generation", "metadata/selfLink"];

/// Annotations that controllers renew without another change.
const NOISE_ANNOTATIONS: [&str; 3] = [
    "endpoints.kubernetes.io/last-change-trigger-time",
    "control-plane.alpha.kubernetes.io/leader",
    "deployment.kubernetes.io/desired-replicas",
];

/// Timestamps in a status that a reader needs, because their change is the event itself.
const MEANINGFUL_TIMESTAMPS: [&str; 3] = ["lastScheduleTime", "lastSuccessfulTime", "completionTime"];

/// Returns whether `change` of an object of `kind` is noise.
pub(crate) fn is_noise(kind: &Kind, change: &Change<'_>) -> bool {
    let path = &change.path;
    if NOISE_METADATA.iter().any(|noise| path.starts_with(noise)) || path.starts_with("status/observedGeneration") {
        return true;
    }
    if let [Segment::Field("metadata"), Segment::Field("annotations"), Segment::Field(name)] = &path.0[..] {
        return NOISE_ANNOTATIONS.contains(name);
    }
    if kind.is("coordination.k8s.io", "Lease") {
        return path.starts_with("spec/renewTime") || path.starts_with("spec/acquireTime");
    }
    if kind.kind == "Event" {
        let times = ["lastTimestamp", "eventTime", "series/lastObservedTime"];
        return times.iter().any(|time| path.starts_with(time));
    }
    path.starts_with("status") && (is_timestamp(change) || matches!(path.0.last(), Some(Segment::Order(_))))
}

/// Returns whether a field of a status is only a timestamp.
fn is_timestamp(change: &Change<'_>) -> bool {
    let Some(Segment::Field(name)) = change.path.0.last() else { return false };
    let has_time_name = ["Time", "Timestamp", "At"].iter().any(|suffix| name.ends_with(suffix));
    // A real server writes null for an unknown time.
    let mut times = [&change.old, &change.new].into_iter().flatten().filter(|value| !value.is_null());
    has_time_name && !MEANINGFUL_TIMESTAMPS.contains(name) && times.all(|value| is_time(value))
}

fn is_time(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::changes::diff::{Detail, diff};

    fn count_changes(kind: &Kind, old: &Value, new: &Value) -> (usize, usize) {
        let changes = diff(old, new, Detail::Leaves);
        let noise = changes.iter().filter(|change| is_noise(kind, change)).count();
        (noise, changes.len() - noise)
    }

    #[test]
    fn heartbeat_of_node_is_noise() {
        let node = |version: &str, time: &str| {
            json!({
                "metadata": {"resourceVersion": version, "managedFields": [{"manager": "kubelet", "time": time}]},
                "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]},
            })
        };
        let (old, new) = (node("1", "2026-01-01T00:00:00Z"), node("2", "2026-01-01T00:05:00Z"));
        assert_eq!(count_changes(&Kind::new("", "Node"), &old, &new), (3, 0));
    }

    #[test]
    fn lease_renewal_is_noise_holder_is_not() {
        let lease = |time: &str, holder: &str| json!({"spec": {"renewTime": time, "holderIdentity": holder, "acquireTime": time}});
        let kind = Kind::new("coordination.k8s.io", "Lease");
        let old = lease("2026-01-01T00:00:00.000000Z", "a");
        assert_eq!(count_changes(&kind, &old, &lease("2026-01-01T00:00:02.000000Z", "a")), (2, 0));
        assert_eq!(count_changes(&kind, &old, &lease("2026-01-01T00:00:02.000000Z", "b")), (2, 1));
    }

    #[test]
    fn field_named_like_time_needs_timestamp() {
        let kind = Kind::new("example.com", "Widget");
        let status = |value: &str| json!({"status": {"syncedAt": value}});
        assert_eq!(count_changes(&kind, &status("2026-01-01T00:00:00Z"), &status("2026-01-01T00:00:01Z")), (1, 0));
        assert_eq!(count_changes(&kind, &status("rev-1"), &status("rev-2")), (0, 1));
        let unknown = json!({"status": {"syncedAt": null}});
        assert_eq!(count_changes(&kind, &unknown, &status("2026-01-01T00:00:00Z")), (1, 0));
        assert_eq!(count_changes(&kind, &unknown, &status("rev-1")), (0, 1));
        let schedule = |value: &str| json!({"status": {"lastScheduleTime": value}});
        assert_eq!(count_changes(&kind, &schedule("2026-01-01T00:00:00Z"), &schedule("2026-01-01T00:00:01Z")), (0, 1));
    }
}
