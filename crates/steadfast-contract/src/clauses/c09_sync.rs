//! C9, sync: an informer has synced when its first complete list is in the store. A registration has synced when its
//! handler has returned from each `Added` of that list.
//!
//! An `Added` whose last retry panicked counts as returned, and so does an `Added` that a deletion superseded. `Added`
//! states correctly whether it belongs to the initial list. A handler that is registered later has an initial list too:
//! the content of the store at that time.

use std::collections::BTreeSet;

use crate::case::{Call, Case, Handler, Informer, TracePosition};
use crate::clause::Clause;
use crate::objects::{HandlerEvent, Key};
use crate::view::{State, Stay, Timeline, TimelinePosition};
use crate::violation::Violation;

pub(super) fn check(case: &Case<'_>, violations: &mut Vec<Violation>) {
    for informer in &case.informers {
        check_informer(case, informer, violations);
    }
    for handler in &case.handlers {
        for call in handler.calls.iter().filter(|call| !call.is_retry) {
            if let Some(description) = check_initial(case, handler, call) {
                violations.push(case.at_call(Clause::C9, handler, call, description));
            }
        }
        if let Some(synced) = handler.synced {
            check_registration(case, handler, synced, violations);
        }
    }
}

fn check_informer(case: &Case<'_>, informer: &Informer<'_>, violations: &mut Vec<Violation>) {
    let Some(synced) = informer.synced else { return };
    if let Some(first) = informer.first_list().filter(|first| first.position > synced) {
        let description = "synced was reported before the first list was in the store".to_owned();
        violations.push(informer.violation(Clause::C9, None, (synced.at, first.position.at), description));
    }
    // C4 checks that later reads never go back behind the first one.
    let mut checked = BTreeSet::new();
    let reads = case.reads(informer);
    for read in reads.iter().filter(|read| read.position > synced) {
        // Only the first read after the sync is checked, because later changes may replace the listed state.
        if !checked.insert(read.key) {
            continue;
        }
        let timeline = case.timeline(informer, read.key);
        let (from, at) = (oldest_listed_state(case, informer, timeline), read.position.at);
        if let Some(TimelinePosition::Before(_)) = timeline.find_content(&read.content, from, case.known_by(at)) {
            let description =
                format!("the store held {} after the sync: the first list had a later state", read.content);
            let times = (timeline.states[from].at, at);
            violations.push(informer.violation(Clause::C9, Some(read.key), times, description));
        }
    }
}

/// Returns the version of the first list, if its version and its epoch are known.
fn first_list(case: &Case<'_>, informer: &Informer<'_>) -> Option<(u32, u64)> {
    let first = informer.first_list()?;
    let epoch = case.epoch_at(informer.declared.at);
    // A restore between the start and the list makes the epoch of the list's version ambiguous.
    let epoch = Some(epoch).filter(|epoch| *epoch == case.epoch_at(case.known_by(first.position.at)));
    epoch.zip(first.to.filter(|_| informer.ordered)?.parse().ok())
}

/// Returns the oldest state of a name that the first list can contain.
fn oldest_listed_state(case: &Case<'_>, informer: &Informer<'_>, timeline: &Timeline<'_>) -> usize {
    match first_list(case, informer) {
        Some((epoch, version)) => timeline.index_at_version(epoch, version),
        // A list may come from a lagging replica, but its lag is at most `bounds.lag`.
        None => match informer.declared.at.checked_sub(case.bounds.lag + case.bounds.slack) {
            Some(settled) => timeline.index_at_time(settled),
            None => 0,
        },
    }
}

