//! C5, old and new: `Updated` carries, as `old`, the last object that the same handler received.
//!
//! An object counts as delivered as soon as the call has started, even if the call never returned.

use crate::case::Case;
use crate::clause::Clause;
use crate::seen::Seen;
use crate::violation::Violation;

pub(super) fn judge(case: &Case<'_>, violations: &mut Vec<Violation>) {
    for handler in &case.handlers {
        for call in handler.calls.iter().filter(|call| !call.again) {
            // C1 checks the update of an object that was not added.
            let (Seen::Updated { old, .. }, Some(open)) = (call.seen, &call.open) else { continue };
            // Digests are optional. If a digest is missing, only identity and version are compared.
            let same_content = old.digest.zip(open.digest).is_none_or(|(old, open)| old == open);
            let what = if old.uid != open.uid || old.version != open.version {
                format!("{}: the handler last received uid {} v{}", call.seen, open.uid, open.version)
            } else if !same_content {
                format!("{}: the content of `old` differs from the delivered content", call.seen)
            } else {
                continue;
            };
            violations.push(case.at_call(Clause::C5, handler, call, what));
        }
    }
}
