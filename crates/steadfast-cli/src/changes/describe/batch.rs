//! Jobs and `CronJobs`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::containers;
use crate::changes::phrases::{Phrases, Tone, at, flag, list, number, text, transition};
use crate::changes::value_text::short;

pub(super) fn job(phrases: &mut Phrases<'_>) {
    suspend(phrases, "spec/suspend");
    if phrases.cover("status/succeeded") {
        let (old, new) = (number(phrases.old, "status/succeeded"), number(phrases.new, "status/succeeded"));
        let all = at(phrases.new, "spec/completions").map_or(String::new(), |all| format!(" of {}", short(Some(all))));
        phrases.say(Tone::Good, format!("succeeded {old}→{new}{all}"));
    }
    phrases.count("failed", "status/failed", Tone::Bad);
    if phrases.cover("status/active") {
        let (old, new) = (number(phrases.old, "status/active"), number(phrases.new, "status/active"));
        phrases.say(Tone::Neutral, format!("active {old}→{new}"));
    }
    if phrases.cover("status/ready") {
        let (old, new) = (number(phrases.old, "status/ready"), number(phrases.new, "status/ready"));
        phrases.say_minor(format!("ready {old}→{new}"));
    }
    phrases.field("parallelism", "spec/parallelism");
    containers::describe(phrases, "spec/template/spec");
    for covered in ["completionTime", "uncountedTerminatedPods", "terminating", "completedIndexes"] {
        if phrases.cover(&format!("status/{covered}")) {
            phrases.say_minor(format!("{covered} changed"));
        }
    }
}

pub(super) fn cron_job(phrases: &mut Phrases<'_>) {
    suspend(phrases, "spec/suspend");
    phrases.field("schedule", "spec/schedule");
    if phrases.cover("status/lastScheduleTime") {
        phrases.say(Tone::Neutral, format!("scheduled for {}", text(phrases.new, "status/lastScheduleTime")));
    }
    if phrases.cover("status/lastSuccessfulTime") {
        phrases.say(Tone::Good, format!("succeeded at {}", text(phrases.new, "status/lastSuccessfulTime")));
    }
    if phrases.cover("status/active") {
        let jobs = |object: &Value| -> BTreeSet<String> {
            list(object, "status/active").iter().map(|job| text(job, "name").to_owned()).collect()
        };
        let (old, new) = (jobs(phrases.old), jobs(phrases.new));
        phrases.sets("active", &old, &new);
    }
    containers::describe(phrases, "spec/jobTemplate/spec/template/spec");
}

fn suspend(phrases: &mut Phrases<'_>, place: &str) {
    if phrases.cover(place) {
        let is_suspended = |object| flag(object, place);
        let text = match (is_suspended(phrases.old), is_suspended(phrases.new)) {
            (false, true) => "suspended".to_owned(),
            (true, false) => "resumed".to_owned(),
            _ => transition("suspend", &short(at(phrases.old, place)), &short(at(phrases.new, place))),
        };
        phrases.say(Tone::Neutral, text);
    }
}
