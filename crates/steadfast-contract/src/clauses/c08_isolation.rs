//! C8, isolation: the pending events of a handler are bounded by the number of objects, not of events.
//!
//! A slow, stuck or panicking handler must not delay other handlers. The traces of the other handlers show such a
//! delay: an endless delay causes losses (C2, C3). C2 and C3 exempt only a handler with a running call.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clause::Clause;
use crate::parsed_trace::{Handler, ParsedTrace, QueueSample};
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    for handler in &parsed.handlers {
        let mut calls = handler.calls.iter().peekable();
        let mut delivered = BTreeSet::new();
        let entry_times = entry_times(parsed, handler);
        for sample in &handler.queue_samples {
            while let Some(call) = calls.next_if(|call| call.start <= sample.position) {
                delivered.insert((call.key(), &call.event.object().uid));
            }
            // The number of live objects cannot exceed the number of names that have entered the scope up to this
            // instant.
            let names = entry_times.partition_point(|at| *at <= parsed.latest_reflected(sample.position.at));
            if let Some(description) =
                check_sample(sample).or_else(|| check_counts(sample, delivered.len() + handler.concurrency, names))
            {
                let times = (handler.registered.at, sample.position.at);
                violations.push(parsed.handler_violation(Clause::C8, handler, None, times, description));
            }
        }
    }
}

/// Returns the times at which each name first entered the scope, in order.
fn entry_times(parsed: &ParsedTrace<'_>, handler: &Handler<'_>) -> Vec<Duration> {
    let timelines = parsed.view(parsed.informer_of(handler)).timelines.values();
    let mut entry_times: Vec<_> =
        timelines.filter_map(|timeline| Some(timeline.states[timeline.stays.first()?.first].at)).collect();
    entry_times.sort();
    entry_times
}

fn check_sample(sample: &QueueSample) -> Option<String> {
    let QueueSample { entries, stored, undeleted, .. } = sample;
    // Each live object has at most one pending entry, and each undelivered deletion has one more.
    (*entries > stored + undeleted).then(|| {
        format!(
            "{entries} entries are pending, with {stored} objects live and {undeleted} delivered as added and not as deleted"
        )
    })
}

/// Detects impossible counts, which would raise the limit of `check_sample`. The counts may include calls that have not
/// started yet.
fn check_counts(sample: &QueueSample, delivered: usize, names: usize) -> Option<String> {
    let QueueSample { stored, undeleted, .. } = sample;
    if *undeleted > delivered {
        return Some(format!(
            "{undeleted} objects are reported as added and not deleted, of {delivered} ever delivered"
        ));
    }
    (*stored > names).then(|| format!("{stored} objects are reported as live, of {names} names that ever existed"))
}
