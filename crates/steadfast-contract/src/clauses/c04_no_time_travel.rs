//! C4, no time travel: within an epoch neither the store nor a handler goes back to an older state.
//!
//! A new epoch, in which versions may be lower, is announced before its first state is visible.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::case::{Case, Handler, Informer};
use crate::clause::Clause;
use crate::seen::{Key, Seen};
use crate::view::Place;
use crate::violation::Violation;

pub(super) fn judge(case: &Case<'_>, violations: &mut Vec<Violation>) {
    for handler in &case.handlers {
        of_handler(case, handler, violations);
    }
    for informer in &case.informers {
        of_store(case, informer, violations);
    }
}

fn of_handler(case: &Case<'_>, handler: &Handler<'_>, violations: &mut Vec<Violation>) {
    let informer = case.informer_of(handler);
    for call in handler.calls.iter().filter(|call| !call.again) {
        let open = call.open.as_ref().filter(|open| open.uid == call.seen.object().uid);
        let what = match (call.seen, call.place) {
            // A repeated delivery of the last state is not a step back.
            (_, Place::Behind(_)) if open.is_some_and(|open| open.version == call.seen.object().version) => continue,
            (seen @ (Seen::Added { .. } | Seen::Updated { .. }), Place::Behind(_)) => {
                format!("{seen} is older than the last delivered state")
            }
            (seen, Place::At(now)) => {
                let Some(before) = open.and_then(|open| open.index) else { continue };
                let line = case.line(informer, call.key());
                if !case.unannounced(informer, line, before, now, call.entered.at) {
                    continue;
                }
                format!("{seen} is of a new epoch that was not announced")
            }
            _ => continue,
        };
        violations.push(case.at_call(Clause::C4, handler, call, what));
    }
}

/// Checks the reads of each name. Each read must match a state that is not older than the state of the previous read.
fn of_store(case: &Case<'_>, informer: &Informer<'_>, violations: &mut Vec<Violation>) {
    // Opaque versions have no order in which a store could go back.
    if !informer.ordered {
        return;
    }
    let mut reached: BTreeMap<&Key, (usize, Duration)> = BTreeMap::new();
    let answers = case.answers(informer);
    for answer in &answers {
        let at = answer.moment.at;
        let line = case.line(informer, answer.key);
        let (before, since) = *reached.entry(answer.key).or_insert((0, informer.declared.at));
        // `None` means that the recorder did not read the store.
        let what = match line.stands(&answer.held, before, case.known_by(at)) {
            None => continue,
            Some(Place::At(now)) => {
                // The position moves only forward: a later read of an older state is then a violation.
                reached.insert(answer.key, (now, at));
                if !case.unannounced(informer, line, before, now, at) {
                    continue;
                }
                format!("the store held {}, of a new epoch that was not announced", answer.held)
            }
            Some(Place::Behind(_)) => {
                let state = &line.states[before];
                let was = if state.stay.is_some() { "the state" } else { "the absence" };
                format!("the store held {} after {was} of v{}, which is later", answer.held, state.text)
            }
            Some(Place::Outside(_)) => format!("the store held {}, which was not in scope", answer.held),
            Some(Place::Never) => format!("the store held {}, which the server never had", answer.held),
        };
        violations.push(informer.violation(Clause::C4, Some(answer.key), (since, at), what));
    }
}
