//! Move of a watch to another connection while its own connection still works (R4).
//!
//! A watch moves if its connection drains or does not respond to a ping. Neither event concerns the content of the
//! cache, so freshness stays unchanged. If the watch breaks before its successor is open, the successor still replaces
//! it.

use std::time::Duration;

use super::cache_state::CacheState;
use super::effect::{Effect, Effects};
use super::failure::{Failure, FailureKind};
use super::output::Output;
use super::request::{Request, RequestId};
use super::requester::Requester;
use super::settings::ReflectorSettings;
use super::stream::Stream;
use crate::backoff::{Backoff, BackoffSettings};
use crate::fault_injection::inject;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Move of the watch, and its backoff.
#[derive(Debug)]
pub(super) struct WatchMove {
    state: State,
    /// Set if the successor's connection will also end, so that another move follows.
    must_move_again: bool,
    /// Time of the last move.
    moved_at: Option<Instant>,
    backoff: Backoff,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No move is planned.
    Idle,
    /// The stream `from` will be replaced at `at`.
    Planned { from: RequestId, at: Instant },
    /// The successor is being opened.
    Opening { id: RequestId, deadline: Instant },
    /// The successor is open and replaces the watch at `at`. Until then both streams are read, and the first delivery
    /// of a change counts.
    Open { id: RequestId, at: Instant },
}

/// Successor of a watch that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Successor {
    pub(super) id: RequestId,
    pub(super) is_open: bool,
}

/// Delay before a move is complete. A server that does not accept a version reports the rejection within the stream,
/// directly after the response head.
const MOVE_DELAY: Duration = Duration::from_millis(250);

impl WatchMove {
    /// Creates the machine without a planned move.
    pub(super) fn new(settings: &ReflectorSettings) -> Self {
        let delays = BackoffSettings { max_delay: settings.period / 2, ..settings.backoff };
        Self { state: State::Idle, must_move_again: false, moved_at: None, backoff: Backoff::new(delays) }
    }

    /// Returns whether `id` is the successor of the watch.
    pub(super) fn is_successor(&self, id: RequestId) -> bool {
        matches!(self.state, State::Opening { id: successor, .. } | State::Open { id: successor, .. } if successor == id)
    }

    /// Plans a move after a short random delay, so that not all watches move at the same time. `is_watch` is set if
    /// `id` is the watch, or the streamed list that continues as the watch.
    pub(super) fn request_move(
        &mut self,
        now: Instant,
        id: RequestId,
        is_watch: bool,
        cache: &CacheState,
        requester: &mut Requester,
    ) {
        if self.is_successor(id) {
            // The successor takes over first; `must_move_again` keeps the request for the next move.
            self.must_move_again = true;
        } else if is_watch && matches!(self.state, State::Idle | State::Planned { .. }) {
            self.plan(now, id, &cache.settings, requester);
        }
    }

    /// Cancels a planned move: the connection is healthy after all.
    pub(super) fn cancel_planned_move(&mut self, id: RequestId, is_watch: bool) -> Option<Output> {
        if self.is_successor(id) {
            self.must_move_again = false;
            return None;
        }
        if is_watch { self.cancel() } else { None }
    }

    fn plan(&mut self, now: Instant, from: RequestId, settings: &ReflectorSettings, requester: &mut Requester) {
        let moved_recently = self.moved_at.is_some_and(|moved_at| now.since(moved_at) < settings.healthy_after);
        let delay = if moved_recently {
            // The backoff limits connections to a server that ends each connection immediately (R6).
            self.backoff.fail(&mut requester.random)
        } else {
            self.backoff.reset();
            requester.between(Duration::ZERO, settings.relist_jitter)
        };
        self.state = State::Planned { from, at: now + delay };
    }

