//! C6, store first: at the start of a handler call, the store contains the delivered change or a later one.

use crate::case::Case;
use crate::clause::Clause;
use crate::view::Place;
use crate::violation::Violation;

pub(super) fn judge(case: &Case<'_>, violations: &mut Vec<Violation>) {
    for handler in &case.handlers {
        let informer = case.informer_of(handler);
        for call in &handler.calls {
            let Some(change) = call.store_from() else { continue };
            let line = case.line(informer, call.key());
            // A store that is ahead is allowed: handlers receive changes later than readers.
            if let Some(Place::Behind(_)) = line.stands(call.store, change, case.known_by(call.entered.at)) {
                let what = format!("{}, while the store still held {}", call.seen, call.store);
                let moments = (line.states[change].at, call.entered.at);
                violations.push(case.at_handler(Clause::C6, handler, Some(call.key()), moments, what));
            }
        }
    }
}
