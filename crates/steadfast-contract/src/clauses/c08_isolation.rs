//! C8, isolation: the pending events of a handler are bounded by the number of objects, not of events.
//!
//! A slow, stuck or panicking handler must not delay other handlers. The traces of the other handlers show such a
//! delay: an endless delay causes losses (C2, C3). C2 and C3 exempt only a handler with a running call.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::case::{Case, Depth, Handler};
use crate::clause::Clause;
use crate::violation::Violation;

pub(super) fn judge(case: &Case<'_>, violations: &mut Vec<Violation>) {
    for handler in &case.handlers {
        let mut calls = handler.calls.iter().peekable();
        let mut delivered = BTreeSet::new();
        let entry_times = entry_times(case, handler);
        for depth in &handler.depths {
            while let Some(call) = calls.next_if(|call| call.entered <= depth.moment) {
                delivered.insert((call.key(), &call.seen.object().uid));
            }
            // The number of live objects cannot exceed the number of names that have entered the scope up to this
            // instant.
            let names = entry_times.partition_point(|at| *at <= case.known_by(depth.moment.at));
            if let Some(what) =
                too_deep(depth).or_else(|| impossible(depth, delivered.len() + handler.concurrency, names))
            {
                let moments = (handler.registered.at, depth.moment.at);
                violations.push(case.at_handler(Clause::C8, handler, None, moments, what));
            }
        }
    }
}

/// Returns the times at which each name first entered the scope, in order.
fn entry_times(case: &Case<'_>, handler: &Handler<'_>) -> Vec<Duration> {
    let lines = case.view(case.informer_of(handler)).lines.values();
    let mut entry_times: Vec<_> = lines.filter_map(|line| Some(line.states[line.stays.first()?.first].at)).collect();
    entry_times.sort();
    entry_times
}

fn too_deep(depth: &Depth) -> Option<String> {
    let Depth { entries, live, owed, .. } = depth;
    // Each live object has at most one pending entry, and each undelivered deletion has one more.
    (*entries > live + owed).then(|| {
        format!(
            "{entries} entries are pending, with {live} objects live and {owed} delivered as added and not as deleted"
        )
    })
}

/// Detects impossible counts, which would raise the limit of `too_deep`. The counts may include calls that have not
/// started yet.
fn impossible(depth: &Depth, delivered: usize, names: usize) -> Option<String> {
    let Depth { live, owed, .. } = depth;
    if *owed > delivered {
        return Some(format!("{owed} objects are reported to await a deletion, of {delivered} ever delivered"));
    }
    (*live > names).then(|| format!("{live} objects are reported as live, of {names} names that ever existed"))
}
