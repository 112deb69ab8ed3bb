//! C11, convergence: if the server is reachable and its history does not change, the cache equals the history within a
//! bounded time. Freshness is then `Fresh`.
//!
//! The check starts at the bound after `Quiet`, or at `Settled`.

use std::collections::BTreeSet;

use crate::clause::Clause;
use crate::parsed_trace::{Informer, ParsedTrace, Snapshot, TracePosition};
use crate::trace::Freshness;
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    let Some(settled) = parsed.settled else { return };
    for informer in parsed.informers.iter().filter(|informer| !informer.is_stopped_by(settled)) {
        for snapshot in informer.snapshots.iter().filter(|snapshot| snapshot.position.at >= settled.at) {
            check_snapshot(parsed, informer, snapshot, violations);
        }
        check_freshness(informer, settled, violations);
    }
}

/// Detects names whose content in the cache differs from the history.
fn check_snapshot(
    parsed: &ParsedTrace<'_>,
    informer: &Informer<'_>,
    snapshot: &Snapshot<'_>,
    violations: &mut Vec<Violation>,
) {
    let Snapshot { position, objects, tainted } = snapshot;
    let timelines = &parsed.view(informer).timelines;
    // Names of all three sources: each may contain a name that the others lack.
    let names: BTreeSet<_> = timelines.keys().chain(objects.keys().copied()).chain(tainted.iter().copied()).collect();
    for key in names {
        let last = parsed.timeline(informer, key).last();
        let description = match (objects.get(key), last.stay) {
            (None, None) if !tainted.contains(key) => continue,
            (Some(content), Some(_)) if last.matches(content) => continue,
            // The cache reports that the newest state does not decode. Its content may then be older, or absent.
            (_, Some(_)) if tainted.contains(key) => continue,
            (None, None) => "the cache reports an undecodable object, the server has none in scope".to_owned(),
            (None, Some(_)) => {
                format!("the cache lacks the object, the server has uid {} v{}", last.uid, last.wire_version)
            }
            (Some(content), None) => {
                format!("the cache has uid {} v{}, the server has no object in scope", content.uid, content.version)
            }
            (Some(content), Some(_)) => {
                let (uid, version) = (last.uid, &last.wire_version);
                format!("the cache has uid {} v{}, the server uid {uid} v{version}", content.uid, content.version)
            }
        };
        violations.push(informer.violation(Clause::C11, Some(key), (last.at, position.at), description));
    }
}

/// Detects a freshness in doubt after the trace has settled.
fn check_freshness(informer: &Informer<'_>, settled: TracePosition, violations: &mut Vec<Violation>) {
    // The order of the trace decides: later entries of the same instant do not describe the settled state.
    let settled_report = informer.freshness.iter().rev().find(|(position, _)| *position <= settled);
    let Some((position, state)) = settled_report.or(informer.freshness.first()) else { return };
    if !matches!(state, Freshness::Fresh { .. }) {
        let description =
            format!("freshness is {state:?} although the server is reachable and its history does not change");
        let times = (position.at, settled.at.max(position.at));
        violations.push(informer.violation(Clause::C11, None, times, description));
    }
}
