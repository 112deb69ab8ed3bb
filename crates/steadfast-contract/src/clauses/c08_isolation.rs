//! C8, isolation: what waits for a handler is bounded by the objects, not by the events.
//!
//! That a slow, stuck or panicking handler delays no other shows in the others' own traces: whoever was delayed for
//! good has losses (C2, C3), and only handlers with a call still running are excused from those.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::breach::Breach;
use crate::case::{Case, Depth, Handler};
use crate::clause::Clause;

pub(super) fn judge(case: &Case<'_>, breaches: &mut Vec<Breach>) {
    for handler in &case.handlers {
        let mut calls = handler.calls.iter().peekable();
        let mut told = BTreeSet::new();
        let begun = begun(case, handler);
        for depth in &handler.depths {
            while let Some(call) = calls.next_if(|call| call.entered <= depth.moment) {
                told.insert((call.key(), &call.seen.object().uid));
            }
            let names = begun.partition_point(|at| *at <= case.known_by(depth.moment.at));
            if let Some(what) = too_deep(depth).or_else(|| made_up(depth, told.len() + handler.concurrency, names)) {
                let moments = (handler.registered.at, depth.moment.at);
                breaches.push(case.at_handler(Clause::C8, handler, None, moments, what));
            }
        }
    }
}

/// When each name first came into scope, in order.
fn begun(case: &Case<'_>, handler: &Handler<'_>) -> Vec<Duration> {
    let lines = case.view(case.informer_of(handler)).lines.values();
    let mut begun: Vec<_> = lines.filter_map(|line| Some(line.states[line.stays.first()?.first].at)).collect();
    begun.sort();
    begun
}

fn too_deep(depth: &Depth) -> Option<String> {
    let Depth { entries, live, owed, .. } = depth;
    (*entries > live + owed)
        .then(|| format!("{entries} entries wait, with {live} objects live and {owed} seen added and not seen deleted"))
}

/// Numbers that excuse a deep queue and cannot be; calls about to be entered may be among those counted already.
fn made_up(depth: &Depth, told: usize, names: usize) -> Option<String> {
    let Depth { live, owed, .. } = depth;
    if *owed > told {
        return Some(format!("{owed} objects are said to be owed a deletion, of {told} ever delivered"));
    }
    (*live > names).then(|| format!("{live} objects are said to be live, of {names} names there ever were"))
}
