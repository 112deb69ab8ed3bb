//! C12, read your writes: a wait for a version succeeds only if the cache is at or past that version. A wait for a
//! deletion succeeds only if the object is removed. Later reads do not contradict the wait.
//!
//! Versions that are not numbers have no order: waits for such versions are not checked.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clause::Clause;
use crate::objects::StoreContent;
use crate::parsed_trace::{Informer, ParsedTrace, StoreRead, Wait};
use crate::trace::{WaitOutcome, WaitTarget};
use crate::view::{Timeline, TimelinePosition};
use crate::violation::Violation;

pub(super) fn check(parsed: &ParsedTrace<'_>, violations: &mut Vec<Violation>) {
    for informer in &parsed.informers {
        let mut waits = informer.waits.iter().filter(|wait| wait.outcome == WaitOutcome::Ok).peekable();
        if waits.peek().is_none() {
            continue;
        }
        for wait in waits.clone() {
            if let Some((since, description)) = check_wait(parsed, informer, wait) {
                violations.push(informer.violation(Clause::C12, None, (since, wait.position.at), description));
            }
        }
        let mut guarantees = Guarantees::default();
        for read in &parsed.reads(informer) {
            // Reads and waits are both sorted by time. A wait only binds later reads.
            while let Some(wait) = waits.next_if(|wait| wait.position < read.position) {
                guarantees.add(parsed, informer, wait);
            }
            if let Some(since) = guarantees.contradicted_by(parsed, informer, read) {
                let description =
                    format!("the cache held {} after a successful wait that excludes this state", read.content);
                let times = (since, read.position.at);
                violations.push(informer.violation(Clause::C12, Some(read.key), times, description));
            }
        }
    }
}

/// Detects a wait that succeeded before its target was reached.
fn check_wait(parsed: &ParsedTrace<'_>, informer: &Informer<'_>, wait: &Wait<'_>) -> Option<(Duration, String)> {
    match wait.target {
        // An opaque version has no order, so that the wait cannot be checked.
        WaitTarget::Version(version) => {
            let target_version: u64 = version.parse().ok().filter(|_| informer.has_ordered_versions)?;
            let store_version: u64 = wait.store_version?.parse().ok()?;
            (store_version < target_version).then(|| {
                (
                    informer.declared.at,
                    format!("a wait for v{target_version} succeeded with the cache at v{store_version}"),
                )
            })
        }
        WaitTarget::Deleted(uid) => {
            let latest = parsed.latest_reflected(wait.position.at);
            let timeline = parsed.view(informer).timelines.values().find(|timeline| has_uid(timeline, uid))?;
            let is_known = |first: usize| timeline.states[first].uid == *uid && timeline.states[first].at <= latest;
            let has_ended = |end: Option<usize>| end.is_some_and(|end| timeline.states[end].at <= latest);
            let mut stays = timeline.stays.iter().filter(|stay| is_known(stay.first)).peekable();
            let first = timeline.states[stays.peek()?.first].at;
            // A wait is valid if any stay of the UID had ended: a client cannot distinguish stays that a filter
            // separates.
            let is_present = stays.all(|stay| !has_ended(stay.end));
            is_present
                .then(|| (first, format!("a wait for the end of uid {uid} succeeded while the object was present")))
        }
    }
}

fn has_uid(timeline: &Timeline<'_>, uid: &str) -> bool {
    timeline.states.iter().any(|state| state.uid == uid)
}

/// Guarantees of all successful waits so far to later readers.
#[derive(Default)]
struct Guarantees<'a> {
    /// Highest version that a successful wait has reached, with its epoch, and the time of this guarantee.
    version: Option<((u32, u64), Duration)>,
    /// Removed UIDs.
    removed_uids: BTreeMap<&'a str, Duration>,
}

impl<'a> Guarantees<'a> {
    fn add(&mut self, parsed: &ParsedTrace<'a>, informer: &Informer<'a>, wait: &Wait<'a>) {
        match wait.target {
            WaitTarget::Deleted(uid) => {
                self.removed_uids.insert(uid, wait.position.at);
            }
            WaitTarget::Version(version) => {
                let Some(version) = version.parse().ok().filter(|_| informer.has_ordered_versions) else { return };
                let guarantee = (parsed.epoch_of(informer, wait.position), version);
                // A higher version implies all lower guarantees.
                if self.version.is_none_or(|(before, _)| before < guarantee) {
                    self.version = Some((guarantee, wait.position.at));
                }
            }
        }
    }

    /// Returns the time of the guarantee that this read contradicts.
    fn contradicted_by(
        &self,
        parsed: &ParsedTrace<'a>,
        informer: &Informer<'a>,
        read: &StoreRead<'_>,
    ) -> Option<Duration> {
        let timeline = parsed.timeline(informer, read.key);
        let precedes = |from: usize| {
            let position = timeline.find_content(&read.content, from, parsed.latest_reflected(read.position.at));
            matches!(position, Some(TimelinePosition::Before(_)))
        };
        let contradicted =
            self.version.filter(|((epoch, version), _)| precedes(timeline.index_at_version(*epoch, *version)));
        if let Some((_, since)) = contradicted {
            return Some(since);
        }
        // Only a held object can contradict the removal of its UID.
        let StoreContent::Present { uid, .. } = &*read.content else { return None };
        let since = self.removed_uids.get(uid.as_str())?;
        let mut stays = timeline.stays.iter().filter(|stay| timeline.states[stay.first].uid == uid);
        precedes(stays.next()?.end?).then_some(*since)
    }
}
