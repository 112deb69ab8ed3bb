//! C1, identity is the UID: per stay one `Added`, any number of `Updated`, at most one `Deleted`, in this order.
//!
//! If an object is recreated under its name, the handler receives a `Deleted` of the old UID and an `Added` of the new
//! UID. Two stays of one UID may be delivered as one only if the comparison with a complete list spans the gap between
//! them. No client can detect such a gap.

use crate::case::{Call, Case, Handler};
use crate::clause::Clause;
use crate::seen::Seen;
use crate::view::Place;
use crate::violation::Violation;

pub(super) fn judge(case: &Case<'_>, violations: &mut Vec<Violation>) {
    for handler in &case.handlers {
        for call in handler.calls.iter().filter(|call| !call.again) {
            if let Some(what) = sequence(call).or_else(|| outside(call)).or_else(|| merged(case, handler, call)) {
                violations.push(case.at_call(Clause::C1, handler, call, what));
            }
        }
    }
}

/// Detects an event that cannot follow the previous event of the object.
fn sequence(call: &Call<'_>) -> Option<String> {
    let Call { seen, open, .. } = call;
    match (seen, open) {
        // Valid: no earlier stay was delivered, or its deletion was delivered.
        (Seen::Added { .. }, None) => None,
        (Seen::Added { object, .. }, Some(open)) if open.uid == object.uid => {
            Some(format!("{seen} although v{} was delivered and no end of the stay", open.version))
        }
        (Seen::Added { .. }, Some(open)) => Some(format!("{seen} without a Deleted of uid {} before it", open.uid)),
        (Seen::Updated { old, new }, _) if old.uid != new.uid => {
            Some(format!("{seen}: two objects delivered as one, instead of Deleted and Added"))
        }
        // `Updated`, `Deleted` and `Resynced` all need an object that was added.
        (_, None) => Some(format!("{seen} of an object that was not added, or already deleted")),
        (_, Some(open)) if open.uid != seen.object().uid => {
            Some(format!("{seen} while uid {} holds the name", open.uid))
        }
        _ => None,
    }
}

/// Detects a state that belongs to no stay.
fn outside(call: &Call<'_>) -> Option<String> {
    match (call.seen, call.place) {
        // C2 checks the last object of a deletion.
        (Seen::Deleted { .. }, _) => None,
        (seen, Place::Outside(_)) => Some(format!("{seen}: the object is not in scope in that state")),
        _ => None,
    }
}

/// Detects two stays delivered as one without a list that spans the gap.
fn merged(case: &Case<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    let informer = case.informer_of(handler);
    // The object may have left in an undecodable state, which the filter cannot judge.
    if informer.filtered && informer.ever_tainted.contains(call.key()) {
        return None;
    }
    let line = case.line(informer, call.key());
    let (Some(before), Place::At(now)) = (call.open.as_ref()?.index, call.place) else { return None };
    let gap = case.unspanned_gap(informer, line, (before, now), call.entered.at)?;
    let left = line.stays[gap].end.map_or("?".into(), |end| line.states[end].text.clone());
    let back = &line.states[line.stays[gap + 1].first].text;
    Some(format!("{}: the object left at v{left} and returned at v{back}, and no list spans the gap", call.seen))
}