    /// Cancels the move.
    pub(super) fn cancel(&mut self) -> Option<Output> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Opening { id, .. } | State::Open { id, .. } => Some(Output::Cancel(id)),
            State::Idle | State::Planned { .. } => None,
        }
    }

    /// Returns the time of the next step: the start of the move, the deadline of the successor, or the end of the move.
    pub(super) fn due(&self, stream: Option<Stream>) -> Option<Instant> {
        let watch = stream.filter(|stream| stream.is_open)?;
        match self.state {
            // A plan belongs to one stream. After a resume on another connection, the plan is obsolete.
            State::Planned { from, at } if from == watch.id => Some(at),
            State::Opening { deadline: at, .. } | State::Open { at, .. } => Some(at),
            State::Planned { .. } | State::Idle => None,
        }
    }

    /// Performs the step that is due, if any. `is_replacing` is set while a second watch is being opened to replace the
    /// current one.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        stream: Option<Stream>,
        is_replacing: bool,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        let mut effects = Effects::default();
        if self.due(stream).is_none_or(|due| now < due) {
            return effects;
        }
        match self.state {
            State::Idle => {}
            State::Opening { id, .. } => {
                // The old watch still runs, so a later retry loses nothing.
                effects.cancel(id);
                self.retry_later(now, stream, None, requester);
            }
            // The old watch ends only after `MOVE_DELAY`, since a rejected version is reported inside the successor's
            // stream.
            State::Open { id, .. } => {
                self.complete(now, id, cache, requester);
                effects.push(Effect::TakeOver(id));
            }
            // A second watch is already being opened and will replace the current watch.
            State::Planned { .. } if is_replacing => self.retry_later(now, stream, None, requester),
            State::Planned { .. } => self.start(now, cache, requester, &mut effects),
        }
        effects
    }

    fn start(&mut self, now: Instant, cache: &CacheState, requester: &mut Requester, effects: &mut Effects) {
        let from = cache.version.clone().filter(ResourceVersion::is_ordered);
        let Some(from) = from.filter(|_| !inject!(cache.faults(), BreakBeforeMake)) else {
            // Changes with opaque versions from two streams could not be ordered (C12), so only one stream may exist at
            // a time.
            self.moved_at = Some(now);
            effects.push(Effect::LeaveWatch);
            effects.push(Effect::Watch);
            return;
        };
        let id = requester.next_id();
        self.must_move_again = false;
        self.state = State::Opening { id, deadline: now + cache.settings.list_stall_timeout };
        let timeout_seconds = requester.watch_seconds();
        effects.send(id, Request::Watch { from, timeout_seconds, new_connection: false });
    }

    fn retry_later(
        &mut self,
        now: Instant,
        stream: Option<Stream>,
        retry_after: Option<Duration>,
        requester: &mut Requester,
    ) {
        let Some(Stream { id, .. }) = stream else { return };
        let delay = self.backoff.fail(&mut requester.random);
        let at = now + requester.delay(delay, retry_after);
        self.state = State::Planned { from: id, at };
    }

    /// Records that the successor is open.
    pub(super) fn successor_opened(&mut self, now: Instant, id: RequestId) {
        self.state = State::Open { id, at: now + MOVE_DELAY };
    }

    /// Records that the request `id` is the watch from now on. Another move follows if its connection will also end.
    pub(super) fn complete(&mut self, now: Instant, id: RequestId, cache: &CacheState, requester: &mut Requester) {
        self.state = State::Idle;
        self.moved_at = Some(now);
        if std::mem::take(&mut self.must_move_again) {
            self.plan(now, id, &cache.settings, requester);
        }
    }

    /// Handles a server that does not respond on the connection of the successor. The successor is opened again on
    /// another connection. If no proof arrived since the request of the successor, the cache is also in doubt. The
    /// connection of the watch will end and accepts no further requests, so no proof can be requested on it.
    pub(super) fn successor_without_response(
        &mut self,
        now: Instant,
        stream: Option<Stream>,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        let mut effects = Effects::default();
        let State::Opening { deadline, .. } = self.state else { return effects };
        let sent = deadline - cache.settings.list_stall_timeout;
        effects.perform_all(self.cancel());
        self.retry_later(now, stream, None, requester);
        if cache.evidence.proven.is_none_or(|proven| proven < sent) {
            effects.push(Effect::NoResponse);
        }
        effects
    }

    /// Handles a successor that could not be opened. The watch continues for now, so a later retry loses nothing.
    pub(super) fn successor_failed(
        &mut self,
        now: Instant,
        stream: Option<Stream>,
        retry_after: Option<Duration>,
        requester: &mut Requester,
    ) {
        self.retry_later(now, stream, retry_after, requester);
    }

    /// Returns the successor of a watch that ended, or failed. A failure that would also affect the successor, such as
    /// an expired version, cancels the move. `out` then receives the cancellation of the successor's request.
    pub(super) fn successor(&mut self, failure: Option<&Failure>, out: &mut Vec<Output>) -> Option<Successor> {
        let successor = match self.state {
            State::Opening { id, .. } => Successor { id, is_open: false },
            State::Open { id, .. } => Successor { id, is_open: true },
            State::Idle | State::Planned { .. } => return None,
        };
        match failure {
            Some(failure) if failure.kind != FailureKind::Unreachable => {
                out.extend(self.cancel());
                None
            }
            _ => Some(successor),
        }
    }
}
