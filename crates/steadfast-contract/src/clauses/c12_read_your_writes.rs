//! C12, read your writes: a wait for a version succeeds only if the store is at or past that version. A wait for a
//! deletion succeeds only if the object is removed. Later reads do not contradict the wait.
//!
//! Versions that are not numbers have no order: waits for such versions are not judged.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::case::{Answer, Case, Informer, Wait};
use crate::clause::Clause;
use crate::seen::StoreHeld;
use crate::trace::{Outcome, Target};
use crate::view::{Place, Timeline};
use crate::violation::Violation;

pub(super) fn judge(case: &Case<'_>, violations: &mut Vec<Violation>) {
    for informer in &case.informers {
        let mut waits = informer.waits.iter().filter(|wait| wait.outcome == Outcome::Ok).peekable();
        if waits.peek().is_none() {
            continue;
        }
        for wait in waits.clone() {
            if let Some((since, what)) = too_early(case, informer, wait) {
                violations.push(informer.violation(Clause::C12, None, (since, wait.moment.at), what));
            }
        }
        let mut promised = Promised::default();
        for answer in &case.answers(informer) {
            // Reads and waits are both sorted by time. A wait only binds later reads.
            while let Some(wait) = waits.next_if(|wait| wait.moment < answer.moment) {
                promised.by(case, informer, wait);
            }
            if let Some(since) = promised.denied_by(case, informer, answer) {
                let what = format!("the store held {} after a successful wait that excludes this state", answer.held);
                let moments = (since, answer.moment.at);
                violations.push(informer.violation(Clause::C12, Some(answer.key), moments, what));
            }
        }
    }
}

/// Detects a wait that succeeded before its target was reached.
fn too_early(case: &Case<'_>, informer: &Informer<'_>, wait: &Wait<'_>) -> Option<(Duration, String)> {
    match wait.target {
        // An opaque version has no order, so that the wait cannot be judged.
        Target::Version(version) => {
            let wanted: u64 = version.parse().ok().filter(|_| informer.ordered)?;
            let reached: u64 = wait.store_version?.parse().ok()?;
            (reached < wanted)
                .then(|| (informer.declared.at, format!("a wait for v{wanted} succeeded with the store at v{reached}")))
        }
        Target::Gone(uid) => {
            let known_by = case.known_by(wait.moment.at);
            let line = case.view(informer).lines.values().find(|line| has(line, uid))?;
            let seen = |first: usize| line.states[first].uid == *uid && line.states[first].at <= known_by;
            let ended = |end: Option<usize>| end.is_some_and(|end| line.states[end].at <= known_by);
            let mut stays = line.stays.iter().filter(|stay| seen(stay.first)).peekable();
            let first = line.states[stays.peek()?.first].at;
            // A wait is valid if any stay of the UID had ended: a client cannot distinguish stays that a filter
            // separates.
            let still = stays.all(|stay| !ended(stay.end));
            still.then(|| (first, format!("a wait for the end of uid {uid} succeeded while the object was present")))
        }
    }
}

fn has(line: &Timeline<'_>, uid: &str) -> bool {
    line.states.iter().any(|state| state.uid == uid)
}

/// Guarantees of all successful waits so far to later readers.
#[derive(Default)]
struct Promised<'a> {
    /// Highest version that a successful wait has reached, with its epoch, and the time of this guarantee.
    reached: Option<((u32, u64), Duration)>,
    /// Removed UIDs.
    gone: BTreeMap<&'a str, Duration>,
}

impl<'a> Promised<'a> {
    fn by(&mut self, case: &Case<'a>, informer: &Informer<'a>, wait: &Wait<'a>) {
        match wait.target {
            Target::Gone(uid) => {
                self.gone.insert(uid, wait.moment.at);
            }
            Target::Version(version) => {
                let Some(version) = version.parse().ok().filter(|_| informer.ordered) else { return };
                let promise = (case.epoch_of(informer, wait.moment), version);
                // A higher version implies all lower guarantees.
                if self.reached.is_none_or(|(before, _)| before < promise) {
                    self.reached = Some((promise, wait.moment.at));
                }
            }
        }
    }

    /// Returns the time of the guarantee that this read contradicts.
    fn denied_by(&self, case: &Case<'a>, informer: &Informer<'a>, answer: &Answer<'_>) -> Option<Duration> {
        let line = case.line(informer, answer.key);
        let older_than = |from: usize| {
            let place = line.stands(&answer.held, from, case.known_by(answer.moment.at));
            matches!(place, Some(Place::Behind(_)))
        };
        let reached = self.reached.filter(|((epoch, version), _)| older_than(line.reached(*epoch, *version)));
        if let Some((_, since)) = reached {
            return Some(since);
        }
        // Only a held object can contradict the removal of its UID.
        let StoreHeld::Held { uid, .. } = &*answer.held else { return None };
        let since = self.gone.get(uid.as_str())?;
        let mut stays = line.stays.iter().filter(|stay| line.states[stay.first].uid == uid);
        older_than(stays.next()?.end?).then_some(*since)
    }
}
