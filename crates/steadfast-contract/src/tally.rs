//! Counts of deliveries per handler.

use std::collections::BTreeSet;

use crate::case::{Call, Case, Handler};
use crate::seen::{Certainty, Seen};
use crate::verdict::{Tally, Verdict};
use crate::view::Place;

pub(crate) fn verdict(case: &Case<'_>) -> Verdict {
    let handlers = case.handlers.iter().map(|handler| (handler.name.to_owned(), tally(case, handler)));
    Verdict { settled: case.settled.is_some(), handlers: handlers.collect() }
}

fn tally(case: &Case<'_>, handler: &Handler<'_>) -> Tally {
    let informer = case.informer_of(handler);
    let in_time = |at| at > handler.registered.at && handler.removed.is_none_or(|removed| at <= removed.at);
    let mut tally = Tally { calls: handler.calls.len(), skipped: handler.skips.len(), ..Tally::default() };
    tally.changes = case.view(informer).visible.iter().filter(|change| in_time(change.at)).count();
    tally.lost = case.losses(handler).len();
    let mut delivered = BTreeSet::new();
    for call in &handler.calls {
        if call.again {
            tally.retries += 1;
            continue;
        }
        let line = case.line(informer, call.key());
        if let Some(state) =
            change(call).filter(|index| in_time(line.states[*index].at) && !line.states[*index].restored)
        {
            delivered.insert((call.key(), state));
        }
        match repetition(call) {
            Some(Repetition::Same) => tally.repeated += 1,
            Some(Repetition::Older) => tally.out_of_order += 1,
            None => {}
        }
        match call.seen {
            Seen::Added { initial: true, .. } => tally.initial += 1,
            Seen::Deleted { certainty: Certainty::Inferred, .. } => tally.inferred += 1,
            _ => {}
        }
    }
    tally.seen = delivered.len();
    tally.coalesced = tally.changes.saturating_sub(tally.seen + tally.lost);
    tally
}

/// Returns the change of the history that a call delivers.
fn change(call: &Call<'_>) -> Option<usize> {
    match (call.seen, call.place) {
        (Seen::Deleted { .. }, _) => call.exit,
        (Seen::Added { .. } | Seen::Updated { .. }, Place::At(index)) => Some(index),
        _ => None,
    }
}

enum Repetition {
    Same,
    Older,
}

fn repetition(call: &Call<'_>) -> Option<Repetition> {
    let object = call.seen.object();
    let last = call.open.as_ref().filter(|open| open.uid == object.uid);
    match (call.seen, call.place, last) {
        // The object was deleted before, or never added.
        (Seen::Deleted { .. }, _, None) => Some(Repetition::Same),
        (Seen::Resynced { .. } | Seen::Deleted { .. }, ..) => None,
        (_, Place::Behind(_), Some(open)) if open.version == object.version => Some(Repetition::Same),
        (_, Place::At(now), Some(open)) if open.index == Some(now) => Some(Repetition::Same),
        (_, Place::Behind(_), _) => Some(Repetition::Older),
        _ => None,
    }
}
