//! C5, old and new: `Updated` carries, as `old`, the last object that the same handler received.
//!
//! An object counts as delivered as soon as the call has started, even if the call never returned.

use crate::clause::Clause;
use crate::objects::HandlerEvent;
use crate::parsed_trace::ParsedTrace;
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    for handler in &parsed.handlers {
        for call in handler.calls.iter().filter(|call| !call.is_retry) {
            // C1 checks the update of an object that was not added.
            let (HandlerEvent::Updated { old, .. }, Some(last_delivered)) = (call.event, &call.last_delivered) else {
                continue;
            };
            // Digests are optional. If a digest is missing, only identity and version are compared.
            let same_content =
                old.digest.zip(last_delivered.digest).is_none_or(|(old, last_delivered)| old == last_delivered);
            let description = if old.uid != last_delivered.uid || old.version != last_delivered.version {
                format!(
                    "{}: the handler last received uid {} v{}",
                    call.event, last_delivered.uid, last_delivered.version
                )
            } else if !same_content {
                format!("{}: the content of `old` differs from the delivered content", call.event)
            } else {
                continue;
            };
            violations.push(parsed.call_violation(Clause::C5, handler, call, description));
        }
    }
}
