//! State shared by recorders and the sender task.

use std::fmt;

use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::{Mutex, MutexGuard};
use steadfast::Connection;
use steadfast::environment::{Instant, SharedEnvironment};
use tokio::sync::Notify;

use super::correlate::{AbandonedEvents, Correlator, RecordResult, SenderAction};
use super::draft::EventDraft;
use super::log_throttle::LogThrottle;
use super::outcome::RequestOutcome;
use super::series::RecordTime;
use super::stats::EventStats;
use crate::wall_clock::WallClock;

/// State shared by recorders and the sender task.
pub(super) struct Shared {
    pub(super) connection: Connection,
    wall_clock: WallClock,
    state: Mutex<State>,
    /// Wakes the sender task.
    pub(super) work: Notify,
    /// Wakes tasks that wait for progress.
    pub(super) progress: Notify,
}

struct State {
    correlator: Correlator,
    dropped: LogThrottle,
    failed: LogThrottle,
    /// True after the sender ended.
    sender_ended: bool,
}

impl Shared {
    pub(super) fn new(connection: Connection, wall_clock: WallClock, correlator: Correlator) -> Self {
        let state =
            State { correlator, dropped: LogThrottle::default(), failed: LogThrottle::default(), sender_ended: false };
        Self { connection, wall_clock, state: Mutex::new(state), work: Notify::new(), progress: Notify::new() }
    }

    pub(super) fn environment(&self) -> &SharedEnvironment {
        self.connection.environment()
    }

    fn now(&self) -> Instant {
        self.environment().now()
    }

    // No user code runs under this lock.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Runs `operation` on the correlator under the lock.
    pub(super) fn with<R>(&self, operation: impl FnOnce(&mut Correlator) -> R) -> R {
        operation(&mut self.lock().correlator)
    }

    pub(super) fn record(&self, regarding: ObjectReference, draft: EventDraft) {
        // The clock is user code and runs before the lock; logging happens after the lock.
        let wall_time = (self.wall_clock)();
        let mut state = self.lock();
        let now = self.now();
        let reason = draft.reason.clone();
        let recorded = state.correlator.record(regarding, draft, RecordTime { now, wall_time });
        let count = match recorded {
            RecordResult::Dropped => state.dropped.add_and_take(1, now),
            RecordResult::Invalid(_) => state.failed.add_and_take(1, now),
            _ => None,
        };
        drop(state);
        let server = self.connection.server();
        match (recorded, count) {
            (RecordResult::Queued, _) => self.work.notify_one(),
            (RecordResult::Filtered, _) => {
                tracing::debug!(%reason, "event not sent: its object exceeded the limit of new events");
            }
            (RecordResult::Dropped, Some(count)) => {
                tracing::warn!(server, count, "events dropped: the recorder is stopped, or the queue is full");
            }
            (RecordResult::Invalid(violation), Some(count)) => {
                tracing::warn!(%reason, violation, count, "events not sent: the server would reject them");
            }
            _ => {}
        }
    }

    pub(super) fn next(&self) -> SenderAction {
        let mut state = self.lock();
        let next = state.correlator.next(self.now());
        if next == SenderAction::Done {
            state.sender_ended = true;
            self.progress.notify_waiters();
        }
        next
    }

    pub(super) fn record_outcome(&self, number: u64, outcome: RequestOutcome) {
        let random = self.environment().random();
        let mut state = self.lock();
        let now = self.now();
        let abandoned_events = state.correlator.on_outcome(number, outcome, now, random);
        // The throttle runs under the lock. The log line is written after the lock is released.
        let count = abandoned_events
            .as_ref()
            .and_then(|abandoned_events| state.failed.add_and_take(abandoned_events.count, now));
        drop(state);
        self.progress.notify_waiters();
        if let Some(abandoned_events) = abandoned_events {
            self.log_abandoned(&abandoned_events, count);
        }
    }

    /// Logs abandoned events. `count` is the number since the last log line, if a line should be logged now.
    fn log_abandoned(&self, abandoned_events: &AbandonedEvents, count: Option<u64>) {
        let server = self.connection.server();
        let AbandonedEvents { object, reason, rejection, .. } = abandoned_events;
        match (rejection, count) {
            (Some(rejection), _) if rejection.is_ending => {
                tracing::debug!(server, object, %reason, "event not sent: its namespace is being deleted");
            }
            (_, None) => {}
            (Some(rejection), Some(count)) if rejection.code == 403 => tracing::warn!(
                server, object, %reason, %rejection, count,
                "the server rejects events; grant create and patch on events in events.k8s.io, in the object's namespace"
            ),
            (Some(rejection), Some(count)) => {
                tracing::warn!(server, object, %reason, %rejection, count, "events abandoned: the server rejects them");
            }
            (None, Some(count)) => tracing::warn!(
                server, object, %reason, count,
                "events abandoned: all attempts failed"
            ),
        }
    }

    /// Returns true if no recording up to `last` is undelivered, or after the end of the sender.
    pub(super) fn is_flushed(&self, last: u64) -> bool {
        let state = self.lock();
        state.sender_ended || state.correlator.is_flushed(last)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.lock().sender_ended
    }

    pub(super) fn stats(&self) -> EventStats {
        self.lock().correlator.stats()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("connection", &self.connection).finish_non_exhaustive()
    }
}
