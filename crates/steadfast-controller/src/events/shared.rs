//! What those who record and the task that sends have in common.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use steadfast::Connection;
use steadfast::environment::{Instant, SharedEnvironment};
use tokio::sync::Notify;

use super::answer::Answer;
use super::complaint::Complaint;
use super::correlate::{Correlator, GivenUp, Next, Recorded};
use super::draft::EventDraft;
use super::figures::EventStats;
use super::series::Moment;

/// Where the time of people comes from.
pub(super) type WallClock = Box<dyn Fn() -> Timestamp + Send + Sync>;

/// What those who record and the task that sends have in common.
pub(super) struct Shared {
    pub(super) connection: Connection,
    wall: WallClock,
    state: Mutex<State>,
    /// Calls the task that sends.
    pub(super) work: Notify,
    /// Calls those who wait until something was sent.
    pub(super) progress: Notify,
}

struct State {
    correlator: Correlator,
    dropped: Complaint,
    failed: Complaint,
    /// Whether nothing is sent any more.
    is_over: bool,
}

impl Shared {
    pub(super) fn new(connection: Connection, wall: WallClock, correlator: Correlator) -> Self {
        let state = State { correlator, dropped: Complaint::default(), failed: Complaint::default(), is_over: false };
        Self { connection, wall, state: Mutex::new(state), work: Notify::new(), progress: Notify::new() }
    }

    pub(super) fn environment(&self) -> &SharedEnvironment {
        self.connection.environment()
    }

    fn now(&self) -> Instant {
        self.environment().now()
    }

    // Only the correlator works under it, which calls nobody.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a look or a hand at what was recorded.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Correlator) -> R) -> R {
        act(&mut self.lock().correlator)
    }

    pub(super) fn record(&self, regarding: ObjectReference, draft: EventDraft) {
        // The user's code runs before the lock is held, and what is told is told after.
        let wall = (self.wall)();
        let mut state = self.lock();
        let now = self.now();
        let reason = draft.reason.clone();
        let recorded = state.correlator.record(regarding, draft, Moment { now, wall });
        let count = match recorded {
            Recorded::Dropped => state.dropped.of(1, now),
            Recorded::Invalid(_) => state.failed.of(1, now),
            _ => None,
        };
        drop(state);
        let server = self.connection.server();
        match (recorded, count) {
            (Recorded::Queued, _) => self.work.notify_one(),
            (Recorded::Filtered, _) => {
                tracing::debug!(%reason, "an event is not sent: there were too many of its kind about its object");
            }
            (Recorded::Dropped, Some(count)) => tracing::warn!(
                server,
                count,
                "events were dropped: the recorder was stopped, or more new ones are recorded than the server takes"
            ),
            (Recorded::Invalid(why), Some(count)) => {
                tracing::warn!(%reason, why, count, "events were not sent, which the server would refuse");
            }
            _ => {}
        }
    }

    pub(super) fn next(&self) -> Next {
        let mut state = self.lock();
        let next = state.correlator.next(self.now());
        if next == Next::Over {
            state.is_over = true;
            self.progress.notify_waiters();
        }
        next
    }

    pub(super) fn answered(&self, number: u64, answer: Answer) {
        let random = self.environment().random();
        let mut state = self.lock();
        let now = self.now();
        let given_up = state.correlator.answered(number, answer, now, random);
        let count = given_up.as_ref().and_then(|given_up| state.failed.of(given_up.count, now));
        drop(state);
        self.progress.notify_waiters();
        if let Some(given_up) = given_up {
            self.tell(&given_up, count);
        }
    }

    /// Tells of the last of `count` events that were given up, if that is to be told now.
    fn tell(&self, given_up: &GivenUp, count: Option<u64>) {
        let server = self.connection.server();
        let GivenUp { about, reason, refusal, .. } = given_up;
        match (refusal, count) {
            (Some(refusal), _) if refusal.is_ending => {
                tracing::debug!(server, about, %reason, "an event is not sent: its namespace is being deleted");
            }
            (_, None) => {}
            (Some(refusal), Some(count)) if refusal.code == 403 => tracing::warn!(
                server, about, %reason, %refusal, count,
                "the server refuses events: allow create and patch of events in events.k8s.io, in the object's namespace"
            ),
            (Some(refusal), Some(count)) => {
                tracing::warn!(server, about, %reason, %refusal, count, "the server refuses events, which are given up");
            }
            (None, Some(count)) => tracing::warn!(
                server, about, %reason, count,
                "events are given up: the server did not take them in as many tries as the settings allow"
            ),
        }
    }

    /// Whether nothing up to this recording is left to be sent, or will be.
    pub(super) fn is_flushed(&self, last: u64) -> bool {
        let state = self.lock();
        state.is_over || state.correlator.is_flushed(last)
    }

    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    pub(super) fn figures(&self) -> EventStats {
        self.lock().correlator.figures()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("connection", &self.connection).finish_non_exhaustive()
    }
}
