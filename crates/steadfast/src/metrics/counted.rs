//! The counters of one informer: plain atomics, each with a fixed place, so that an event costs one addition.

use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_core::event::{Change, Event};
use steadfast_core::reflector::Note;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub(crate) fn count(&self) {
        self.add(1);
    }

    /// So many more.
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// How many so far.
    #[cfg(feature = "metrics")]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What an informer asks a server for.
pub(crate) const REQUESTS: [&str; 8] =
    ["streamed_list", "page", "watch", "probe", "short_watch", "versions", "metadata", "state"];

/// What becomes of a request.
pub(crate) const OUTCOMES: [&str; 10] =
    ["ended", "unreachable", "expired", "too_large", "busy", "denied", "invalid", "unreadable", "full", "cancelled"];

/// Why a whole collection is transferred.
pub(crate) const CAUSES: [&str; 12] = [
    "first",
    "unreachable",
    "expired",
    "too_large",
    "busy",
    "denied",
    "invalid",
    "unreadable",
    "full",
    "new_epoch",
    "proof",
    "lost",
];

/// What happens to a cache's objects.
pub(crate) const EVENTS: [&str; 3] = ["added", "updated", "deleted"];

/// How that is known.
pub(crate) const SOURCES: [&str; 2] = ["watch", "list"];

/// What an informer notes of itself.
pub(crate) const NOTES: [&str; 17] = [
    "synced",
    "resumed",
    "watch_ended",
    "attempt_failed",
    "relisting",
    "relisted",
    "fell_back_to_pages",
    "new_epoch",
    "lagging",
    "seeking_proof",
    "suspect",
    "moved",
    "audited",
    "lost",
    "polling",
    "fell_back_to_json",
    "listing_all",
];

/// What could not be decoded: an object that is known, whose key then answers as unknown, or a record of no known one.
pub(crate) const UNREAD: [&str; 2] = ["object", "unidentified"];

/// What one informer has done so far.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// By [`REQUESTS`].
    pub(super) sent: [Counter; REQUESTS.len()],
    /// By [`REQUESTS`]: those whose answer began well.
    pub(super) opened: [Counter; REQUESTS.len()],
    /// By [`REQUESTS`] and [`OUTCOMES`].
    pub(super) over: [[Counter; OUTCOMES.len()]; REQUESTS.len()],
    /// By [`CAUSES`].
    pub(super) transfers: [Counter; CAUSES.len()],
    /// By [`EVENTS`] and [`SOURCES`].
    pub(super) events: [[Counter; SOURCES.len()]; EVENTS.len()],
    /// By [`NOTES`].
    pub(super) notes: [Counter; NOTES.len()],
    /// By [`UNREAD`].
    pub(super) unread: [Counter; UNREAD.len()],
}

impl Counted {
    /// Counts what changed in the store, by a list or by a watch.
    pub(crate) fn changes<K>(&self, changes: &[Change<K>], listed: bool) {
        let mut sums = [0; EVENTS.len()];
        for change in changes {
            match change.event {
                Event::Added { .. } => sums[0] += 1,
                Event::Updated { .. } => sums[1] += 1,
                Event::Deleted { .. } => sums[2] += 1,
                Event::Resynced { .. } => {}
            }
        }
        for (counters, sum) in self.events.iter().zip(sums).filter(|(_, sum)| *sum > 0) {
            counters[usize::from(listed)].add(sum);
        }
    }

    /// Counts what the informer notes of itself.
    pub(super) fn note(&self, note: &Note) {
        let place = match note {
            Note::Synced { .. } => 0,
            Note::Resumed { .. } => 1,
            Note::Ended => 2,
            Note::Failed { .. } => 3,
            Note::Relisting { .. } => 4,
            Note::Relisted { .. } => 5,
            Note::FellBackToPages { .. } => 6,
            Note::NewEpoch { .. } => 7,
            Note::Lagging { .. } => 8,
            Note::SeekingProof => 9,
            Note::Suspect { .. } => 10,
            Note::Moved { .. } => 11,
            Note::Audited { .. } => 12,
            Note::Lost { .. } => 13,
            Note::Polling { .. } => 14,
            Note::FellBackToJson { .. } => 15,
            Note::ListingAll { .. } => 16,
            // The end of a doubt is no event of its own: the freshness shows it. What is endless is counted when it has
            // ended after all, by what it was about.
            Note::Proven
            | Note::Restored { .. }
            | Note::NotRestored { .. }
            | Note::NotKept { .. }
            | Note::ToldUnwritten { .. }
            | Note::KnownByName { .. }
            | Note::Endless { .. }
            | Note::Contradicted { .. }
            | Note::Disordered => return,
            Note::Undecodable { .. } => return self.unread[0].count(),
            Note::Unidentified { .. } => return self.unread[1].count(),
        };
        self.notes[place].count();
    }
}
