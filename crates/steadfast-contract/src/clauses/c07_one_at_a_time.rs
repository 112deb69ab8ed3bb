//! C7, one at a time: calls of one handler for one name never overlap.
//!
//! A handler runs at most as many concurrent calls as it declared, each for a different name. The default is 1.

use std::time::Duration;

use crate::clause::Clause;
use crate::parsed_trace::{Call, Handler, ParsedTrace, TracePosition};
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    for handler in &parsed.handlers {
        let mut running: Vec<&Call<'_>> = Vec::new();
        for call in &handler.calls {
            // Calls are in the order of their start, so that ended calls can be dropped permanently.
            running.retain(|other| ends_after(other, call.start));
            if let Some(other) = running.iter().find(|other| other.key() == call.key()) {
                let description = format!("{} started while {} for the same name was running", call.event, other.event);
                violations.push(overlap_violation(parsed, handler, call, other.start.at, description));
            }
            running.push(call);
            if running.len() > handler.concurrency {
                let since = running[0].start.at;
                let description =
                    format!("{} calls ran concurrently, {} were declared", running.len(), handler.concurrency);
                violations.push(overlap_violation(parsed, handler, call, since, description));
            }
        }
    }
}

fn ends_after(call: &Call<'_>, position: TracePosition) -> bool {
    call.end.is_none_or(|end| end.position > position)
}

fn overlap_violation(
    parsed: &ParsedTrace<'_>,
    handler: &Handler<'_>,
    call: &Call<'_>,
    since: Duration,
    description: String,
) -> Violation {
    parsed.handler_violation(Clause::C7, handler, Some(call.key()), (since, call.start.at), description)
}
