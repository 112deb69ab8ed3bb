//! Counts of deliveries per handler.

use std::collections::BTreeSet;

use crate::objects::{Certainty, HandlerEvent};
use crate::parsed_trace::{Call, Handler, ParsedTrace};
use crate::verdict::{HandlerCounts, Verdict};
use crate::view::TimelinePosition;

pub(crate) fn verdict(parsed: &ParsedTrace<'_>) -> Verdict {
    let handlers = parsed.handlers.iter().map(|handler| (handler.name.to_owned(), counts_of(parsed, handler)));
    Verdict { settled: parsed.settled.is_some(), handlers: handlers.collect() }
}

fn counts_of(parsed: &ParsedTrace<'_>, handler: &Handler<'_>) -> HandlerCounts {
    let informer = parsed.informer_of(handler);
    let is_registered_at = |at| at > handler.registered.at && handler.removed.is_none_or(|removed| at <= removed.at);
    let mut counts =
        HandlerCounts { calls: handler.calls.len(), skipped: handler.skips.len(), ..HandlerCounts::default() };
    counts.changes = parsed.view(informer).visible_changes.iter().filter(|change| is_registered_at(change.at)).count();
    counts.lost = parsed.losses(handler).len();
    let mut delivered = BTreeSet::new();
    for call in &handler.calls {
        if call.is_retry {
            counts.retries += 1;
            continue;
        }
        let timeline = parsed.timeline(informer, call.key());
        if let Some(state) = delivered_change(call)
            .filter(|index| is_registered_at(timeline.states[*index].at) && !timeline.states[*index].is_restored)
        {
            delivered.insert((call.key(), state));
        }
        match repetition(call) {
            Some(Repetition::Same) => counts.repeated += 1,
            Some(Repetition::Older) => counts.out_of_order += 1,
            None => {}
        }
        match call.event {
            HandlerEvent::Added { initial: true, .. } => counts.initial += 1,
            HandlerEvent::Deleted { certainty: Certainty::Inferred, .. } => counts.inferred += 1,
            _ => {}
        }
    }
    counts.seen = delivered.len();
    counts.coalesced = counts.changes.saturating_sub(counts.seen + counts.lost);
    counts
}

/// Returns the index, in the timeline, of the change that a call delivers.
fn delivered_change(call: &Call<'_>) -> Option<usize> {
    match (call.event, call.timeline_position) {
        (HandlerEvent::Deleted { .. }, _) => call.exit_state,
        (HandlerEvent::Added { .. } | HandlerEvent::Updated { .. }, TimelinePosition::At(index)) => Some(index),
        _ => None,
    }
}

enum Repetition {
    Same,
    Older,
}

fn repetition(call: &Call<'_>) -> Option<Repetition> {
    let object = call.event.object();
    let last = call.last_delivered.as_ref().filter(|last_delivered| last_delivered.uid == object.uid);
    match (call.event, call.timeline_position, last) {
        // The object was deleted before, or never added.
        (HandlerEvent::Deleted { .. }, _, None) => Some(Repetition::Same),
        (HandlerEvent::Resynced { .. } | HandlerEvent::Deleted { .. }, ..) => None,
        (_, TimelinePosition::Before(_), Some(last_delivered)) if last_delivered.version == object.version => {
            Some(Repetition::Same)
        }
        (_, TimelinePosition::At(now), Some(last_delivered)) if last_delivered.index == Some(now) => {
            Some(Repetition::Same)
        }
        (_, TimelinePosition::Before(_), _) => Some(Repetition::Older),
        _ => None,
    }
}
