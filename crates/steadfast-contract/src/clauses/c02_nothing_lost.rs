//! C2, nothing final is lost: if a stay was delivered as added and ends, its `Deleted` carries the last object that
//! matched.
//!
//! The certainty and the reason must be true. `Observed`: the server deleted the object at the reported version.
//! `Inferred`: the object had been deleted or had left by then; a rejected request or a lost connection is not
//! evidence. `Deleted` is valid only if nothing but a deletion ends a stay, `Replaced` only if another UID has the
//! name. Otherwise the reason is `DeletedOrLeft`.

use crate::clause::Clause;
use crate::objects::{Certainty, HandlerEvent, ObjectVersionRef, Reason};
use crate::parsed_trace::{Call, Handler, LossKind, ParsedTrace};
use crate::scope::ExitRule;
use crate::view::{Timeline, TimelinePosition};
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    for handler in &parsed.handlers {
        for call in handler.calls.iter().filter(|call| !call.is_retry) {
            let HandlerEvent::Deleted { last, version, certainty, reason } = call.event else { continue };
            // C1 checks the deletion of an object that was not added.
            if call.last_delivered.as_ref().is_none_or(|last_delivered| last_delivered.uid != last.uid) {
                continue;
            }
            let timeline = parsed.timeline(parsed.informer_of(handler), call.key());
            let messages = [
                check_end(parsed, handler, timeline, call, *certainty, version.as_deref()),
                check_last_object(parsed, handler, timeline, call, *certainty, last),
                check_reason(parsed, handler, timeline, call, *reason),
            ];
            for description in messages.into_iter().flatten() {
                let description = format!("{}: {description}", call.event);
                violations.push(parsed.call_violation(Clause::C2, handler, call, description));
            }
        }
        for loss in parsed.losses(handler).iter().filter(|loss| loss.kind == LossKind::Stay) {
            let times = (loss.at, parsed.settled.map(|settled| settled.at).unwrap_or_default());
            violations.push(parsed.handler_violation(
                Clause::C2,
                handler,
                Some(loss.key),
                times,
                loss.description.clone(),
            ));
        }
    }
}

/// Detects the deletion of an object that still exists, or a deletion at another version.
fn check_end(
    parsed: &ParsedTrace<'_>,
    handler: &Handler<'_>,
    timeline: &Timeline<'_>,
    call: &Call<'_>,
    certainty: Certainty,
    version: Option<&str>,
) -> Option<String> {
    let end = call.exit_state.map(|index| &timeline.states[index]);
    let end = end.filter(|end| end.at <= parsed.latest_reflected(call.start.at));
    let Some(end) = end else {
        // C3 reports an unknown last state.
        return call.is_in_scope().then(|| "the object still existed and was in scope".to_owned());
    };
    // Versions that are not numbers are opaque, so that only numeric ones are compared.
    let numeric_version = version.filter(|version| version.parse::<u64>().is_ok());
    let reported_version =
        numeric_version.filter(|version| certainty == Certainty::Observed && *version != end.wire_version)?;
    // The object may have left the filter in an undecodable state. The stay then continues until the next decodable
    // state, or until the deletion.
    let informer = parsed.informer_of(handler);
    if informer.is_filtered_by_handlers && informer.ever_tainted.contains(call.key()) {
        let later_states = timeline.states.iter().skip(call.exit_state? + 1).take_while(|state| state.stay.is_none());
        let mut same_object = later_states.take_while(|state| state.uid == end.uid);
        if same_object
            .any(|state| state.wire_version == reported_version && state.at <= parsed.latest_reflected(call.start.at))
        {
            return None;
        }
    }
    Some(format!("the stay ended at v{}, not at v{reported_version}", end.wire_version))
}

/// Detects a `last` that is not the last object that matched.
fn check_last_object(
    parsed: &ParsedTrace<'_>,
    handler: &Handler<'_>,
    timeline: &Timeline<'_>,
    call: &Call<'_>,
    certainty: Certainty,
    last: &ObjectVersionRef,
) -> Option<String> {
    match call.timeline_position {
        TimelinePosition::OutOfScope(_) => Some(format!("the object did not match at v{}", last.version)),
        TimelinePosition::Before(_) => Some(format!("the handler had received a later state than v{}", last.version)),
        TimelinePosition::Missing => None,
        TimelinePosition::At(_) => {
            // The informer may not have received the last state that matched: a list may have skipped it, it may not
            // decode, or a server that loses events may not have sent it.
            let is_unknown = parsed.loses_events() || parsed.informer_of(handler).ever_tainted.contains(call.key());
            if certainty == Certainty::Inferred || is_unknown {
                return None;
            }
            // The state before the end is the last one that matched.
            let last_match = &timeline.states[call.exit_state? - 1];
            (!last_match.matches(last)).then(|| format!("the last object that matched is v{}", last_match.wire_version))
        }
    }
}

/// Detects a false reason.
fn check_reason(
    parsed: &ParsedTrace<'_>,
    handler: &Handler<'_>,
    timeline: &Timeline<'_>,
    call: &Call<'_>,
    reason: Reason,
) -> Option<String> {
    match (reason, parsed.view(parsed.informer_of(handler)).exit_rule) {
        (Reason::Deleted, ExitRule::ByChange) => Some("with a selector, the object may have left instead".to_owned()),
        (Reason::DeletedOrLeft, ExitRule::Never) => Some("without a selector, an object cannot leave".to_owned()),
        (Reason::Replaced, _) => {
            // Another object may have taken the name at any time between the end of the stay and the call.
            let end = call.exit_state?;
            let latest = parsed.latest_reflected(call.start.at);
            let is_replaced = timeline.states[end..]
                .iter()
                .any(|state| state.object.is_some() && state.uid != call.event.object().uid && state.at <= latest);
            (!is_replaced).then(|| "no other object had taken the name".to_owned())
        }
        _ => None,
    }
}
