//! Autoscalers, disruption budgets and quotas.

use serde_json::Value;

use crate::changes::phrases::{Phrases, Tone, at, list, number, text};
use crate::changes::value_text::short;

pub(super) fn describe_autoscaler(phrases: &mut Phrases<'_>) {
    phrases.say_field_change("min", "spec/minReplicas");
    phrases.say_field_change("max", "spec/maxReplicas");
    phrases.say_count_change("desired", "status/desiredReplicas", Tone::Neutral);
    phrases.say_count_change("replicas", "status/currentReplicas", Tone::Neutral);
    phrases.say_count_change("cpu %", "status/currentCPUUtilizationPercentage", Tone::Neutral);
    if phrases.take_changed("status/currentMetrics") {
        let old = list(phrases.old, "status/currentMetrics");
        for metric in list(phrases.new, "status/currentMetrics") {
            let name = metric_name(metric);
            let before = old.iter().find(|before| metric_name(before) == name);
            let (before, now) = (before.map_or("none".to_owned(), metric_value), metric_value(metric));
            if before != now {
                phrases.say(Tone::Neutral, format!("{name} {before}→{now}"));
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

pub(super) fn describe_disruption_budget(phrases: &mut Phrases<'_>) {
    phrases.say_field_change("min available", "spec/minAvailable");
    phrases.say_field_change("max unavailable", "spec/maxUnavailable");
    if phrases.take_changed("status/disruptionsAllowed") {
        let (old, new) =
            (number(phrases.old, "status/disruptionsAllowed"), number(phrases.new, "status/disruptionsAllowed"));
        let tone = if new == 0 { Tone::Bad } else { Tone::Neutral };
        phrases.say(tone, format!("allowed disruptions {old}→{new}"));
    }
    if phrases.take_changed("status/currentHealthy") | phrases.take_changed("status/desiredHealthy") {
        let healthy = |object| number(object, "status/currentHealthy");
        let (old, new) = (healthy(phrases.old), healthy(phrases.new));
        let required = number(phrases.new, "status/desiredHealthy");
        if old == new {
            phrases.say(Tone::Neutral, format!("healthy {new}, required {required}"));
        } else {
            phrases.say(Tone::Neutral, format!("healthy {old}→{new}, required {required}"));
        }
    }
    phrases.say_count_change("expected pods", "status/expectedPods", Tone::Neutral);
    phrases.take_changed("status/disruptedPods");
}

pub(super) fn describe_quota(phrases: &mut Phrases<'_>) {
    for change in phrases.take_changes("status/used") {
        let resource = change.path.last_field().unwrap_or_default();
        let hard = at(phrases.new, "status/hard").and_then(|hard| hard.get(resource));
        let limit_suffix = hard.map_or(String::new(), |hard| format!(" of {}", short(Some(hard))));
        let (old, new) = (short(change.old.as_deref()), short(change.new.as_deref()));
        phrases.say(Tone::Neutral, format!("used {resource} {old}→{new}{limit_suffix}"));
    }
    // The status repeats the specification.
    let is_changed = phrases.take_changed("status/hard");
    for change in phrases.take_changes("spec/hard") {
        let resource = change.path.last_field().unwrap_or_default();
        let (old, new) = (short(change.old.as_deref()), short(change.new.as_deref()));
        phrases.say(Tone::Neutral, format!("limit {resource} {old}→{new}"));
    }
    if is_changed && !phrases.has_major() {
        phrases.say_minor("limits applied");
    }
}
