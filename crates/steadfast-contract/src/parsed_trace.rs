//! A trace, matched with its history: each handler call with its position on the object's timeline, each cache read
//! with its time.

mod call;
mod losses;
mod parser;
mod position;
mod records;

use std::borrow::Cow;
use std::time::Duration;

pub(crate) use call::Call;
pub(crate) use losses::LossKind;
pub(crate) use position::TracePosition;
pub(crate) use records::{Handler, Informer, QueueSample, Snapshot, StoreRead, Wait};

use crate::bounds::Bounds;
use crate::clause::Clause;
use crate::history::History;
use crate::objects::{Key, StoreContent};
use crate::view::{Timeline, View};
use crate::violation::{Malformed, Violation};

/// A parsed trace. All clauses share it.
pub(crate) struct ParsedTrace<'a> {
    pub(crate) history: &'a History,
    pub(crate) bounds: &'a Bounds,
    pub(crate) informers: Vec<Informer<'a>>,
    pub(crate) handlers: Vec<Handler<'a>>,
    /// Time by which the trace must have converged; `None` if the trace ends earlier.
    pub(crate) settled: Option<TracePosition>,
    pub(crate) malformed: Vec<Malformed>,
    views: Vec<View<'a>>,
}

impl<'a> ParsedTrace<'a> {
    pub(crate) fn informer_of(&self, handler: &Handler<'a>) -> &Informer<'a> {
        &self.informers[handler.informer]
    }

    pub(crate) fn view(&self, informer: &Informer<'a>) -> &View<'a> {
        &self.views[informer.view]
    }

    pub(crate) fn timeline(&self, informer: &Informer<'a>, key: &Key) -> &Timeline<'a> {
        self.view(informer).timeline(key)
    }

    /// Returns all reads of the informer's cache, in order. A snapshot counts as a read of each name, except of
    /// undecodable objects that the snapshot lacks.
    pub(crate) fn reads<'c>(&'c self, informer: &'c Informer<'a>) -> Vec<StoreRead<'c>> {
        let mut reads: Vec<StoreRead<'c>> = informer.reads.clone();
        for Snapshot { position, objects, tainted } in &informer.snapshots {
            let content = objects.iter().map(|(key, object)| {
                let content = StoreContent::Present { uid: object.uid.clone(), version: object.version.clone() };
                StoreRead { position: *position, key, content: Cow::Owned(content) }
            });
            reads.extend(content);
            // A snapshot is complete: each name of the history that it lacks was absent at that time.
            let absent = |key: &&Key| !objects.contains_key(key) && !tainted.contains(key);
            let names = self.view(informer).timelines.keys().filter(absent);
            reads.extend(names.map(|key| StoreRead {
                position: *position,
                key,
                content: Cow::Owned(StoreContent::Absent),
            }));
        }
        // The sort is stable and interleaves snapshots with single reads.
        reads.sort_by_key(|read| read.position);
        reads
    }

    /// Returns the latest time of the history that a record at `at` can reflect.
    pub(crate) fn latest_reflected(&self, at: Duration) -> Duration {
        // The clocks of history and trace may differ by the slack, so that a record can precede the change that it
        // reflects.
        at + self.bounds.slack
    }

    /// Returns whether the server loses events on its own. Only an audit can detect such a loss.
    pub(crate) fn loses_events(&self) -> bool {
        self.bounds.audit.is_some()
    }

    /// Returns the current epoch of the history at `at`.
    pub(crate) fn epoch_at(&self, at: Duration) -> u32 {
        let start = self.history.restores().iter().take_while(|restore| restore.at <= at);
        // The history is ordered by time, so the last restore that has happened decides.
        start.last().map_or(0, |restore| restore.epoch)
    }

    /// Returns the epoch of the informer's versions at that time.
    pub(crate) fn epoch_of(&self, informer: &Informer<'a>, position: TracePosition) -> u32 {
        let announced = informer.epoch_announcements.iter().rfind(|announced| **announced <= position);
        // Epochs that started before the first list need no announcement.
        let listed = informer.first_list().map(|first| first.position).filter(|first| *first <= position);
        let start = listed.unwrap_or(informer.declared).at;
        self.epoch_at(announced.map_or(start, |announced| start.max(self.latest_reflected(announced.at))))
    }

    /// Returns whether the informer had announced `epoch` by `at`.
    pub(crate) fn has_announced(&self, informer: &Informer<'a>, epoch: u32, at: Duration) -> bool {
        let start = self.history.restores().iter().find(|restore| restore.epoch == epoch).map(|restore| restore.at);
        // An announcement shortly before the restore can still belong to it, within the slack of the clocks.
        let start = start.unwrap_or_default().saturating_sub(self.bounds.slack);
        informer.epoch_announcements.iter().any(|position| (start..=self.latest_reflected(at)).contains(&position.at))
    }

    /// Returns whether a step between two states of a name enters an unannounced epoch in which the version is not
    /// higher.
    pub(crate) fn enters_unannounced_epoch(
        &self,
        informer: &Informer<'a>,
        timeline: &Timeline<'a>,
        from: usize,
        to: usize,
        at: Duration,
    ) -> bool {
        let (from, to) = (&timeline.states[from], &timeline.states[to]);
        // Without an order of versions, a lower version is not a step back.
        informer.has_ordered_versions
            && to.epoch > from.epoch
            && to.version <= from.version
            && !self.has_announced(informer, to.epoch, at)
    }

    pub(crate) fn handler_violation(
        &self,
        clause: Clause,
        handler: &Handler<'a>,
        object: Option<&Key>,
        times: (Duration, Duration),
        description: String,
    ) -> Violation {
        let handler_name = Some(handler.name.to_owned());
        Violation { handler: handler_name, ..self.informer_of(handler).violation(clause, object, times, description) }
    }

    /// Returns the first stay between two states after which there is a gap that no list spans. Only lists that were
    /// compared with the cache by `at` count.
    pub(crate) fn unspanned_gap(
        &self,
        informer: &Informer<'a>,
        timeline: &Timeline<'a>,
        (from, to): (usize, usize),
        at: Duration,
    ) -> Option<usize> {
        let (from, to) = (&timeline.states[from], &timeline.states[to]);
        // Only a list leads into a new epoch.
        if from.epoch < to.epoch {
            return None;
        }
        // A gap follows each stay that ended between both states. The stay that contains `to` has not ended at `to`.
        (from.stay?..to.stay?).find(|stay| !self.is_gap_spanned(informer, timeline, *stay, at))
    }

    fn is_gap_spanned(&self, informer: &Informer<'a>, timeline: &Timeline<'a>, stay: usize, at: Duration) -> bool {
        let Some(end) = timeline.stays[stay].end.map(|end| &timeline.states[end]) else { return false };
        let entry = &timeline.states[timeline.stays[stay + 1].first];
        let parse_version = |text: &str| text.parse::<u64>().ok();
        // A relist can connect two epochs. Its version `from_version` belongs to the epoch before the list, and its
        // version `to_version` belongs to the epoch of the list.
        let mut current_epoch = self.epoch_at(informer.declared.at);
        informer.relists.iter().filter(|relist| relist.position.at <= self.latest_reflected(at)).any(|relist| {
            let previous_epoch = std::mem::replace(&mut current_epoch, self.epoch_of(informer, relist.position));
            // The first list was not compared with an earlier cache, so it spans no gap.
            let starts_before_gap = relist
                .from_version
                // A version that is not a number has no order, so that the list may have started anywhere.
                .is_some_and(|from| {
                    parse_version(from).is_none_or(|from| (previous_epoch, from) < (end.epoch, end.version))
                });
            let ends_after_gap = match relist.to_version.and_then(parse_version) {
                Some(to) => (entry.epoch, entry.version) <= (current_epoch, to),
                // A list without a known version spans all changes up to the time of the list.
                None => entry.at <= self.latest_reflected(relist.position.at),
            };
            starts_before_gap && ends_after_gap
        })
    }

    /// Creates a violation at a call. Its times are the previous delivery of the object and the start of this call.
    pub(crate) fn call_violation(
        &self,
        clause: Clause,
        handler: &Handler<'a>,
        call: &Call<'a>,
        description: String,
    ) -> Violation {
        let since = call.last_delivered.as_ref().map_or(handler.registered.at, |last_delivered| last_delivered.at);
        self.handler_violation(clause, handler, Some(call.event.key()), (since, call.start.at), description)
    }
}
