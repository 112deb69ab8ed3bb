//! Autoscalers, disruption budgets and quotas.

use serde_json::Value;

use crate::changes::phrases::{DescriptionBuilder, HealthEffect, at, list, number, text};
use crate::changes::value_text::short;

pub(super) fn describe_autoscaler(description: &mut DescriptionBuilder<'_>) {
    description.add_field_change("min", "spec/minReplicas");
    description.add_field_change("max", "spec/maxReplicas");
    description.add_count_change("desired", "status/desiredReplicas", HealthEffect::Neutral);
    description.add_count_change("replicas", "status/currentReplicas", HealthEffect::Neutral);
    description.add_count_change("cpu %", "status/currentCPUUtilizationPercentage", HealthEffect::Neutral);
    if description.consume_changed("status/currentMetrics") {
        let old = list(description.old, "status/currentMetrics");
        for metric in list(description.new, "status/currentMetrics") {
            let name = metric_name(metric);
            let before = old.iter().find(|before| metric_name(before) == name);
            let (before, now) = (before.map_or("none".to_owned(), metric_value), metric_value(metric));
            if before != now {
                description.add(HealthEffect::Neutral, format!("{name} {before}→{now}"));
            }
        }
    }
}

/// Returns the part of a metric that has its values, such as `resource`.
fn metric_body(metric: &Value) -> &Value {
    let field = text(metric, "type");
    let field = field.get(..1).unwrap_or_default().to_lowercase() + field.get(1..).unwrap_or_default();
    metric.get(&field).unwrap_or(&Value::Null)
}

fn metric_name(metric: &Value) -> String {
    let body = metric_body(metric);
    let name = [text(body, "name"), text(body, "metric/name")].into_iter().find(|name| !name.is_empty());
    name.unwrap_or("metric").to_owned()
}

fn metric_value(metric: &Value) -> String {
    let current = metric_body(metric).get("current").unwrap_or(&Value::Null);
    match at(current, "averageUtilization") {
        Some(percent) => format!("{percent}%"),
        None => short(at(current, "averageValue").or(at(current, "value"))),
    }
}

pub(super) fn describe_disruption_budget(description: &mut DescriptionBuilder<'_>) {
    description.add_field_change("min available", "spec/minAvailable");
    description.add_field_change("max unavailable", "spec/maxUnavailable");
    if description.consume_changed("status/disruptionsAllowed") {
        let (old, new) = (
            number(description.old, "status/disruptionsAllowed"),
            number(description.new, "status/disruptionsAllowed"),
        );
        let effect = if new == 0 { HealthEffect::Degraded } else { HealthEffect::Neutral };
        description.add(effect, format!("allowed disruptions {old}→{new}"));
    }
    if description.consume_changed("status/currentHealthy") | description.consume_changed("status/desiredHealthy") {
        let healthy = |object| number(object, "status/currentHealthy");
        let (old, new) = (healthy(description.old), healthy(description.new));
        let required = number(description.new, "status/desiredHealthy");
        if old == new {
            description.add(HealthEffect::Neutral, format!("healthy {new}, required {required}"));
        } else {
            description.add(HealthEffect::Neutral, format!("healthy {old}→{new}, required {required}"));
        }
    }
    description.add_count_change("expected pods", "status/expectedPods", HealthEffect::Neutral);
    description.consume_changed("status/disruptedPods");
}

pub(super) fn describe_quota(description: &mut DescriptionBuilder<'_>) {
    for change in description.take_changes("status/used") {
        let resource = change.path.last_field().unwrap_or_default();
        let hard = at(description.new, "status/hard").and_then(|hard| hard.get(resource));
        let limit_suffix = hard.map_or(String::new(), |hard| format!(" of {}", short(Some(hard))));
        let (old, new) = (short(change.old.as_deref()), short(change.new.as_deref()));
        description.add(HealthEffect::Neutral, format!("used {resource} {old}→{new}{limit_suffix}"));
    }
    // The status repeats the specification.
    let is_changed = description.consume_changed("status/hard");
    for change in description.take_changes("spec/hard") {
        let resource = change.path.last_field().unwrap_or_default();
        let (old, new) = (short(change.old.as_deref()), short(change.new.as_deref()));
        description.add(HealthEffect::Neutral, format!("limit {resource} {old}→{new}"));
    }
    if is_changed && !description.has_major() {
        description.add_fallback("limits applied");
    }
}
