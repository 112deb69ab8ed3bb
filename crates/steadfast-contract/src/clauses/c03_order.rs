//! C3, order: within an epoch, per UID, the versions of `Added` and `Updated` strictly increase.
//!
//! An observed `Deleted` has its own, higher version; an inferred one has no version. Intermediate versions may be
//! skipped, the last one never, and each version exists in the history. `Resynced` repeats the last delivered state. A
//! call after a contained panic is marked as a retry of its event. In the end the event either succeeds or is counted
//! as skipped.

use std::collections::BTreeSet;

use crate::clause::Clause;
use crate::objects::{Certainty, HandlerEvent, digest};
use crate::parsed_trace::{Call, Handler, LossKind, ParsedTrace};
use crate::view::TimelinePosition;
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    for handler in &parsed.handlers {
        for call in &handler.calls {
            let mut messages = vec![check_retry(handler, call)];
            if !call.is_retry {
                messages.extend([
                    check_version(parsed, handler, call),
                    check_deletion(parsed, handler, call),
                    check_content(parsed, handler, call),
                ]);
            }
            let messages = messages.into_iter().flatten().map(|description| format!("{}: {description}", call.event));
            violations
                .extend(messages.map(|description| parsed.call_violation(Clause::C3, handler, call, description)));
        }
        check_panics(parsed, handler, violations);
        for loss in parsed.losses(handler).iter().filter(|loss| loss.kind == LossKind::LastState) {
            let times = (loss.at, parsed.settled.map(|settled| settled.at).unwrap_or_default());
            violations.push(parsed.handler_violation(
                Clause::C3,
                handler,
                Some(loss.key),
                times,
                loss.description.clone(),
            ));
        }
    }
}

/// Detects a version that does not increase, or that the history lacks.
fn check_version(parsed: &ParsedTrace<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    if let TimelinePosition::Missing = call.timeline_position {
        return Some("the history has no such state of the object".to_owned());
    }
    let last_delivered =
        call.last_delivered.as_ref().filter(|last_delivered| last_delivered.uid == call.event.object().uid);
    match call.event {
        HandlerEvent::Resynced { object } => {
            let last_delivered = last_delivered.filter(|last_delivered| last_delivered.version != object.version)?;
            Some(format!("a resync must repeat the last delivered state, v{}", last_delivered.version))
        }
        // C2 checks an earlier `last`.
        HandlerEvent::Deleted { .. } => None,
        HandlerEvent::Added { object, .. } | HandlerEvent::Updated { new: object, .. } => {
            if let Some(last_delivered) =
                last_delivered.filter(|last_delivered| last_delivered.version == object.version)
            {
                // A restore can repeat the same version later on the timeline.
                let is_repeated = match (last_delivered.index, call.timeline_position) {
                    (Some(old), TimelinePosition::At(new)) => old < new,
                    _ => false,
                };
                // After it has announced a new epoch, a client cannot determine whether the version still denotes the
                // same state.
                let mut epochs = parsed.informer_of(handler).epoch_announcements.iter();
                let is_repeated =
                    is_repeated || epochs.any(|epoch| last_delivered.at <= epoch.at && epoch.index <= call.start.index);
                return (!is_repeated).then(|| "the same version again, not marked as a retry".to_owned());
            }
            let TimelinePosition::Before(_) = call.timeline_position else { return None };
            Some("the handler had received a later state".to_owned())
        }
    }
}

/// Detects a deletion whose version contradicts its certainty.
fn check_deletion(parsed: &ParsedTrace<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    let HandlerEvent::Deleted { last, version, certainty, .. } = call.event else { return None };
    match (certainty, version) {
        (Certainty::Inferred, None) => None,
        (Certainty::Inferred, Some(_)) => Some("an inferred deletion has no version".to_owned()),
        (Certainty::Observed, None) => Some("an observed deletion has a version of its own".to_owned()),
        (Certainty::Observed, Some(version)) => {
            let numbers = version.parse::<u64>().ok().zip(last.version.parse::<u64>().ok());
            let (version, last) = numbers.filter(|_| parsed.informer_of(handler).has_ordered_versions)?;
            (version <= last).then(|| "the deletion's version is not higher than the object's".to_owned())
        }
    }
}

/// Detects content that does not belong to its version.
fn check_content(parsed: &ParsedTrace<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    let (delivered, TimelinePosition::At(index)) = (call.event.object().digest?, call.timeline_position) else {
        return None;
    };
    let state = &parsed.timeline(parsed.informer_of(handler), call.key()).states[index];
    let actual = digest(state.object?);
    (actual != delivered).then(|| format!("the content is not that of v{}", state.wire_version))
}

/// Detects a retry that repeats no event, that follows no panic, or that has a wrong number.
fn check_retry(handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    if call.retry == 0 {
        return None;
    }
    let Some(previous) = call.previous_for_name.filter(|_| call.is_retry) else {
        return Some(format!("retry {} of an event that was not delivered before", call.retry));
    };
    let previous = &handler.calls[previous];
    // The numbers of retries increase by one, and only a panic allows a retry.
    (!previous.has_panicked() || call.retry != previous.retry + 1).then(|| {
        let outcome = if previous.has_panicked() { "panicked" } else { "did not panic" };
        format!("retry {} after a call that was retry {} and {outcome}", call.retry, previous.retry)
    })
}

/// Detects skipped events without a panic, and panics that were neither retried nor counted as skipped.
fn check_panics(parsed: &ParsedTrace<'_>, handler: &Handler<'_>, violations: &mut Vec<Violation>) {
    let panic_skips = handler.calls.iter().filter(|call| call.has_panicked());
    let panic_skips: BTreeSet<_> = panic_skips.filter_map(|call| call.skipped_at).collect();
    for (position, object) in &handler.skips {
        if !panic_skips.contains(position) {
            let description = format!("{object} was skipped, although no call for it had panicked");
            let times = (handler.registered.at, position.at);
            violations.push(parsed.handler_violation(Clause::C3, handler, Some(&object.key), times, description));
        }
    }
    // A removed or stopped handler reports undelivered events, which cover its panics.
    let Some(settled) = parsed.settled.filter(|_| handler.undelivered == 0 && handler.removed.is_none()) else {
        return;
    };
    if parsed.informer_of(handler).is_stopped_by(settled) {
        return;
    }
    for call in &handler.calls {
        let Some(end) = call.end.filter(|end| end.has_panicked) else { continue };
        if call.next_for_name.is_none() && call.skipped_at.is_none() {
            let description = format!("{} panicked, and was neither retried nor counted as skipped", call.event);
            violations.push(parsed.handler_violation(
                Clause::C3,
                handler,
                Some(call.key()),
                (end.position.at, settled.at),
                description,
            ));
        }
    }
}
