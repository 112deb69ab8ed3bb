//! C6, cache first: at the start of a handler call, the cache contains the delivered change or a later one.

use crate::clause::Clause;
use crate::parsed_trace::ParsedTrace;
use crate::view::TimelinePosition;
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    for handler in &parsed.handlers {
        let informer = parsed.informer_of(handler);
        for call in &handler.calls {
            let Some(change) = call.oldest_store_state() else { continue };
            let timeline = parsed.timeline(informer, call.key());
            // A cache that is ahead is allowed: handlers receive changes later than readers.
            if let Some(TimelinePosition::Before(_)) =
                timeline.find_content(call.store, change, parsed.latest_reflected(call.start.at))
            {
                let description = format!("{}, while the cache still held {}", call.event, call.store);
                let times = (timeline.states[change].at, call.start.at);
                violations.push(parsed.handler_violation(Clause::C6, handler, Some(call.key()), times, description));
            }
        }
    }
}
