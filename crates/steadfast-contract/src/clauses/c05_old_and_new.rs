//! C5, old and new: `Updated` carries, as `old`, the object that the same handler was last given.
//!
//! A call that was entered counts as delivered, whether or not it returned.

use crate::breach::Breach;
use crate::case::Case;
use crate::clause::Clause;
use crate::seen::Seen;

pub(super) fn judge(case: &Case<'_>, breaches: &mut Vec<Breach>) {
    for handler in &case.handlers {
        for call in handler.calls.iter().filter(|call| !call.again) {
            // An update of what was not added is C1's.
            let (Seen::Updated { old, .. }, Some(open)) = (call.seen, &call.open) else { continue };
            let same_content = old.digest.zip(open.digest).is_none_or(|(old, open)| old == open);
            let what = if old.uid != open.uid || old.version != open.version {
                format!("{}: the handler was last given uid {} v{}", call.seen, open.uid, open.version)
            } else if !same_content {
                format!("{}: the content of old is not what the handler was given", call.seen)
            } else {
                continue;
            };
            breaches.push(case.at_call(Clause::C5, handler, call, what));
        }
    }
}
