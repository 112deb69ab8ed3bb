//! Whether there is enough to say that the contract was kept: where nothing was recorded, nothing is broken.

use crate::breach::Inconclusive;
use crate::case::{Case, Informer};

/// What is missing, with what to do about it.
pub(crate) fn missing(case: &Case<'_>) -> Vec<Inconclusive> {
    let of_all = |what: &str| Inconclusive { informer: None, what: what.to_owned() };
    if case.informers.is_empty() {
        return vec![of_all("the trace is empty: no informer was recorded")];
    }
    let mut missing = Vec::new();
    if case.history.changes().is_empty() {
        missing.push(of_all(
            "the history has no change: either nothing was written, or it is not that of the resource that the informers watch \
             (its plural name is needed, as in `configmaps`)",
        ));
    }
    let Some(settled) = case.settled else {
        missing.push(of_all(
            "the trace has not settled, so nothing was judged as lost: have the recorder wait until the informers have all \
             that was written, and record `Quiet` before and `Settled` after that",
        ));
        return missing;
    };
    let running = case.informers.iter().filter(|informer| !informer.stopped_by(settled));
    let silent = running.clone().filter(|informer| is_silent(case, informer));
    missing.extend(silent.map(|informer| Inconclusive {
        informer: Some(informer.name.to_owned()),
        what: "nothing of what it held or told was recorded: neither a handler, nor a read, nor a snapshot".to_owned(),
    }));
    if running.count() == 0 {
        missing.push(of_all("every informer was stopped before the trace settled, so nothing was judged as lost"));
    }
    missing
}

/// Whether a trace says nothing of an informer but that it is there.
fn is_silent(case: &Case<'_>, informer: &Informer<'_>) -> bool {
    let unread = informer.snapshots.is_empty() && informer.has_no_answers() && informer.waits.is_empty();
    unread && !case.handlers.iter().any(|handler| std::ptr::eq(case.informer_of(handler), informer))
}
