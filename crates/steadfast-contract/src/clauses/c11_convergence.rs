//! C11, convergence: once the server is reachable and its history is at rest, the store equals it exactly, within a
//! bounded time, and freshness is `Fresh`.
//!
//! Judged where the trace says `Quiet`, from the bound on, or from where the recorder says `Settled`.

use std::collections::BTreeSet;

use crate::breach::Breach;
use crate::case::{Case, Informer, Moment, Snapshot};
use crate::clause::Clause;
use crate::trace::Freshness;

pub(super) fn judge(case: &Case<'_>, breaches: &mut Vec<Breach>) {
    let Some(settled) = case.settled else { return };
    for informer in case.informers.iter().filter(|informer| !informer.stopped_by(settled)) {
        for snapshot in informer.snapshots.iter().filter(|snapshot| snapshot.moment.at >= settled.at) {
            unequal(case, informer, snapshot, breaches);
        }
        doubtful(informer, settled, breaches);
    }
}

/// Names whose content in the store is not that of the history.
fn unequal(case: &Case<'_>, informer: &Informer<'_>, snapshot: &Snapshot<'_>, breaches: &mut Vec<Breach>) {
    let Snapshot { moment, objects, tainted } = snapshot;
    let lines = &case.view(informer).lines;
    let names: BTreeSet<_> = lines.keys().chain(objects.keys().copied()).chain(tainted.iter().copied()).collect();
    for key in names {
        let last = case.line(informer, key).last();
        let what = match (objects.get(key), last.stay) {
            (None, None) if !tainted.contains(key) => continue,
            (Some(held), Some(_)) if last.shows(held) => continue,
            (_, Some(_)) if tainted.contains(key) => continue,
            (None, None) => "the store names it as undecodable, the server has no such object in scope".to_owned(),
            (None, Some(_)) => format!("the store lacks it, the server has uid {} v{}", last.uid, last.text),
            (Some(held), None) => {
                format!("the store has uid {} v{}, the server nothing in scope", held.uid, held.version)
            }
            (Some(held), Some(_)) => {
                let (uid, text) = (last.uid, &last.text);
                format!("the store has uid {} v{}, the server uid {uid} v{text}", held.uid, held.version)
            }
        };
        breaches.push(informer.breach(Clause::C11, Some(key), (last.at, moment.at), what));
    }
}

/// A freshness that is in doubt though everything is as it should be.
fn doubtful(informer: &Informer<'_>, settled: Moment, breaches: &mut Vec<Breach>) {
    // By the order of the trace: what comes in the very instant in which all was settled, but after that, is not about it.
    let in_force = informer.freshness.iter().rev().find(|(moment, _)| *moment <= settled);
    let Some((moment, state)) = in_force.or(informer.freshness.first()) else { return };
    if !matches!(state, Freshness::Fresh { .. }) {
        let what = format!("the server is reachable and quiet, and freshness is {state:?}");
        let moments = (moment.at, settled.at.max(moment.at));
        breaches.push(informer.breach(Clause::C11, None, moments, what));
    }
}
