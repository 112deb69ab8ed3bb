//! Disruption budgets for evictions of pods.
//!
//! This server has no disruption controller, but a client can run one. If the status of a budget is up to date, an
//! eviction uses and decrements the status. Otherwise the eviction counts the healthy pods.

use serde_json::{Value, json};

use super::super::{ObjectKey, Patch, State};
use super::request::{Modification, RequestProperties, WriteTarget};
use crate::conditions;
use crate::int_or_percent::{self, Rounding};
use crate::metadata;
use crate::resources::GroupResource;
use crate::selector;
use crate::status::Status;
use crate::write_scope::WriteScope;

/// Message of the real server for an eviction that violates a budget.
const BUDGET_VIOLATED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

impl State {
    /// Checks that the eviction of a pod violates no budget. Returns the name of the budget whose status must be
    /// decremented, if any.
    pub(crate) fn check_disruption(&self, target: &WriteTarget) -> Result<Option<String>, Status> {
        let not_found = || Status::not_found(target.group_resource(), &target.name);
        let found = self.latest(target.storage_resource(), &target.key()).and_then(|change| change.object.as_ref());
        let pod = found.ok_or_else(not_found)?;
        let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        // A pod that is terminating, has not started or has finished is not healthy, so no budget protects it.
        if metadata::is_terminating(pod) || matches!(phase, "Failed" | "Pending" | "Succeeded") {
            return Ok(None);
        }
        let resource = budgets();
        let budgets = self.live(&resource, Some(&target.namespace)).filter_map(|(_, change)| change.object.as_ref());
        let mut budgets = budgets.filter(|budget| selector::matches(budget.pointer("/spec/selector"), pod));
        let Some(budget) = budgets.next() else { return Ok(None) };
        if budgets.next().is_some() {
            let detail =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::new(500, "InternalError", detail));
        }
        let number = |pointer: &str| budget.pointer(pointer).and_then(Value::as_i64);
        // The disruption controller may be late or missing. The pods are then counted here.
        let is_status_current = number("/status/observedGeneration")
            .is_some_and(|observed| observed >= number("/metadata/generation").unwrap_or_default());
        let (healthy, desired, allowed) = if is_status_current {
            let status = |field: &str| number(&format!("/status/{field}")).unwrap_or_default();
            (status("currentHealthy"), status("desiredHealthy"), status("disruptionsAllowed"))
        } else {
            self.count_pods(target, budget)
        };
        let policy = budget.pointer("/spec/unhealthyPodEvictionPolicy").and_then(Value::as_str).unwrap_or_default();
        // Evicting an unready pod cannot reduce the number of healthy pods.
        if !conditions::is_true(pod, "Ready") && (policy == "AlwaysAllow" || healthy >= desired && desired > 0) {
            return Ok(None);
        }
        let name = metadata::text(budget, "name");
        // The caller decrements the status, unless the pods were counted here.
        if allowed > 0 {
            return Ok(is_status_current.then(|| name.to_owned()));
        }
        let detail = format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
        let causes = json!({"causes": [{"reason": "DisruptionBudget", "message": detail}]});
        Err(Status::new(429, "TooManyRequests", BUDGET_VIOLATED).with_details(causes))
    }

    /// Returns the number of healthy pods, of required healthy pods, and of allowed evictions.
    fn count_pods(&self, target: &WriteTarget, budget: &Value) -> (i64, i64, i64) {
        let pods = self
            .live(target.storage_resource(), Some(&target.namespace))
            .filter_map(|(_, change)| change.object.as_ref());
        let pods: Vec<_> = pods.filter(|pod| selector::matches(budget.pointer("/spec/selector"), pod)).collect();
        let pod_count = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        let healthy =
            pods.iter().filter(|pod| conditions::is_true(pod, "Ready") && !metadata::is_terminating(pod)).count();
        let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
        let share = |field: &str| {
            // Percentages round up, as in the disruption controller.
            budget
                .pointer(&format!("/spec/{field}"))
                .and_then(|value| int_or_percent::resolve(value, pod_count, Rounding::Up))
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
            write_scope: WriteScope::Whole,
            is_dry_run: false,
            request: RequestProperties::default(),
        };
        let patch = Patch::Merge(json!({"status": {"disruptionsAllowed": remaining}}));
        self.update(&target, &Modification::Patch(patch)).map(drop)
    }
}

fn budgets() -> GroupResource {
    GroupResource::new("policy", "poddisruptionbudgets")
}
