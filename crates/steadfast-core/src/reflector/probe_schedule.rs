//! Schedule of the requests for proofs.

use std::time::Duration;

use super::failure::MAX_RETRY_AFTER;
use super::requester::Requester;
use crate::backoff::{Backoff, BackoffSettings};
use crate::time::Instant;

/// Schedule of the requests for proofs.
#[derive(Debug)]
pub(super) struct ProbeSchedule {
    /// Time at which the silence exceeds the period.
    due_at: Instant,
    /// Set if a proof is needed earlier: for a caller, for a comparison, or because the server responds again.
    is_requested: bool,
    /// Set if a caller waits for this proof.
    is_awaited: bool,
    /// Earliest time of the next request, even if a proof is needed earlier.
    earliest_at: Instant,
    /// Start of the last request.
    started_at: Instant,
    /// Set if a period of silence had passed at that start.
    was_overdue: bool,
    /// Time at which a stream broke. A proof after it is required before the cache is fresh again (C10).
    broken_at: Option<Instant>,
    /// Backoff after requests without a proof.
    backoff: Backoff,
}

/// Reasons of a request for a proof.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProofReasons {
    /// Set if the proof is needed before a period of silence has passed.
    pub(super) is_requested: bool,
    /// Set if a caller waits for the proof.
    pub(super) is_awaited: bool,
}

/// Minimum time between the starts of two requests.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum age of another informer's probe that counts as a proof after a break.
pub(super) const MAX_SHARED_PROOF_AGE: Duration = Duration::from_secs(4);

/// Maximum time until a proof is requested after a broken watch is open again. The time is random, so that the first
/// informer's probe serves the other informers of the resource. Informers whose watches open later send their own.
pub(super) const MAX_PROOF_DELAY: Duration = Duration::from_millis(500);

impl ProbeSchedule {
    /// Creates a schedule that is due immediately. `period` is the assumed period of a stream.
    pub(super) fn new(period: Duration) -> Self {
        let delays = BackoffSettings {
            initial_delay: MIN_REQUEST_INTERVAL,
            second_delay: MIN_REQUEST_INTERVAL * 2,
            max_delay: period / 2,
        };
        Self {
            due_at: Instant::ZERO,
            is_requested: false,
            is_awaited: false,
            earliest_at: Instant::ZERO,
            started_at: Instant::ZERO,
            was_overdue: false,
            broken_at: None,
            backoff: Backoff::new(delays),
        }
    }

    /// Requests a proof as soon as a stream exists.
    pub(super) fn request(&mut self, now: Instant) {
        self.is_requested = true;
        self.earliest_at = self.earliest_at.max(now);
    }

    /// Requests a proof for which a caller waits.
    pub(super) fn await_proof(&mut self, now: Instant) {
        self.request(now);
        self.is_awaited = true;
    }

    /// Returns the time of the next request.
    pub(super) fn due(&self) -> Instant {
        if self.is_requested { self.earliest_at.min(self.due_at) } else { self.due_at }
    }

    /// Returns the start of the last request.
    pub(super) fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Returns whether a period of silence had passed at the start of the last request.
    pub(super) fn was_overdue(&self) -> bool {
        self.was_overdue
    }

    /// Returns the time of the last break of a stream, if no proof has arrived since.
    pub(super) fn broken_at(&self) -> Option<Instant> {
        self.broken_at
    }

    /// Records a broken stream: earlier proofs do not cover the server's current state.
    pub(super) fn set_broken(&mut self, now: Instant) {
        self.broken_at = Some(now);
    }

    /// Records the start of a request, and returns its reasons.
    pub(super) fn start(&mut self, now: Instant) -> ProofReasons {
        let reasons = ProofReasons { is_requested: self.is_requested, is_awaited: self.is_awaited };
        // This is recorded before `due_at` changes: only a request after a full period of silence may lengthen the
        // interval.
        self.was_overdue = now >= self.due_at;
        (self.is_requested, self.is_awaited) = (false, false);
        self.earliest_at = now + MIN_REQUEST_INTERVAL;
        self.started_at = now;
        reasons
    }

    /// Schedules the next request after a proof of the state at `proven_at`. Bookmarks may be late, so a twentieth of
    /// the period is added. Another twentieth is jitter, so that informers that became silent at the same time do not
    /// send requests at the same time.
    pub(super) fn proven(&mut self, proven_at: Instant, period: Duration, requester: &mut Requester) {
        self.backoff.reset();
        // A proof of a state before the break does not cover the time after the break (C10), so the request for that
        // proof keeps its time.
        self.broken_at = self.broken_at.filter(|broken_at| proven_at < *broken_at);
        if self.broken_at.is_some() {
            return;
        }
        self.due_at = proven_at + requester.between(period + period / 20, period + period / 10);
    }

    /// Schedules the next request for `at`.
    pub(super) fn set_due(&mut self, at: Instant) {
        self.due_at = at;
    }

    /// Schedules an early request after a new stream replaced a broken one.
    pub(super) fn request_soon(&mut self, now: Instant, requester: &mut Requester) {
        let latest = now + requester.between(Duration::ZERO, MAX_PROOF_DELAY);
        // A request that is scheduled within this time keeps its time. Only an overdue or a later request moves.
        if self.due_at <= now || self.due_at > latest {
            self.due_at = latest;
        }
    }

    /// Schedules the next request after a missing proof, with a growing delay.
    pub(super) fn retry_later(&mut self, now: Instant, requester: &mut Requester) {
        self.due_at = now + self.backoff.fail(&mut requester.random).max(MIN_REQUEST_INTERVAL / 5);
    }

    /// Schedules the next request after the delay that the server requested.
    pub(super) fn delay_by(&mut self, now: Instant, retry_after: Duration, requester: &mut Requester) {
        self.retry_later(now, requester);
        self.due_at = self.due_at.max(now + retry_after.min(MAX_RETRY_AFTER));
        self.earliest_at = self.due_at;
    }
}
