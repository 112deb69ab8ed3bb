//! C4, no time travel: within an epoch neither the cache nor a handler returns to an older state.
//!
//! A new epoch, in which versions may be lower, is announced before its first state is visible.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clause::Clause;
use crate::objects::{HandlerEvent, Key, StoreContent};
use crate::parsed_trace::{Handler, Informer, ParsedTrace};
use crate::view::TimelinePosition;
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    for handler in &parsed.handlers {
        check_handler(parsed, handler, violations);
    }
    for informer in &parsed.informers {
        check_store(parsed, informer, violations);
    }
}

fn check_handler(parsed: &ParsedTrace<'_>, handler: &Handler<'_>, violations: &mut Vec<Violation>) {
    let informer = parsed.informer_of(handler);
    for call in handler.calls.iter().filter(|call| !call.is_retry) {
        let last_delivered =
            call.last_delivered.as_ref().filter(|last_delivered| last_delivered.uid == call.event.object().uid);
        let description = match (call.event, call.timeline_position) {
            // A repeated delivery of the last state is not a step back.
            (_, TimelinePosition::Before(_))
                if last_delivered
                    .is_some_and(|last_delivered| last_delivered.version == call.event.object().version) =>
            {
                continue;
            }
            (event @ (HandlerEvent::Added { .. } | HandlerEvent::Updated { .. }), TimelinePosition::Before(_)) => {
                format!("{event} is older than the last delivered state")
            }
            (event, TimelinePosition::At(index)) => {
                let Some(previous) = last_delivered.and_then(|last_delivered| last_delivered.index) else { continue };
                let timeline = parsed.timeline(informer, call.key());
                if !parsed.enters_unannounced_epoch(informer, timeline, previous, index, call.start.at) {
                    continue;
                }
                format!("{event} is of a new epoch that was not announced")
            }
            _ => continue,
        };
        violations.push(parsed.call_violation(Clause::C4, handler, call, description));
    }
}

/// Checks the reads of each name. Each read must match a state that is not older than the state of the previous read.
fn check_store(parsed: &ParsedTrace<'_>, informer: &Informer<'_>, violations: &mut Vec<Violation>) {
    // Opaque versions have no order, so an older state cannot be recognized.
    if !informer.has_ordered_versions {
        return;
    }
    let mut last_states: BTreeMap<&Key, (usize, Duration)> = BTreeMap::new();
    let reads = parsed.reads(informer);
    for read in &reads {
        let at = read.position.at;
        let timeline = parsed.timeline(informer, read.key);
        let (previous, since) = *last_states.entry(read.key).or_insert((0, informer.declared.at));
        // `None` means that the recorder did not read the cache.
        let description = match timeline.find_content(&read.content, previous, parsed.latest_reflected(at)) {
            None => continue,
            Some(TimelinePosition::At(index)) => {
                // The position moves only forward: a later read of an older state is then a violation.
                last_states.insert(read.key, (index, at));
                if !parsed.enters_unannounced_epoch(informer, timeline, previous, index, at) {
                    continue;
                }
                format!("the cache held {}, of a new epoch that was not announced", read.content)
            }
            Some(TimelinePosition::Before(_)) => {
                let state = &timeline.states[previous];
                let previous_content = if state.stay.is_some() { "the state" } else { "the absence" };
                format!(
                    "the cache held {} after {previous_content} of v{}, which is later",
                    read.content, state.wire_version
                )
            }
            // The handlers of this informer filter its objects, not the server. A filter cannot be evaluated on an
            // undecodable state, so a read of such an object is valid even if the object is out of scope.
            Some(TimelinePosition::OutOfScope(_))
                if informer.is_filtered_by_handlers && matches!(*read.content, StoreContent::Undecodable { .. }) =>
            {
                continue;
            }
            Some(TimelinePosition::OutOfScope(_)) => format!("the cache held {}, which was not in scope", read.content),
            Some(TimelinePosition::Missing) => format!("the cache held {}, which the server never had", read.content),
        };
        violations.push(informer.violation(Clause::C4, Some(read.key), (since, at), description));
    }
}
