//! C1, identity is the UID: per stay one `Added`, any number of `Updated`, at most one `Deleted`, in this order.
//!
//! If an object is recreated under its name, the handler receives a `Deleted` of the old UID and an `Added` of the new
//! UID. Two stays of one UID may be delivered as one only if the comparison with a complete list spans the gap between
//! them. No client can detect such a gap.

use crate::clause::Clause;
use crate::objects::HandlerEvent;
use crate::parsed_trace::{Call, Handler, ParsedTrace};
use crate::view::TimelinePosition;
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    for handler in &parsed.handlers {
        for call in handler.calls.iter().filter(|call| !call.is_retry) {
            if let Some(description) =
                check_sequence(call).or_else(|| check_scope(call)).or_else(|| check_merge(parsed, handler, call))
            {
                violations.push(parsed.call_violation(Clause::C1, handler, call, description));
            }
        }
    }
}

/// Detects an event that cannot follow the previous event of the object.
fn check_sequence(call: &Call<'_>) -> Option<String> {
    let Call { event, last_delivered, .. } = call;
    match (event, last_delivered) {
        // Valid: no earlier stay was delivered, or its deletion was delivered.
        (HandlerEvent::Added { .. }, None) => None,
        (HandlerEvent::Added { object, .. }, Some(last_delivered)) if last_delivered.uid == object.uid => {
            Some(format!("{event} although v{} was delivered without a Deleted after it", last_delivered.version))
        }
        (HandlerEvent::Added { .. }, Some(last_delivered)) => {
            Some(format!("{event} without a Deleted of uid {} before it", last_delivered.uid))
        }
        (HandlerEvent::Updated { old, new }, _) if old.uid != new.uid => {
            Some(format!("{event}: two objects delivered as one, instead of Deleted and Added"))
        }
        // `Updated`, `Deleted` and `Resynced` all need an object that was added.
        (_, None) => Some(format!("{event} of an object that was not added, or already deleted")),
        (_, Some(last_delivered)) if last_delivered.uid != event.object().uid => {
            Some(format!("{event} while uid {} holds the name", last_delivered.uid))
        }
        _ => None,
    }
}

/// Detects a state that belongs to no stay.
fn check_scope(call: &Call<'_>) -> Option<String> {
    match (call.event, call.timeline_position) {
        // C2 checks the last object of a deletion.
        (HandlerEvent::Deleted { .. }, _) => None,
        (event, TimelinePosition::OutOfScope(_)) => Some(format!("{event}: the object is not in scope in that state")),
        _ => None,
    }
}

/// Detects two stays delivered as one without a list that spans the gap.
fn check_merge(parsed: &ParsedTrace<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    let informer = parsed.informer_of(handler);
    // The object may have left in an undecodable state, on which the filter cannot be evaluated.
    if informer.is_filtered_by_handlers && informer.ever_tainted.contains(call.key()) {
        return None;
    }
    let timeline = parsed.timeline(informer, call.key());
    let (Some(previous), TimelinePosition::At(index)) = (call.last_delivered.as_ref()?.index, call.timeline_position)
    else {
        return None;
    };
    let gap = parsed.unspanned_gap(informer, timeline, (previous, index), call.start.at)?;
    let exit_version = timeline.stays[gap].end.map_or("?".into(), |end| timeline.states[end].wire_version.clone());
    let return_version = &timeline.states[timeline.stays[gap + 1].first].wire_version;
    Some(format!(
        "{}: the object left at v{exit_version} and returned at v{return_version}, and no list spans the gap",
        call.event
    ))
}
