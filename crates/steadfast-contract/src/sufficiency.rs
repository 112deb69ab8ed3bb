//! Checks that a trace contains enough evidence. A trace without records violates no clause and proves nothing.

use crate::parsed_trace::{Informer, ParsedTrace};
use crate::violation::Inconclusive;

/// Returns the missing evidence, and how to record it.
pub(crate) fn find_missing(parsed: &ParsedTrace<'_>) -> Vec<Inconclusive> {
    let inconclusive = |description: &str| Inconclusive { informer: None, description: description.to_owned() };
    if parsed.informers.is_empty() {
        return vec![inconclusive("the trace is empty: no informer was recorded")];
    }
    let mut missing = Vec::new();
    if parsed.history.changes().is_empty() {
        missing.push(inconclusive(
            "the history has no change: either nothing was written, or the history belongs to another resource than \
             the informers watch (its plural name is needed, as in `configmaps`)",
        ));
    }
    let Some(settled) = parsed.settled else {
        missing.push(inconclusive(
            "the trace has not settled, so losses were not checked: let the recorder wait until the informers have \
             received all writes, and record `Quiet` before and `Settled` after the wait",
        ));
        // The following checks need the time at which the trace settled.
        return missing;
    };
    let running_informers = parsed.informers.iter().filter(|informer| !informer.is_stopped_by(settled));
    let silent_informers = running_informers.clone().filter(|informer| is_silent(parsed, informer));
    missing.extend(silent_informers.map(|informer| {
        Inconclusive {
            informer: Some(informer.name.to_owned()),
            description:
                "no content of its cache and no delivery was recorded: neither a handler, nor a read, nor a snapshot"
                    .to_owned(),
        }
    }));
    if running_informers.count() == 0 {
        missing.push(inconclusive("every informer was stopped before the trace settled, so losses were not checked"));
    }
    missing
}

/// Returns whether a trace contains no handler of an informer, no wait, and no content of its cache.
fn is_silent(parsed: &ParsedTrace<'_>, informer: &Informer<'_>) -> bool {
    let is_unread = informer.snapshots.is_empty() && informer.has_no_reads() && informer.waits.is_empty();
    // Compared by address: two informers can have equal names in a malformed trace.
    is_unread && !parsed.handlers.iter().any(|handler| std::ptr::eq(parsed.informer_of(handler), informer))
}
