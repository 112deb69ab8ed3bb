//! Jobs and `CronJobs`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::containers;
use crate::changes::phrases::{DescriptionBuilder, HealthEffect, at, flag, list, number, text, transition};
use crate::changes::value_text::short;

pub(super) fn describe_job(description: &mut DescriptionBuilder<'_>) {
    describe_suspension(description, "spec/suspend");
    if description.consume_changed("status/succeeded") {
        let (old, new) = (number(description.old, "status/succeeded"), number(description.new, "status/succeeded"));
        let completions = at(description.new, "spec/completions")
            .map_or(String::new(), |completions| format!(" of {}", short(Some(completions))));
        description.add(HealthEffect::Improved, format!("succeeded {old}→{new}{completions}"));
    }
    description.add_count_change("failed", "status/failed", HealthEffect::Degraded);
    if description.consume_changed("status/active") {
        let (old, new) = (number(description.old, "status/active"), number(description.new, "status/active"));
        description.add(HealthEffect::Neutral, format!("active {old}→{new}"));
    }
    if description.consume_changed("status/ready") {
        let (old, new) = (number(description.old, "status/ready"), number(description.new, "status/ready"));
        description.add_fallback(format!("ready {old}→{new}"));
    }
    description.add_field_change("parallelism", "spec/parallelism");
    containers::describe(description, "spec/template/spec");
    for field in ["completionTime", "uncountedTerminatedPods", "terminating", "completedIndexes"] {
        if description.consume_changed(&format!("status/{field}")) {
            description.add_fallback(format!("{field} changed"));
        }
    }
}

pub(super) fn describe_cron_job(description: &mut DescriptionBuilder<'_>) {
    describe_suspension(description, "spec/suspend");
    description.add_field_change("schedule", "spec/schedule");
    if description.consume_changed("status/lastScheduleTime") {
        description
            .add(HealthEffect::Neutral, format!("scheduled for {}", text(description.new, "status/lastScheduleTime")));
    }
    if description.consume_changed("status/lastSuccessfulTime") {
        description.add(
            HealthEffect::Improved,
            format!("succeeded at {}", text(description.new, "status/lastSuccessfulTime")),
        );
    }
    if description.consume_changed("status/active") {
        let jobs = |object: &Value| -> BTreeSet<String> {
            list(object, "status/active").iter().map(|job| text(job, "name").to_owned()).collect()
        };
        let (old, new) = (jobs(description.old), jobs(description.new));
        description.add_set_change("active", &old, &new);
    }
    containers::describe(description, "spec/jobTemplate/spec/template/spec");
}

fn describe_suspension(description: &mut DescriptionBuilder<'_>, pattern: &str) {
    if description.consume_changed(pattern) {
        let is_suspended = |object| flag(object, pattern);
        let text = match (is_suspended(description.old), is_suspended(description.new)) {
            (false, true) => "suspended".to_owned(),
            (true, false) => "resumed".to_owned(),
            _ => transition("suspend", &short(at(description.old, pattern)), &short(at(description.new, pattern))),
        };
        description.add(HealthEffect::Neutral, text);
    }
}
