//! C9, sync: an informer has synced when the first complete list is in the store, a registration when its handler has
//! returned from every `Added` of that list.
//!
//! A panic that used up its retries, or a deletion that overtook the object, count as returned. `Added` says truly
//! whether it belongs to an initial list; a handler registered later has one too: what the store held then.

use std::collections::BTreeSet;

use crate::breach::Breach;
use crate::case::{Call, Case, Handler, Informer, Moment};
use crate::clause::Clause;
use crate::seen::{Key, Seen};
use crate::view::{Place, State, Stay, Timeline};

pub(super) fn judge(case: &Case<'_>, breaches: &mut Vec<Breach>) {
    for informer in &case.informers {
        of_informer(case, informer, breaches);
    }
    for handler in &case.handlers {
        for call in handler.calls.iter().filter(|call| !call.again) {
            if let Some(what) = flagged(case, handler, call) {
                breaches.push(case.at_call(Clause::C9, handler, call, what));
            }
        }
        if let Some(synced) = handler.synced {
            of_registration(case, handler, synced, breaches);
        }
    }
}

fn of_informer(case: &Case<'_>, informer: &Informer<'_>, breaches: &mut Vec<Breach>) {
    let Some(synced) = informer.synced else { return };
    if let Some(first) = informer.first_list().filter(|first| first.moment > synced) {
        let what = "synced was said before the first list was in the store".to_owned();
        breaches.push(informer.breach(Clause::C9, None, (synced.at, first.moment.at), what));
    }
    // That no later answer goes back behind the first one is C4's.
    let mut answered = BTreeSet::new();
    let answers = case.answers(informer);
    for answer in answers.iter().filter(|answer| answer.moment > synced) {
        if !answered.insert(answer.key) {
            continue;
        }
        let line = case.line(informer, answer.key);
        let (from, at) = (listed(case, informer, line), answer.moment.at);
        if let Some(Place::Behind(_)) = line.stands(&answer.held, from, case.known_by(at)) {
            let what = format!("the store held {} after it had synced: the first list had later", answer.held);
            let moments = (line.states[from].at, at);
            breaches.push(informer.breach(Clause::C9, Some(answer.key), moments, what));
        }
    }
}

/// The version of the first list, where it is known and which epoch it is of.
fn first_list(case: &Case<'_>, informer: &Informer<'_>) -> Option<(u32, u64)> {
    let first = informer.first_list()?;
    let epoch = case.epoch_at(informer.declared.at);
    let epoch = Some(epoch).filter(|epoch| *epoch == case.epoch_at(case.known_by(first.moment.at)));
    epoch.zip(first.to.filter(|_| informer.ordered)?.parse().ok())
}

/// The state of a name that the first list had at least.
fn listed(case: &Case<'_>, informer: &Informer<'_>, line: &Timeline<'_>) -> usize {
    match first_list(case, informer) {
        Some((epoch, version)) => line.reached(epoch, version),
        // A list may come from a replica that lags, but not further than the terms say.
        None => match informer.declared.at.checked_sub(case.terms.lag + case.terms.slack) {
            Some(settled) => line.reached_by(settled),
            None => 0,
        },
    }
}

/// An `initial` that is not so.
fn flagged(case: &Case<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    let (Seen::Added { initial, .. }, Place::At(index)) = (call.seen, call.place) else { return None };
    if *initial && handler.synced.is_some_and(|synced| synced < call.entered) {
        return Some(format!("{} after the registration had synced", call.seen));
    }
    let informer = case.informer_of(handler);
    let line = case.line(informer, call.key());
    let stay = line.states[index].stay?;
    let first = informer.first_list().map(|first| first.moment).or(informer.synced);
    let late = first.is_some_and(|first| first < handler.registered);
    let list = first_list(case, informer);
    if !initial {
        // What a restore brought back is not of the list, though it looks the same.
        let again = line.find(call.seen.object(), index + 1, case.known_by(call.entered.at));
        let (epoch, version) = list.filter(|_| !matches!(again, Place::At(_)))?;
        let listed = line.states[line.reached(epoch, version)].stay;
        let in_list = listed == Some(stay) && !informer.ever_tainted.contains(call.key());
        return in_list
            .then(|| format!("{}: it was in the list at v{version}, and is not said to be initial", call.seen));
    }
    let in_time = |entry: &State<'_>| match list.filter(|_| !late) {
        Some(list) => (entry.epoch, entry.version) <= list || entry.restored,
        None => !late || entry.at <= case.known_by(handler.registered.at),
    };
    // A stay that a relist told as one with an earlier one is as old as that.
    let as_one = |earlier: &&Stay| {
        line.states[earlier.first].uid == call.seen.object().uid
            && case.unspanned_gap(informer, line, (earlier.last, index), call.entered.at).is_none()
    };
    let mut begun = line.stays[..=stay].iter().filter(as_one).map(|stay| &line.states[stay.first]);
    (!begun.any(in_time)).then(|| {
        let entry = &line.states[line.stays[stay].first];
        format!("{}: it came into scope at v{}, after the list", call.seen, entry.text)
    })
}

fn of_registration(case: &Case<'_>, handler: &Handler<'_>, synced: Moment, breaches: &mut Vec<Breach>) {
    let informer = case.informer_of(handler);
    let moments = (handler.registered.at, synced.at);
    if informer.synced.is_none_or(|informer_synced| informer_synced > synced) {
        let what = "the registration was said to have synced before its informer had".to_owned();
        breaches.push(case.at_handler(Clause::C9, handler, None, moments, what));
    }
    let before: Vec<_> = handler.calls.iter().take_while(|call| call.entered < synced).collect();
    for call in &before {
        if matches!(call.seen, Seen::Added { initial: true, .. }) && !done(handler, call, synced) {
            let what = format!("the registration was said to have synced while {} was still under way", call.seen);
            let moments = (call.entered.at, synced.at);
            breaches.push(case.at_handler(Clause::C9, handler, Some(call.key()), moments, what));
        }
    }
    let told: BTreeSet<&Key> = before.iter().map(|call| call.key()).collect();
    let Some((epoch, version)) = first_list(case, informer) else { return };
    for (key, line) in &case.view(informer).lines {
        let Some(stay) = line.stay_at(line.reached(epoch, version)) else { continue };
        let lasts = stay.end.is_none_or(|end| line.states[end].at > case.known_by(synced.at));
        if lasts && !told.contains(key) && !informer.ever_tainted.contains(key) {
            let what = format!("the registration was said to have synced before uid {} was delivered", line.last().uid);
            breaches.push(case.at_handler(Clause::C9, handler, Some(key), moments, what));
        }
    }
}

/// Whether the call's event was dealt with before `synced`: returned from, given up, or followed by another.
fn done(handler: &Handler<'_>, call: &Call<'_>, synced: Moment) -> bool {
    let Some(end) = call.end.filter(|end| end.moment < synced) else { return false };
    // The call that follows is looked at for itself.
    let followed = call.next.is_some_and(|next| handler.calls[next].entered < synced);
    !end.panicked || followed || call.skipped.is_some_and(|skipped| skipped < synced)
}
