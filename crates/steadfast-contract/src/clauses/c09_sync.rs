//! C9, sync: an informer has synced when its first complete list is in the cache. A registration has synced when its
//! handler has returned from each `Added` of that list.
//!
//! An `Added` whose last retry panicked counts as returned, and so does an `Added` that a deletion superseded. `Added`
//! states correctly whether it belongs to the initial list. A handler that is registered later has an initial list too:
//! the content of the cache at that time.

use std::collections::BTreeSet;

use crate::clause::Clause;
use crate::objects::{HandlerEvent, Key};
use crate::parsed_trace::{Call, Handler, Informer, ParsedTrace, TracePosition};
use crate::view::{State, Stay, Timeline, TimelinePosition};
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    for informer in &parsed.informers {
        check_informer(parsed, informer, violations);
    }
    for handler in &parsed.handlers {
        for call in handler.calls.iter().filter(|call| !call.is_retry) {
            if let Some(description) = check_initial(parsed, handler, call) {
                violations.push(parsed.call_violation(Clause::C9, handler, call, description));
            }
        }
        if let Some(synced) = handler.synced {
            check_registration(parsed, handler, synced, violations);
        }
    }
}

fn check_informer(parsed: &ParsedTrace<'_>, informer: &Informer<'_>, violations: &mut Vec<Violation>) {
    let Some(synced) = informer.synced else { return };
    if let Some(first) = informer.first_list().filter(|first| first.position > synced) {
        let description = "synced was reported before the first list was in the cache".to_owned();
        violations.push(informer.violation(Clause::C9, None, (synced.at, first.position.at), description));
    }
    // C4 checks that later reads never return an older state than the first read.
    let mut checked = BTreeSet::new();
    let reads = parsed.reads(informer);
    for read in reads.iter().filter(|read| read.position > synced) {
        // Only the first read after the sync is checked, because later changes may replace the listed state.
        if !checked.insert(read.key) {
            continue;
        }
        let timeline = parsed.timeline(informer, read.key);
        let (from, at) = (oldest_listed_state(parsed, informer, timeline), read.position.at);
        if let Some(TimelinePosition::Before(_)) =
            timeline.find_content(&read.content, from, parsed.latest_reflected(at))
        {
            let description =
                format!("the cache held {} after the sync: the first list had a later state", read.content);
            let times = (timeline.states[from].at, at);
            violations.push(informer.violation(Clause::C9, Some(read.key), times, description));
        }
    }
}

/// Returns the version of the first list, if its version and its epoch are known.
fn first_list_version(parsed: &ParsedTrace<'_>, informer: &Informer<'_>) -> Option<(u32, u64)> {
    let first = informer.first_list()?;
    let epoch = parsed.epoch_at(informer.declared.at);
    // A restore between the start and the list makes the epoch of the list's version ambiguous.
    let epoch = Some(epoch).filter(|epoch| *epoch == parsed.epoch_at(parsed.latest_reflected(first.position.at)));
    epoch.zip(first.to_version.filter(|_| informer.has_ordered_versions)?.parse().ok())
}

/// Returns the oldest state of a name that the first list can contain.
fn oldest_listed_state(parsed: &ParsedTrace<'_>, informer: &Informer<'_>, timeline: &Timeline<'_>) -> usize {
    match first_list_version(parsed, informer) {
        Some((epoch, version)) => timeline.index_at_version(epoch, version),
        // A list may come from a lagging replica, but its lag is at most `bounds.lag`.
        None => match informer.declared.at.checked_sub(parsed.bounds.lag + parsed.bounds.slack) {
            Some(earliest) => timeline.index_at_time(earliest),
            None => 0,
        },
    }
}

