//! Move of a watch to another connection while its own connection still works (R4).
//!
//! The connection drains or does not respond to a ping. Neither concerns the content of the cache, so freshness stays
//! unchanged. If the watch breaks before its successor is open, the successor still replaces it.

use std::time::Duration;

use super::{
    Diagnostic, Failure, FailureKind, Output, Phase, ProbeState, Reflector, ReflectorSettings, Request, RequestId,
};
use crate::backoff::{Backoff, BackoffSettings};
use crate::fault_injection::InjectedFault;
use crate::time::Instant;

/// State of a move, and its backoff.
#[derive(Debug)]
pub(super) struct Moving {
    state: Move,
    /// Set if the successor's connection will also end, so that another move follows.
    onward: bool,
    /// Time of the last move.
    moved: Option<Instant>,
    backoff: Backoff,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    /// No move is planned.
    Settled,
    /// The stream `from` will be replaced at `at`.
    Planned { from: RequestId, at: Instant },
    /// The successor is being opened.
    Opening { id: RequestId, deadline: Instant },
    /// The successor is open and replaces the watch at `at`. Until then both streams are read, and the first delivery
    /// of a change counts.
    Open { id: RequestId, at: Instant },
}

/// Delay before a move is complete. A server that does not accept a version reports it within the stream, directly
/// after the response head.
const MOVE_DELAY: Duration = Duration::from_millis(250);

impl Moving {
    /// Creates the state without a planned move.
    pub(super) fn new(settings: &ReflectorSettings) -> Self {
        let patience = BackoffSettings { ceiling: settings.period / 2, ..settings.backoff };
        Self { state: Move::Settled, onward: false, moved: None, backoff: Backoff::new(patience) }
    }
}

impl Reflector {
    /// Processes [`super::Input::Unsettled`]. The watch moves after a short random delay, so that not all watches move
    /// at once.
    pub(super) fn unsettled(&mut self, now: Instant, id: RequestId) {
        if self.is_successor(id) {
            // The successor takes over first; `onward` keeps the request for the next move.
            self.moving.onward = true;
        } else if self.is_carried(id) && matches!(self.moving.state, Move::Settled | Move::Planned { .. }) {
            self.plan_move(now, id);
        }
    }

    /// Processes [`super::Input::Settled`]: the connection is healthy after all.
    pub(super) fn settled(&mut self, id: RequestId, out: &mut Vec<Output>) {
        if self.is_successor(id) {
            self.moving.onward = false;
        } else if self.is_carried(id) {
            self.stay(out);
        }
    }

    /// Returns whether `id` is the watch, or the list that becomes it.
    fn is_carried(&self, id: RequestId) -> bool {
        match self.phase {
            Phase::Watching { id: stream, .. } | Phase::Listing { id: stream, streamed: true, .. } => stream == id,
            _ => false,
        }
    }

    fn plan_move(&mut self, now: Instant, from: RequestId) {
        let soon = self.moving.moved.is_some_and(|moved| now.since(moved) < self.settings.healthy_after);
        let delay = if soon {
            // The backoff limits connections to a server that ends each connection immediately (R6).
            self.moving.backoff.fail(&mut self.random)
        } else {
            self.moving.backoff.reset();
            self.random.between(Duration::ZERO, self.settings.relist_jitter)
        };
        self.moving.state = Move::Planned { from, at: now + delay };
    }

    /// Cancels the move.
    pub(super) fn stay(&mut self, out: &mut Vec<Output>) {
        let state = std::mem::replace(&mut self.moving.state, Move::Settled);
        if let Move::Opening { id, .. } | Move::Open { id, .. } = state {
            out.push(Output::Cancel(id));
        }
    }

    pub(super) fn move_wake(&self) -> Option<Instant> {
        let Phase::Watching { id, opened: Some(_), .. } = self.phase else { return None };
        match self.moving.state {
            // A plan belongs to one stream. After a resume on another connection, the plan is
            // obsolete.
            Move::Planned { from, at } if from == id => Some(at),
            Move::Opening { deadline: at, .. } | Move::Open { at, .. } => Some(at),
            Move::Planned { .. } | Move::Settled => None,
        }
    }

