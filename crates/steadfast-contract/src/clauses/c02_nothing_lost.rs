//! C2, nothing final is lost: every stay seen added that ends is seen `Deleted`, with the last object that matched.
//!
//! What is said of the deletion must be true. `Observed`: the server made it, at the version reported. `Inferred`: by that
//! moment the object really had gone or left; refusals and cuts infer nothing. `Deleted` is said only where nothing
//! but a deletion ends a stay, `Replaced` where another UID holds the name, and else `DeletedOrLeft`.

use crate::breach::Breach;
use crate::case::{Call, Case, Handler, LossKind};
use crate::clause::Clause;
use crate::scope::Leaving;
use crate::seen::{Certainty, Reason, Ref, Seen};
use crate::view::{Place, Timeline};

pub(super) fn judge(case: &Case<'_>, breaches: &mut Vec<Breach>) {
    for handler in &case.handlers {
        for call in handler.calls.iter().filter(|call| !call.again) {
            let Seen::Deleted { last, version, certainty, reason } = call.seen else { continue };
            // A deletion of what was not added is C1's.
            if call.open.as_ref().is_none_or(|open| open.uid != last.uid) {
                continue;
            }
            let line = case.line(case.informer_of(handler), call.key());
            let told = [
                ended(case, handler, line, call, *certainty, version.as_deref()),
                last_matched(case, handler, line, call, *certainty, last),
                reasoned(case, handler, line, call, *reason),
            ];
            for what in told.into_iter().flatten() {
                let what = format!("{}: {what}", call.seen);
                breaches.push(case.at_call(Clause::C2, handler, call, what));
            }
        }
        for loss in case.losses(handler).iter().filter(|loss| loss.kind == LossKind::Stay) {
            let moments = (loss.at, case.settled.map(|settled| settled.at).unwrap_or_default());
            breaches.push(case.at_handler(Clause::C2, handler, Some(loss.key), moments, loss.what.clone()));
        }
    }
}

/// A deletion of what is still there, or one that the server made elsewhere.
fn ended(
    case: &Case<'_>,
    handler: &Handler<'_>,
    line: &Timeline<'_>,
    call: &Call<'_>,
    certainty: Certainty,
    version: Option<&str>,
) -> Option<String> {
    let end = call.exit.map(|exit| &line.states[exit]);
    let end = end.filter(|end| end.at <= case.known_by(call.entered.at));
    let Some(end) = end else {
        // Where nothing is known of the state told last, C3 has said so.
        return call.place_known().then(|| "the object was still there and in scope".to_owned());
    };
    let numbered = version.filter(|version| version.parse::<u64>().is_ok());
    let elsewhere = numbered.filter(|version| certainty == Certainty::Observed && *version != end.text)?;
    // The state in which it left a filter may be one that nobody could judge; then its stay goes on, to its deletion if need be.
    let informer = case.informer_of(handler);
    if informer.filtered && informer.ever_tainted.contains(call.key()) {
        let later = line.states.iter().skip(call.exit? + 1).take_while(|state| state.stay.is_none());
        let mut own = later.take_while(|state| state.uid == end.uid);
        if own.any(|state| state.text == elsewhere && state.at <= case.known_by(call.entered.at)) {
            return None;
        }
    }
    Some(format!("its stay ended at v{}, not at v{elsewhere}", end.text))
}

/// A `last` that is not the last object that matched.
fn last_matched(
    case: &Case<'_>,
    handler: &Handler<'_>,
    line: &Timeline<'_>,
    call: &Call<'_>,
    certainty: Certainty,
    last: &Ref,
) -> Option<String> {
    match call.place {
        Place::Outside(_) => Some(format!("v{} is no state in which it matched", last.version)),
        Place::Behind(_) => Some(format!("the handler had been given a later state than v{}", last.version)),
        Place::Never => None,
        Place::At(_) => {
            // What a list skipped, an undecodable state hid, or a lossy server kept to itself, no client can tell.
            let hidden = case.lossy() || case.informer_of(handler).ever_tainted.contains(call.key());
            if certainty == Certainty::Inferred || hidden {
                return None;
            }
            let matched = &line.states[call.exit? - 1];
            (!matched.shows(last)).then(|| format!("the last object that matched is v{}", matched.text))
        }
    }
}

/// A reason that is not so.
fn reasoned(
    case: &Case<'_>,
    handler: &Handler<'_>,
    line: &Timeline<'_>,
    call: &Call<'_>,
    reason: Reason,
) -> Option<String> {
    match (reason, case.view(case.informer_of(handler)).leaving) {
        (Reason::Deleted, Leaving::ByChange) => Some("with a selector, leaving it looks the same".to_owned()),
        (Reason::DeletedOrLeft, Leaving::Never) => Some("without a selector, there is no leaving".to_owned()),
        (Reason::Replaced, _) => {
            let end = call.exit?;
            let known_by = case.known_by(call.entered.at);
            let another = line.states[end..]
                .iter()
                .any(|state| state.object.is_some() && state.uid != call.seen.object().uid && state.at <= known_by);
            (!another).then(|| "no other object had taken the name".to_owned())
        }
        _ => None,
    }
}
