//! C3, order: within an epoch, per UID, the versions of `Added` and `Updated` strictly increase.
//!
//! An observed `Deleted` has its own, higher version; an inferred one has no version. Intermediate versions may be
//! skipped, the last one never, and each version exists in the history. `Resynced` repeats the last delivered state. A
//! call after a contained panic is marked as a retry of its event. In the end the event either succeeds or is counted
//! as skipped.

use std::collections::BTreeSet;

use crate::case::{Call, Case, Handler, LossKind};
use crate::clause::Clause;
use crate::objects::{Certainty, HandlerEvent, digest};
use crate::view::TimelinePosition;
use crate::violation::Violation;

pub(super) fn check(case: &Case<'_>, violations: &mut Vec<Violation>) {
    for handler in &case.handlers {
        for call in &handler.calls {
            let mut messages = vec![check_retry(handler, call)];
            if !call.is_retry {
                messages.extend([
                    check_version(case, handler, call),
                    check_deletion(case, handler, call),
                    check_content(case, handler, call),
                ]);
            }
            let messages = messages.into_iter().flatten().map(|description| format!("{}: {description}", call.event));
            violations.extend(messages.map(|description| case.at_call(Clause::C3, handler, call, description)));
        }
        unhandled_panics(case, handler, violations);
        for loss in case.losses(handler).iter().filter(|loss| loss.kind == LossKind::State) {
            let times = (loss.at, case.settled.map(|settled| settled.at).unwrap_or_default());
            violations.push(case.at_handler(Clause::C3, handler, Some(loss.key), times, loss.description.clone()));
        }
    }
}

/// Detects a version that does not increase, or that the history lacks.
fn check_version(case: &Case<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    if let TimelinePosition::Never = call.place {
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
                let repeated =
                    matches!((last_delivered.index, call.place), (Some(old), TimelinePosition::At(new)) if old < new);
                // After it has announced a new epoch, a client cannot know whether the version still denotes the same
                // state.
                let mut epochs = case.informer_of(handler).epochs.iter();
                let repeated =
                    repeated || epochs.any(|epoch| last_delivered.at <= epoch.at && epoch.index <= call.entered.index);
                return (!repeated).then(|| "the same version again, not marked as a retry".to_owned());
            }
            let TimelinePosition::Before(_) = call.place else { return None };
            Some("the handler had received a later state".to_owned())
        }
    }
}

/// Detects a deletion whose version contradicts its certainty.
fn check_deletion(case: &Case<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    let HandlerEvent::Deleted { last, version, certainty, .. } = call.event else { return None };
    match (certainty, version) {
        (Certainty::Inferred, None) => None,
        (Certainty::Inferred, Some(_)) => Some("an inferred deletion has no version".to_owned()),
        (Certainty::Observed, None) => Some("an observed deletion has a version of its own".to_owned()),
        (Certainty::Observed, Some(version)) => {
            let numbers = version.parse::<u64>().ok().zip(last.version.parse::<u64>().ok());
            let (version, last) = numbers.filter(|_| case.informer_of(handler).ordered)?;
            (version <= last).then(|| "the deletion's version is not higher than the object's".to_owned())
        }
    }
}

/// Detects content that does not belong to its version.
fn check_content(case: &Case<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    let (delivered, TimelinePosition::At(index)) = (call.event.object().digest?, call.place) else { return None };
    let state = &case.timeline(case.informer_of(handler), call.key()).states[index];
    let actual = digest(state.object?);
    (actual != delivered).then(|| format!("the content is not that of v{}", state.text))
}

/// Detects a retry that repeats no event, that follows no panic, or that has a wrong number.
fn check_retry(handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    if call.retry == 0 {
        return None;
    }
    let Some(previous) = call.previous.filter(|_| call.is_retry) else {
        return Some(format!("retry {} of an event that was not delivered before", call.retry));
    };
    let previous = &handler.calls[previous];
    // The numbers of retries increase by one, and only a panic allows a retry.
    (!previous.panicked() || call.retry != previous.retry + 1).then(|| {
        let how = if previous.panicked() { "panicked" } else { "did not panic" };
        format!("retry {} after a call that was retry {} and {how}", call.retry, previous.retry)
    })
}

/// Detects skipped events without a panic, and panics that were neither retried nor counted as skipped.
fn unhandled_panics(case: &Case<'_>, handler: &Handler<'_>, violations: &mut Vec<Violation>) {
    let tried = handler.calls.iter().filter(|call| call.panicked());
    let tried: BTreeSet<_> = tried.filter_map(|call| call.skipped).collect();
    for (position, object) in &handler.skips {
        if !tried.contains(position) {
            let description = format!("{object} was skipped, although no call for it had panicked");
            let times = (handler.registered.at, position.at);
            violations.push(case.at_handler(Clause::C3, handler, Some(&object.key), times, description));
        }
    }
    // A removed or stopped handler reports undelivered events, which cover its panics.
    let Some(settled) = case.settled.filter(|_| handler.undelivered == 0 && handler.removed.is_none()) else { return };
    if case.informer_of(handler).stopped_by(settled) {
        return;
    }
    for call in &handler.calls {
        let Some(end) = call.end.filter(|end| end.panicked) else { continue };
        if call.next.is_none() && call.skipped.is_none() {
            let description = format!("{} panicked, and was neither retried nor counted as skipped", call.event);
            violations.push(case.at_handler(
                Clause::C3,
                handler,
                Some(call.key()),
                (end.position.at, settled.at),
                description,
            ));
        }
    }
}
