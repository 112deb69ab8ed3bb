//! C3, order: within an epoch, per UID, the versions of `Added` and `Updated` strictly increase.
//!
//! An observed `Deleted` has its own, higher version; an inferred one has no version. Intermediate versions may be
//! skipped, the last one never, and each version exists in the history. `Resynced` repeats the last delivered state. A
//! call after a contained panic is marked as a retry of its event. In the end the event either succeeds or is counted
//! as skipped.

use std::collections::BTreeSet;

use crate::case::{Call, Case, Handler, LossKind};
use crate::clause::Clause;
use crate::seen::{Certainty, Seen, digest};
use crate::view::Place;
use crate::violation::Violation;

pub(super) fn judge(case: &Case<'_>, violations: &mut Vec<Violation>) {
    for handler in &case.handlers {
        for call in &handler.calls {
            let mut messages = vec![retried(handler, call)];
            if !call.again {
                messages.extend([
                    rising(case, handler, call),
                    deletion(case, handler, call),
                    content(case, handler, call),
                ]);
            }
            let messages = messages.into_iter().flatten().map(|what| format!("{}: {what}", call.seen));
            violations.extend(messages.map(|what| case.at_call(Clause::C3, handler, call, what)));
        }
        unhandled_panics(case, handler, violations);
        for loss in case.losses(handler).iter().filter(|loss| loss.kind == LossKind::State) {
            let moments = (loss.at, case.settled.map(|settled| settled.at).unwrap_or_default());
            violations.push(case.at_handler(Clause::C3, handler, Some(loss.key), moments, loss.what.clone()));
        }
    }
}

/// Detects a version that does not increase, or that the history lacks.
fn rising(case: &Case<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    if let Place::Never = call.place {
        return Some("the history has no such state of the object".to_owned());
    }
    let open = call.open.as_ref().filter(|open| open.uid == call.seen.object().uid);
    match call.seen {
        Seen::Resynced { object } => {
            let open = open.filter(|open| open.version != object.version)?;
            Some(format!("a resync must repeat the last delivered state, v{}", open.version))
        }
        // C2 checks an earlier `last`.
        Seen::Deleted { .. } => None,
        Seen::Added { object, .. } | Seen::Updated { new: object, .. } => {
            if let Some(open) = open.filter(|open| open.version == object.version) {
                // A restore can repeat the same version later on the timeline.
                let repeated = matches!((open.index, call.place), (Some(old), Place::At(new)) if old < new);
                // After it has announced a new epoch, a client cannot know whether the version still denotes the same
                // state.
                let mut epochs = case.informer_of(handler).epochs.iter();
                let repeated =
                    repeated || epochs.any(|epoch| open.at <= epoch.at && epoch.position <= call.entered.position);
                return (!repeated).then(|| "the same version again, not marked as a retry".to_owned());
            }
            let Place::Behind(_) = call.place else { return None };
            Some("the handler had received a later state".to_owned())
        }
    }
}

/// Detects a deletion whose version contradicts its certainty.
fn deletion(case: &Case<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    let Seen::Deleted { last, version, certainty, .. } = call.seen else { return None };
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
fn content(case: &Case<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    let (delivered, Place::At(index)) = (call.seen.object().digest?, call.place) else { return None };
    let state = &case.line(case.informer_of(handler), call.key()).states[index];
    let actual = digest(state.object?);
    (actual != delivered).then(|| format!("the content is not that of v{}", state.text))
}

/// Detects a retry that repeats no event, or an unmarked retry.
fn retried(handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    if call.retry == 0 {
        return None;
    }
    let Some(previous) = call.previous.filter(|_| call.again) else {
        return Some(format!("retry {} of an event that was not delivered before", call.retry));
    };
    let previous = &handler.calls[previous];
    // Retries count up by one, and only a panic allows one.
    (!previous.panicked() || call.retry != previous.retry + 1).then(|| {
        let how = if previous.panicked() { "panicked" } else { "did not panic" };
        format!("retry {} after a call that was retry {} and {how}", call.retry, previous.retry)
    })
}

/// Detects skipped events without a panic, and panics that were neither retried nor counted as skipped.
fn unhandled_panics(case: &Case<'_>, handler: &Handler<'_>, violations: &mut Vec<Violation>) {
    let tried = handler.calls.iter().filter(|call| call.panicked());
    let tried: BTreeSet<_> = tried.filter_map(|call| call.skipped).collect();
    for (moment, object) in &handler.skips {
        if !tried.contains(moment) {
            let what = format!("{object} was skipped, although no call for it had panicked");
            let moments = (handler.registered.at, moment.at);
            violations.push(case.at_handler(Clause::C3, handler, Some(&object.key), moments, what));
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
            let what = format!("{} panicked, and was neither retried nor counted as skipped", call.seen);
            violations.push(case.at_handler(Clause::C3, handler, Some(call.key()), (end.moment.at, settled.at), what));
        }
    }
}