/// Detects a false `initial`.
fn check_initial(case: &Case<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    let (HandlerEvent::Added { initial, .. }, TimelinePosition::At(index)) = (call.event, call.place) else {
        return None;
    };
    // After the registration has synced, no event is initial.
    if *initial && handler.synced.is_some_and(|synced| synced < call.entered) {
        return Some(format!("{} after the registration had synced", call.event));
    }
    let informer = case.informer_of(handler);
    let timeline = case.timeline(informer, call.key());
    let stay = timeline.states[index].stay?;
    let first = informer.first_list().map(|first| first.position).or(informer.synced);
    // A handler that was registered after the list has the store's content as its initial list.
    let is_late = first.is_some_and(|first| first < handler.registered);
    let list = first_list(case, informer);
    if !initial {
        // A state that returns with a restore is not part of the list, even if it equals a listed state.
        let restored = timeline.find(call.event.object(), index + 1, case.known_by(call.entered.at));
        let (epoch, version) = list.filter(|_| !matches!(restored, TimelinePosition::At(_)))?;
        let listed = timeline.states[timeline.index_at_version(epoch, version)].stay;
        let in_list = listed == Some(stay) && !informer.ever_tainted.contains(call.key());
        return in_list.then(|| {
            format!("{}: the object was in the list at v{version}, but is not marked as initial", call.event)
        });
    }
    let in_time = |entry: &State<'_>| match list.filter(|_| !is_late) {
        Some(list) => (entry.epoch, entry.version) <= list || entry.restored,
        None => !is_late || entry.at <= case.known_by(handler.registered.at),
    };
    // If a relist merged two stays, the start of the earlier stay counts.
    let is_merged = |earlier: &&Stay| {
        timeline.states[earlier.first].uid == call.event.object().uid
            && case.unspanned_gap(informer, timeline, (earlier.last, index), call.entered.at).is_none()
    };
    let mut entries = timeline.stays[..=stay].iter().filter(is_merged).map(|stay| &timeline.states[stay.first]);
    (!entries.any(in_time)).then(|| {
        let entry = &timeline.states[timeline.stays[stay].first];
        format!("{}: the object entered the scope at v{}, after the list", call.event, entry.text)
    })
}

fn check_registration(case: &Case<'_>, handler: &Handler<'_>, synced: TracePosition, violations: &mut Vec<Violation>) {
    let informer = case.informer_of(handler);
    let times = (handler.registered.at, synced.at);
    if informer.synced.is_none_or(|informer_synced| informer_synced > synced) {
        let description = "the registration was reported as synced before its informer was".to_owned();
        violations.push(case.at_handler(Clause::C9, handler, None, times, description));
    }
    // The calls are sorted by their start.
    let calls_before_sync: Vec<_> = handler.calls.iter().take_while(|call| call.entered < synced).collect();
    for call in &calls_before_sync {
        if matches!(call.event, HandlerEvent::Added { initial: true, .. }) && !is_finished(handler, call, synced) {
            let description = format!("the registration was reported as synced while {} was still running", call.event);
            let times = (call.entered.at, synced.at);
            violations.push(case.at_handler(Clause::C9, handler, Some(call.key()), times, description));
        }
    }
    let delivered: BTreeSet<&Key> = calls_before_sync.iter().map(|call| call.key()).collect();
    let Some((epoch, version)) = first_list(case, informer) else { return };
    for (key, timeline) in &case.view(informer).timelines {
        let Some(stay) = timeline.stay_at(timeline.index_at_version(epoch, version)) else { continue };
        // An object that was deleted before the sync need not be delivered.
        let lasts = stay.end.is_none_or(|end| timeline.states[end].at > case.known_by(synced.at));
        if lasts && !delivered.contains(key) && !informer.ever_tainted.contains(key) {
            let description =
                format!("the registration was reported as synced before uid {} was delivered", timeline.last().uid);
            violations.push(case.at_handler(Clause::C9, handler, Some(key), times, description));
        }
    }
}

/// Returns whether the event was finished before `synced`: returned, skipped or followed by another call.
fn is_finished(handler: &Handler<'_>, call: &Call<'_>, synced: TracePosition) -> bool {
    let Some(end) = call.end.filter(|end| end.position < synced) else { return false };
    // The next call is checked on its own.
    let followed = call.next.is_some_and(|next| handler.calls[next].entered < synced);
    !end.panicked || followed || call.skipped.is_some_and(|skipped| skipped < synced)
}
