//! Recorded behaviour of informers and handlers.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::call::Call;
use super::position::TracePosition;
use crate::clause::Clause;
use crate::objects::{Key, ObjectVersionRef, StoreContent};
use crate::trace::{Freshness, WaitOutcome, WaitTarget};
use crate::violation::Violation;

/// Recorded behaviour of an informer.
#[derive(Debug)]
pub(crate) struct Informer<'a> {
    pub(crate) name: &'a str,
    pub(crate) has_ordered_versions: bool,
    /// True if the handlers filter objects by the scope, instead of the server.
    pub(crate) is_filtered_by_handlers: bool,
    pub(crate) declared: TracePosition,
    pub(crate) synced: Option<TracePosition>,
    pub(crate) relists: Vec<Relist<'a>>,
    /// Times at which the informer announced new epochs.
    pub(crate) epoch_announcements: Vec<TracePosition>,
    pub(crate) freshness: Vec<(TracePosition, &'a Freshness)>,
    /// Contents of the cache as returned to readers and recorded at handler calls.
    pub(super) reads: Vec<StoreRead<'a>>,
    pub(crate) snapshots: Vec<Snapshot<'a>>,
    pub(crate) waits: Vec<Wait<'a>>,
    /// Keys that the informer ever reported as undecodable.
    pub(crate) ever_tainted: BTreeSet<&'a Key>,
    /// Keys in the informer's latest report of undecodable objects.
    pub(crate) tainted: BTreeSet<&'a Key>,
    pub(super) view: usize,
}

/// A complete list that was compared with the cache.
#[derive(Debug)]
pub(crate) struct Relist<'a> {
    pub(crate) position: TracePosition,
    pub(crate) from_version: Option<&'a str>,
    pub(crate) to_version: Option<&'a str>,
}

/// Content of the cache for one key: from a read, a snapshot or the start of a handler call.
#[derive(Clone, Debug)]
pub(crate) struct StoreRead<'a> {
    pub(crate) position: TracePosition,
    pub(crate) key: &'a Key,
    pub(crate) content: Cow<'a, StoreContent>,
}

/// Content of the whole cache at one time.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    pub(crate) position: TracePosition,
    pub(crate) objects: BTreeMap<&'a Key, &'a ObjectVersionRef>,
    pub(crate) tainted: BTreeSet<&'a Key>,
}

/// A finished wait.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    pub(crate) position: TracePosition,
    pub(crate) target: &'a WaitTarget,
    pub(crate) outcome: WaitOutcome,
    pub(crate) store_version: Option<&'a str>,
}

/// Recorded deliveries of a handler.
#[derive(Debug)]
pub(crate) struct Handler<'a> {
    pub(crate) name: &'a str,
    pub(crate) informer: usize,
    pub(crate) concurrency: usize,
    pub(crate) registered: TracePosition,
    pub(crate) removed: Option<TracePosition>,
    pub(crate) synced: Option<TracePosition>,
    pub(crate) calls: Vec<Call<'a>>,
    /// Skipped events.
    pub(crate) skips: Vec<(TracePosition, &'a ObjectVersionRef)>,
    pub(crate) queue_samples: Vec<QueueSample>,
    pub(crate) undelivered: usize,
}

/// Sample of a handler's queue.
#[derive(Debug)]
pub(crate) struct QueueSample {
    pub(crate) position: TracePosition,
    pub(crate) entries: usize,
    pub(crate) stored: usize,
    pub(crate) undeleted: usize,
}

impl<'a> Informer<'a> {
    /// Returns the first list, if it was recorded. Unlike the later ones, it was not compared with an earlier cache.
    pub(crate) fn first_list(&self) -> Option<&Relist<'a>> {
        self.relists.first().filter(|relist| relist.from_version.is_none())
    }

    /// Returns whether the informer had reported by that time that it is stopped.
    pub(crate) fn is_stopped_by(&self, position: TracePosition) -> bool {
        self.freshness.iter().any(|(reported_at, state)| *reported_at <= position && **state == Freshness::Stopped)
    }

    /// Returns whether no read of the informer's cache was recorded.
    pub(crate) fn has_no_reads(&self) -> bool {
        self.reads.is_empty()
    }

    /// Returns a violation at this informer.
    pub(crate) fn violation(
        &self,
        clause: Clause,
        object: Option<&Key>,
        times: (Duration, Duration),
        description: String,
    ) -> Violation {
        Violation { clause, informer: self.name.to_owned(), handler: None, object: object.cloned(), times, description }
    }
}
