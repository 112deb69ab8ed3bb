//! One watch of an endpoint for a resource, and its observations.

use std::collections::HashMap;
use std::time::Duration;

use steadfast::environment::Instant;

use crate::version_table::{NameHash, VersionTable};

/// Upper limits of the buckets of [`DelayHistogram`], in seconds. The last bucket has no limit.
pub const DELAY_BUCKETS: [f64; 7] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 120.0];

/// Maximum number of objects that change during a list. Above it, the list is not compared with this stream.
const MAX_TOUCHED: usize = 20_000;

/// Distribution of the delays of a watch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DelayHistogram {
    /// Number of delays by bucket; the last one is above all limits.
    pub counts: [u64; DELAY_BUCKETS.len() + 1],
    /// Sum of the delays in seconds.
    pub sum: f64,
}

impl DelayHistogram {
    fn record(&mut self, delay: Duration) {
        let seconds = delay.as_secs_f64();
        let bucket = DELAY_BUCKETS.iter().position(|limit| seconds <= *limit).unwrap_or(DELAY_BUCKETS.len());
        self.counts[bucket] += 1;
        self.sum += seconds;
    }
}

/// State of the request of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StreamState {
    /// No request; the next one starts at this time at the earliest.
    Closed { retry_at: Instant },
    /// The request has no response yet.
    Opening { request: u64 },
    /// The watch is open since this time.
    Open { request: u64, since: Instant },
}

/// First change that a short watch delivered, and the stream did not deliver so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallEvidence {
    pub(crate) version: u64,
    pub(crate) since: Instant,
}

/// Next request that distinguishes the causes of an absent change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DiagnosisPhase {
    /// Checks whether the watch cache has reached the version.
    Cache,
    /// Checks whether a short watch delivers the change.
    Watch,
}

/// Search for the cause of an absent change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Diagnosis {
    /// Version of the change, or of the list that lacks an object.
    pub(crate) version: u64,
    /// True if `version` is that of a change, so that each watch cache must reach it.
    pub(crate) is_change: bool,
    pub(crate) phase: DiagnosisPhase,
    /// Earliest time of the next request.
    pub(crate) not_before: Instant,
}

/// Watch of one endpoint for one resource.
#[derive(Debug)]
pub(crate) struct AuditStream {
    pub(crate) state: StreamState,
    /// Versions that the stream has delivered; `None` before the first list.
    pub(crate) table: Option<VersionTable>,
    /// All changes up to this version have been delivered or lost.
    pub(crate) position: u64,
    /// A short watch has shown that no change exists between `position` and this version.
    pub(crate) verified: u64,
    pub(crate) last_record: Instant,
    pub(crate) last_check: Instant,
    pub(crate) last_bookmark: Instant,
    /// Version that a bookmark must exceed: that of the last bookmark, or the first one observed after the start.
    bookmark_floor: Option<u64>,
    /// Time at which the version of the resource rose above the floor, without a bookmark since then.
    pub(crate) bookmark_due: Option<Instant>,
    pub(crate) evidence: Option<StallEvidence>,
    pub(crate) diagnosis: Option<Diagnosis>,
    /// Version that ends an active finding of a stall.
    pub(crate) stalled_at: Option<u64>,
    /// Version that ends an active finding of a lagging replica.
    pub(crate) behind_at: Option<u64>,
    /// True if a loss was reported since the last list.
    pub(crate) has_recent_loss: bool,
    pub(crate) failures: u32,
    /// Versions of the events since the start of a list; `None` without a list, or after too many events.
    pub(crate) touched: Option<HashMap<NameHash, u64>>,
    pub(crate) delays: DelayHistogram,
    pub(crate) lost_events: u64,
}

impl AuditStream {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: StreamState::Closed { retry_at: now },
            table: None,
            position: 0,
            verified: 0,
            last_record: now,
            last_check: now,
            last_bookmark: now,
            bookmark_floor: None,
            bookmark_due: None,
            evidence: None,
            diagnosis: None,
            stalled_at: None,
            behind_at: None,
            has_recent_loss: false,
            failures: 0,
            touched: None,
            delays: DelayHistogram::default(),
            lost_events: 0,
        }
    }

    /// Returns the start of the open watch.
    pub(crate) fn open_since(&self) -> Option<Instant> {
        match self.state {
            StreamState::Open { since, .. } => Some(since),
            _ => None,
        }
    }

    /// Returns the number of the current request.
    pub(crate) fn request(&self) -> Option<u64> {
        match self.state {
            StreamState::Open { request, .. } | StreamState::Opening { request } => Some(request),
            StreamState::Closed { .. } => None,
        }
    }

    /// Accepts the response of the server.
    pub(crate) fn open(&mut self, now: Instant) {
        if let StreamState::Opening { request } = self.state {
            self.state = StreamState::Open { request, since: now };
            (self.last_record, self.last_check, self.last_bookmark) = (now, now, now);
            (self.bookmark_floor, self.bookmark_due) = (None, None);
        }
    }

    /// Ends the watch, and schedules the next one.
    pub(crate) fn close(&mut self, now: Instant, is_failure: bool) {
        let lasted = self.open_since().map_or(Duration::ZERO, |since| now.since(since));
        self.failures = if is_failure || lasted < Duration::from_secs(30) { (self.failures + 1).min(6) } else { 0 };
        let delay = Duration::from_millis(500) * (1 << self.failures);
        self.state = StreamState::Closed { retry_at: now + delay };
        (self.evidence, self.diagnosis, self.bookmark_due) = (None, None, None);
    }

    /// Accepts a bookmark.
    pub(crate) fn bookmark(&mut self, now: Instant, version: u64) {
        (self.last_bookmark, self.bookmark_due) = (now, None);
        self.bookmark_floor = self.bookmark_floor.max(Some(version));
        self.position = self.position.max(version);
    }

    /// Accepts a version of the resource: that of an event, or of a consistent read.
    ///
    /// A server sends no bookmark up to the version that its watch cache had at the start of the watch. The first version
    /// of a consistent read is at least as high.
    pub(crate) fn observe_version(&mut self, now: Instant, version: u64, is_read: bool) {
        match self.bookmark_floor {
            Some(floor) if version > floor => drop(self.bookmark_due.get_or_insert(now)),
            None if is_read => self.bookmark_floor = Some(version),
            _ => {}
        }
    }

    /// Returns the known version of an object.
    pub(crate) fn version_of(&self, key: NameHash) -> Option<u64> {
        self.table.as_ref().and_then(|table| table.get(&key)).copied()
    }

    /// Stores a change or deletion of an object.
    pub(crate) fn store(&mut self, key: NameHash, version: u64, is_deletion: bool) {
        if let Some(table) = &mut self.table {
            if is_deletion {
                table.remove(&key);
            } else {
                table.insert(key, version);
            }
        }
        if self.touched.as_ref().is_some_and(|touched| touched.len() >= MAX_TOUCHED) {
            self.touched = None;
        }
        if let Some(touched) = &mut self.touched {
            touched.insert(key, version);
        }
    }

    /// Records the delay of a change.
    pub(crate) fn record_delay(&mut self, delay: Duration) {
        self.delays.record(delay);
    }

    /// Returns whether the stream no longer needs to deliver a change of this version and key, according to its table.
    pub(crate) fn has_settled(&self, key: NameHash, version: u64) -> bool {
        if self.table.is_none() {
            // The next list contains the change.
            return true;
        }
        // An absent object may have been deleted in the meantime, so its events are not lost.
        self.position >= version && self.version_of(key).is_none_or(|known| known >= version)
    }
}
