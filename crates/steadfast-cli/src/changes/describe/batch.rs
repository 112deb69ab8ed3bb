//! Jobs and `CronJobs`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::containers;
use crate::changes::phrases::{Phrases, Tone, at, flag, list, number, text, transition};
use crate::changes::value_text::short;

pub(super) fn describe_job(phrases: &mut Phrases<'_>) {
    describe_suspension(phrases, "spec/suspend");
    if phrases.take_changed("status/succeeded") {
        let (old, new) = (number(phrases.old, "status/succeeded"), number(phrases.new, "status/succeeded"));
        let completions = at(phrases.new, "spec/completions")
            .map_or(String::new(), |completions| format!(" of {}", short(Some(completions))));
        phrases.say(Tone::Good, format!("succeeded {old}→{new}{completions}"));
    }
    phrases.say_count_change("failed", "status/failed", Tone::Bad);
    if phrases.take_changed("status/active") {
        let (old, new) = (number(phrases.old, "status/active"), number(phrases.new, "status/active"));
        phrases.say(Tone::Neutral, format!("active {old}→{new}"));
    }
    if phrases.take_changed("status/ready") {
        let (old, new) = (number(phrases.old, "status/ready"), number(phrases.new, "status/ready"));
        phrases.say_minor(format!("ready {old}→{new}"));
    }
    phrases.say_field_change("parallelism", "spec/parallelism");
    containers::describe(phrases, "spec/template/spec");
    for field in ["completionTime", "uncountedTerminatedPods", "terminating", "completedIndexes"] {
        if phrases.take_changed(&format!("status/{field}")) {
            phrases.say_minor(format!("{field} changed"));
        }
    }
}

pub(super) fn describe_cron_job(phrases: &mut Phrases<'_>) {
    describe_suspension(phrases, "spec/suspend");
    phrases.say_field_change("schedule", "spec/schedule");
    if phrases.take_changed("status/lastScheduleTime") {
        phrases.say(Tone::Neutral, format!("scheduled for {}", text(phrases.new, "status/lastScheduleTime")));
    }
    if phrases.take_changed("status/lastSuccessfulTime") {
        phrases.say(Tone::Good, format!("succeeded at {}", text(phrases.new, "status/lastSuccessfulTime")));
    }
    if phrases.take_changed("status/active") {
        let jobs = |object: &Value| -> BTreeSet<String> {
            list(object, "status/active").iter().map(|job| text(job, "name").to_owned()).collect()
        };
        let (old, new) = (jobs(phrases.old), jobs(phrases.new));
        phrases.say_set_change("active", &old, &new);
    }
    containers::describe(phrases, "spec/jobTemplate/spec/template/spec");
}

fn describe_suspension(phrases: &mut Phrases<'_>, pattern: &str) {
    if phrases.take_changed(pattern) {
        let is_suspended = |object| flag(object, pattern);
        let text = match (is_suspended(phrases.old), is_suspended(phrases.new)) {
            (false, true) => "suspended".to_owned(),
            (true, false) => "resumed".to_owned(),
            _ => transition("suspend", &short(at(phrases.old, pattern)), &short(at(phrases.new, pattern))),
        };
        phrases.say(Tone::Neutral, text);
    }
}