    pub(super) fn move_tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.move_wake().is_none_or(|wake| now < wake) {
            return;
        }
        match self.moving.state {
            Move::Settled => {}
            Move::Opening { id, .. } => {
                // The old watch still runs, so a later retry loses nothing.
                out.push(Output::Cancel(id));
                self.move_later(now, None);
            }
            Move::Open { id, .. } => self.take_over(now, id, out),
            // Another watch is already being opened and will replace this one.
            Move::Planned { .. } if matches!(self.side, ProbeState::Replacing { .. }) => self.move_later(now, None),
            Move::Planned { .. } => self.begin_move(now, out),
        }
    }

    fn begin_move(&mut self, now: Instant, out: &mut Vec<Output>) {
        let broken_first = self.settings.rules.faults.is_injected(InjectedFault::BreakBeforeMake);
        let Some(from) = self.version.clone().filter(|version| version.is_ordered() && !broken_first) else {
            // Changes with opaque versions from two streams could not be ordered (C12), so only one stream may exist at
            // a time.
            self.leave_watch(out);
            self.moving.moved = Some(now);
            self.watch(now, out);
            return;
        };
        let id = self.next_id();
        self.moving.onward = false;
        self.moving.state = Move::Opening { id, deadline: now + self.settings.list_patience };
        let timeout_seconds = self.watch_seconds();
        out.push(Output::Send(id, Request::Watch { from, timeout_seconds, elsewhere: false }));
    }

    fn move_later(&mut self, now: Instant, asked: Option<Duration>) {
        let Phase::Watching { id, .. } = self.phase else { return };
        let patience = self.moving.backoff.fail(&mut self.random);
        let at = now + self.delay(patience, asked);
        self.moving.state = Move::Planned { from: id, at };
    }

    /// Returns whether `id` is the successor of the watch.
    pub(super) fn is_successor(&self, id: RequestId) -> bool {
        matches!(self.moving.state, Move::Opening { id: own, .. } | Move::Open { id: own, .. } if own == id)
    }

    pub(super) fn successor_opened(&mut self, now: Instant, id: RequestId) {
        self.moving.state = Move::Open { id, at: now + MOVE_DELAY };
    }

    /// Replaces the watch by the successor, which continues from the version at the time of its request. The previous
    /// watch ends.
    fn take_over(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        // Its age and its proofs carry over: both streams count as one watch on changing connections.
        let Phase::Watching { id: watching, .. } = &mut self.phase else { return };
        // Cancelled only after the grace period: a rejected version is reported inside the
        // successor's stream.
        out.push(Output::Cancel(std::mem::replace(watching, id)));
        self.has_moved(now, id);
        out.extend(self.version.clone().map(|version| Output::Diagnostic(Diagnostic::Moved { version })));
    }

    fn has_moved(&mut self, now: Instant, id: RequestId) {
        self.moving.state = Move::Settled;
        self.moving.moved = Some(now);
        // The successor's connection drains as well, so the next move starts now.
        if std::mem::take(&mut self.moving.onward) {
            self.plan_move(now, id);
        }
    }

    /// Handles a server that does not respond on the connection of the successor. The successor is opened again on
    /// another connection. If no proof arrived since its request, the cache is also in doubt: the connection of the
    /// watch will end and accepts no further requests.
    pub(super) fn successor_unanswered(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Move::Opening { deadline, .. } = self.moving.state else { return };
        let requested = deadline - self.settings.list_patience;
        self.stay(out);
        self.move_later(now, None);
        if self.evidence.proven.is_none_or(|proven| proven < requested) {
            self.unanswered(now, false, out);
        }
    }

    /// Handles a successor that could not be opened. The watch continues for now, so a later retry loses nothing.
    pub(super) fn successor_failed(&mut self, now: Instant, failure: &Failure) {
        self.move_later(now, failure.retry_after);
    }

    /// Replaces a watch that ended while its successor was being opened. Returns whether a successor exists.
    pub(super) fn succeed(&mut self, now: Instant, failure: Option<&Failure>, out: &mut Vec<Output>) -> bool {
        let (id, opened) = match self.moving.state {
            Move::Opening { id, .. } => (id, None),
            Move::Open { id, .. } => (id, Some(now)),
            Move::Settled | Move::Planned { .. } => return false,
        };
        if failure.is_some_and(|failure| failure.kind != FailureKind::Unreachable) {
            // Any other failure, such as an expired version, would hit the successor as well.
            self.stay(out);
            return false;
        }
        self.settle(now);
        self.has_moved(now, id);
        // A successor without a response head receives the full timeout again.
        self.phase = Phase::Watching { id, sent: now, opened, proven: false };
        // An open successor leaves no gap, so freshness stays unchanged.
        if let Some(failure) = failure.filter(|_| opened.is_none()) {
            self.set_broken(now, failure);
        }
        true
    }
}