/// Detects a false `initial`.
fn check_initial(parsed: &ParsedTrace<'_>, handler: &Handler<'_>, call: &Call<'_>) -> Option<String> {
    let (HandlerEvent::Added { initial, .. }, TimelinePosition::At(index)) = (call.event, call.timeline_position)
    else {
        return None;
    };
    // After the registration has synced, no event is initial.
    if *initial && handler.synced.is_some_and(|synced| synced < call.start) {
        return Some(format!("{} after the registration had synced", call.event));
    }
    let informer = parsed.informer_of(handler);
    let timeline = parsed.timeline(informer, call.key());
    let stay = timeline.states[index].stay?;
    let list_position = informer.first_list().map(|list| list.position).or(informer.synced);
    // A handler that was registered after the list has the cache's content as its initial list.
    let is_late = list_position.is_some_and(|list_position| list_position < handler.registered);
    let list_version = first_list_version(parsed, informer);
    if !initial {
        // A state that exists again after a restore is not part of the list, even if it equals a listed state.
        let next_occurrence = timeline.find(call.event.object(), index + 1, parsed.latest_reflected(call.start.at));
        let (epoch, version) = list_version.filter(|_| !matches!(next_occurrence, TimelinePosition::At(_)))?;
        let listed_stay = timeline.states[timeline.index_at_version(epoch, version)].stay;
        let was_listed = listed_stay == Some(stay) && !informer.ever_tainted.contains(call.key());
        return was_listed.then(|| {
            format!("{}: the object was in the list at v{version}, but is not marked as initial", call.event)
        });
    }
    let belongs_to_list = |entry: &State<'_>| match list_version.filter(|_| !is_late) {
        Some(list_version) => (entry.epoch, entry.version) <= list_version || entry.is_restored,
        None => !is_late || entry.at <= parsed.latest_reflected(handler.registered.at),
    };
    // If a relist merged two stays, the start of the earlier stay counts.
    let is_merged = |earlier: &&Stay| {
        timeline.states[earlier.first].uid == call.event.object().uid
            && parsed.unspanned_gap(informer, timeline, (earlier.last, index), call.start.at).is_none()
    };
    let mut entries = timeline.stays[..=stay].iter().filter(is_merged).map(|stay| &timeline.states[stay.first]);
    (!entries.any(belongs_to_list)).then(|| {
        let entry = &timeline.states[timeline.stays[stay].first];
        format!("{}: the object entered the scope at v{}, after the list", call.event, entry.wire_version)
    })
}

fn check_registration(
    parsed: &ParsedTrace<'_>,
    handler: &Handler<'_>,
    synced: TracePosition,
    violations: &mut Vec<Violation>,
) {
    let informer = parsed.informer_of(handler);
    let times = (handler.registered.at, synced.at);
    if informer.synced.is_none_or(|informer_synced| informer_synced > synced) {
        let description = "the registration was reported as synced before its informer was".to_owned();
        violations.push(parsed.handler_violation(Clause::C9, handler, None, times, description));
    }
    // The calls are sorted by their start.
    let calls_before_sync: Vec<_> = handler.calls.iter().take_while(|call| call.start < synced).collect();
    for call in &calls_before_sync {
        if matches!(call.event, HandlerEvent::Added { initial: true, .. }) && !is_finished(handler, call, synced) {
            let description = format!("the registration was reported as synced while {} was still running", call.event);
            let times = (call.start.at, synced.at);
            violations.push(parsed.handler_violation(Clause::C9, handler, Some(call.key()), times, description));
        }
    }
    let delivered: BTreeSet<&Key> = calls_before_sync.iter().map(|call| call.key()).collect();
    let Some((epoch, version)) = first_list_version(parsed, informer) else { return };
    for (key, timeline) in &parsed.view(informer).timelines {
        let Some(stay) = timeline.stay_at(timeline.index_at_version(epoch, version)) else { continue };
        // An object that was deleted before the sync need not be delivered.
        let outlasts_sync = stay.end.is_none_or(|end| timeline.states[end].at > parsed.latest_reflected(synced.at));
        if outlasts_sync && !delivered.contains(key) && !informer.ever_tainted.contains(key) {
            let description =
                format!("the registration was reported as synced before uid {} was delivered", timeline.last().uid);
            violations.push(parsed.handler_violation(Clause::C9, handler, Some(key), times, description));
        }
    }
}

/// Returns whether the event was finished before `synced`: returned, skipped or followed by another call.
fn is_finished(handler: &Handler<'_>, call: &Call<'_>, synced: TracePosition) -> bool {
    let Some(end) = call.end.filter(|end| end.position < synced) else { return false };
    // The next call is checked on its own.
    let is_followed = call.next_for_name.is_some_and(|next| handler.calls[next].start < synced);
    !end.has_panicked || is_followed || call.skipped_at.is_some_and(|skipped_at| skipped_at < synced)
}
