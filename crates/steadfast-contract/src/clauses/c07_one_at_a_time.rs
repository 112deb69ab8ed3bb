//! C7, one at a time: calls of one handler for one name never overlap.
//!
//! A handler runs at most as many concurrent calls as it declared, each for a different name. The default is 1.

use std::time::Duration;

use crate::case::{Call, Case, Handler, Moment};
use crate::clause::Clause;
use crate::violation::Violation;

pub(super) fn judge(case: &Case<'_>, violations: &mut Vec<Violation>) {
    for handler in &case.handlers {
        let mut running: Vec<&Call<'_>> = Vec::new();
        for call in &handler.calls {
            // Calls are in the order of their start, so that ended calls can be dropped for good.
            running.retain(|other| ends_after(other, call.entered));
            if let Some(other) = running.iter().find(|other| other.key() == call.key()) {
                let what = format!("{} started while {} for the same name was running", call.seen, other.seen);
                violations.push(overlap(case, handler, call, other.entered.at, what));
            }
            running.push(call);
            if running.len() > handler.concurrency {
                let since = running[0].entered.at;
                let what = format!("{} calls ran at once, {} were declared", running.len(), handler.concurrency);
                violations.push(overlap(case, handler, call, since, what));
            }
        }
    }
}

fn ends_after(call: &Call<'_>, moment: Moment) -> bool {
    call.end.is_none_or(|end| end.moment > moment)
}

fn overlap(case: &Case<'_>, handler: &Handler<'_>, call: &Call<'_>, since: Duration, what: String) -> Violation {
    case.at_handler(Clause::C7, handler, Some(call.key()), (since, call.entered.at), what)
}
