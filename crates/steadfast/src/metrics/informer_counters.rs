//! Counters of one informer: atomics at fixed indexes, so that an event costs one addition.

use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_core::event::{Change, Event};
use steadfast_core::reflector::Diagnostic;

/// A monotonic counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub(crate) fn count(&self) {
        self.add(1);
    }

    /// Adds `more`.
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the current value.
    #[cfg(feature = "metrics")]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Kinds of requests.
pub(crate) const REQUESTS: [&str; 8] =
    ["streamed_list", "page", "watch", "probe", "short_watch", "versions", "metadata", "state"];

/// Results of requests.
pub(crate) const OUTCOMES: [&str; 10] =
    ["ended", "unreachable", "expired", "too_large", "busy", "denied", "invalid", "unreadable", "full", "cancelled"];

/// Causes of full transfers.
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

/// Kinds of changes to cached objects.
pub(crate) const EVENTS: [&str; 3] = ["added", "updated", "deleted"];

/// Sources of changes.
pub(crate) const SOURCES: [&str; 2] = ["watch", "list"];

/// Kinds of diagnostics.
pub(crate) const DIAGNOSTICS: [&str; 17] = [
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

/// Kinds of decode errors: an object with a known key, whose reads then return an error, or a record without one.
pub(crate) const DECODE_FAILURES: [&str; 2] = ["object", "unidentified"];

/// Counters of one informer since its start.
#[derive(Debug, Default)]
pub(crate) struct InformerCounters {
    /// Sent requests, by [`REQUESTS`].
    pub(super) sent: [Counter; REQUESTS.len()],
    /// Successful response heads, by [`REQUESTS`].
    pub(super) opened: [Counter; REQUESTS.len()],
    /// Finished requests, by [`REQUESTS`] and [`OUTCOMES`].
    pub(super) finished: [[Counter; OUTCOMES.len()]; REQUESTS.len()],
    /// Full transfers, by [`CAUSES`].
    pub(super) transfers: [Counter; CAUSES.len()],
    /// Changes to cached objects, by [`EVENTS`] and [`SOURCES`].
    pub(super) events: [[Counter; SOURCES.len()]; EVENTS.len()],
    /// Diagnostics, by [`DIAGNOSTICS`].
    pub(super) diagnostics: [Counter; DIAGNOSTICS.len()],
    /// Decode errors, by [`DECODE_FAILURES`].
    pub(super) decode_failures: [Counter; DECODE_FAILURES.len()],
}

impl InformerCounters {
    /// Counts changes of the store from a list or a watch.
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

    /// Counts a diagnostic of the informer.
    pub(super) fn diagnostic(&self, diagnostic: &Diagnostic) {
        let place = match diagnostic {
            Diagnostic::Synced { .. } => 0,
            Diagnostic::Resumed { .. } => 1,
            Diagnostic::Ended => 2,
            Diagnostic::Failed { .. } => 3,
            Diagnostic::Relisting { .. } => 4,
            Diagnostic::Relisted { .. } => 5,
            Diagnostic::FellBackToPages { .. } => 6,
            Diagnostic::NewEpoch { .. } => 7,
            Diagnostic::Lagging { .. } => 8,
            Diagnostic::SeekingProof => 9,
            Diagnostic::Suspect { .. } => 10,
            Diagnostic::Moved { .. } => 11,
            Diagnostic::Audited { .. } => 12,
            Diagnostic::Lost { .. } => 13,
            Diagnostic::Polling { .. } => 14,
            Diagnostic::FellBackToJson { .. } => 15,
            Diagnostic::ListingAll { .. } => 16,
            Diagnostic::Undecodable { .. } => return self.decode_failures[0].count(),
            Diagnostic::Unidentified { .. } => return self.decode_failures[1].count(),
            // The end of a doubt is not counted: the metrics of the freshness show it. `Endless` reports an incomplete
            // record. When the record is complete, the diagnostic about its object is counted. All other kinds are
            // rare, and are logged.
            _ => return,
        };
        self.diagnostics[place].count();
    }
}
