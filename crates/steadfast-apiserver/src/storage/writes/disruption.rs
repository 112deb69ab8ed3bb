//! Disruption budgets for evictions of pods.
//!
//! No controller counts healthy pods on this server. If the status of a budget is up to date, an eviction uses and
//! decrements the status. Otherwise the eviction counts the healthy pods.

use serde_json::{Value, json};

use super::super::{ObjectKey, Patch, State};
use super::request::{RequestProperties, Update, WriteTarget};
use crate::metadata;
use crate::resources::GroupResource;
use crate::status::Status;
use crate::write_scope::Part;

/// Message of the real server for an eviction that violates a budget.
const BUDGET_VIOLATED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

impl State {
    /// Checks that the eviction of a pod violates no budget. Returns the name of the budget whose status must be
    /// decremented, if any.
    pub(crate) fn check_disruption(&self, target: &WriteTarget) -> Result<Option<String>, Status> {
        let not_found = || Status::not_found(target.group_resource(), &target.name);
        let found = self.latest(target.store(), &target.key()).and_then(|change| change.object.as_ref());
        let pod = found.ok_or_else(not_found)?;
        let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        // A pod that is terminating, has not started or has finished is not healthy, so no budget protects it.
        if metadata::is_terminating(pod) || matches!(phase, "Failed" | "Pending" | "Succeeded") {
            return Ok(None);
        }
        let resource = budgets();
        let budgets = self.live(&resource, Some(&target.namespace)).filter_map(|(_, change)| change.object.as_ref());
        let mut budgets = budgets.filter(|budget| selector_matches(budget.pointer("/spec/selector"), pod));
        let Some(budget) = budgets.next() else { return Ok(None) };
        if budgets.next().is_some() {
            let detail =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::new(500, "InternalError", detail));
        }
        let number = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64);
        // The disruption controller may be late or missing. The pods are then counted here.
        let is_counted = number("/status/observedGeneration")
            .is_some_and(|observed| observed >= number("/metadata/generation").unwrap_or_default());
        let (healthy, desired, allowed) = if is_counted {
            let status = |field: &str| number(&format!("/status/{field}")).unwrap_or_default();
            (status("currentHealthy"), status("desiredHealthy"), status("disruptionsAllowed"))
        } else {
            self.count_pods(target, budget)
        };
        let policy = budget.pointer("/spec/unhealthyPodEvictionPolicy").and_then(Value::as_str).unwrap_or_default();
        // Evicting an unready pod cannot reduce the number of healthy pods.
        if !is_ready(pod) && (policy == "AlwaysAllow" || healthy >= desired && desired > 0) {
            return Ok(None);
        }
        let name = metadata::text(budget, "name");
        // The caller decrements the status, unless the pods were counted here.
        if allowed > 0 {
            return Ok(is_counted.then(|| name.to_owned()));
        }
        let detail = format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
        let causes = json!({"causes": [{"reason": "DisruptionBudget", "message": detail}]});
        Err(Status::new(429, "TooManyRequests", BUDGET_VIOLATED).with_details(causes))
    }

    /// Returns the number of healthy pods, of required healthy pods, and of allowed evictions.
    fn count_pods(&self, target: &WriteTarget, budget: &Value) -> (i64, i64, i64) {
        let pods = self.live(target.store(), Some(&target.namespace)).filter_map(|(_, change)| change.object.as_ref());
        let pods: Vec<_> = pods.filter(|pod| selector_matches(budget.pointer("/spec/selector"), pod)).collect();
        let pod_count = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        let healthy = pods.iter().filter(|pod| is_ready(pod) && !metadata::is_terminating(pod)).count();
        let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
        let share = |field: &str| {
            budget.pointer(&format!("/spec/{field}")).and_then(|value| number_or_percentage(value, pod_count))
        };
        let desired = match (share("minAvailable"), share("maxUnavailable")) {
            // `minAvailable` takes precedence; the API rejects budgets with both fields.
            (Some(min), _) => min,
            (None, Some(max_unavailable)) => pod_count.saturating_sub(max_unavailable).max(0),
            (None, None) => 0,
        };
        (healthy, desired, healthy.saturating_sub(desired))
    }

    /// Counts an eviction in the status of a budget.
    pub(crate) fn spend_disruption(&mut self, namespace: &str, name: &str) -> Result<(), Status> {
        let Some(resource) = self.registry.get(&budgets()).cloned() else { return Ok(()) };
        let key = ObjectKey::new(namespace, name);
        let found = self.latest(&resource.name, &key).and_then(|change| change.object.clone());
        let allowed = found.as_deref().and_then(|budget| budget.pointer("/status/disruptionsAllowed"));
        let remaining = allowed.and_then(Value::as_i64).unwrap_or_default().saturating_sub(1);
        let target = WriteTarget {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            part: Part::Whole,
            is_dry_run: false,
            request: RequestProperties::default(),
        };
        let patch = Patch::Merge(json!({"status": {"disruptionsAllowed": remaining}}));
        self.update(&target, &Update::Patch(patch)).map(drop)
    }
}

fn budgets() -> GroupResource {
    GroupResource::new("policy", "poddisruptionbudgets")
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Returns a number, or a percentage of `pod_count`, rounded up.
fn number_or_percentage(value: &Value, pod_count: i64) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    // Percentages round up, as in the disruption controller.
    Some(pod_count.saturating_mul(percent).saturating_add(99) / 100)
}

/// Returns whether a label selector matches an object. An absent selector matches no object.
fn selector_matches(selector: Option<&Value>, object: &Value) -> bool {
    let Some(selector) = selector.filter(|selector| selector.is_object()) else { return false };
    let label = |name: &str| object.pointer("/metadata/labels").and_then(|labels| labels.get(name));
    let mut labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    labels.all(|(name, value)| label(name) == Some(value))
        && expressions.all(|expression| {
            let value = label(expression["key"].as_str().unwrap_or_default());
            let values = expression["values"].as_array().map(Vec::as_slice).unwrap_or_default();
            match expression["operator"].as_str().unwrap_or_default() {
                "In" => value.is_some_and(|value| values.contains(value)),
                // As in Kubernetes, `NotIn` also matches objects without the label.
                "NotIn" => value.is_none_or(|value| !values.contains(value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
