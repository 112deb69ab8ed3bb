//! A watch that moves to another connection while its own still carries it: made first, then broken (R4).
//!
//! Its connection drains, or does not answer a ping: neither says anything about the cache, so freshness stays as it is.
//! A watch that breaks before its successor is open is succeeded all the same.

use std::time::Duration;

use super::{Failure, FailureKind, Note, Output, Phase, Reflector, ReflectorSettings, Request, RequestId, Side};
use crate::backoff::{Backoff, BackoffSettings};
use crate::breach::Breach;
use crate::time::Instant;

/// Whether the watch is to move, and how patiently that is tried again.
#[derive(Debug)]
pub(super) struct Moving {
    state: Move,
    /// Whether the successor's own connection is to end as well, so that it moves on once it is the watch.
    onward: bool,
    /// When a watch last moved.
    moved: Option<Instant>,
    backoff: Backoff,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    /// It stays.
    Settled,
    /// The stream `from` is to be left at this moment.
    Planned { from: RequestId, at: Instant },
    /// Its successor is being opened.
    Opening { id: RequestId, deadline: Instant },
    /// Its successor is open, and takes its place then; until then both are read, and who is first is heard.
    Open { id: RequestId, at: Instant },
}

/// A server that does not take a version says so in the stream, right after the head of its answer.
const GRACE: Duration = Duration::from_millis(250);

impl Moving {
    /// Settled.
    pub(super) fn new(settings: &ReflectorSettings) -> Self {
        let patience = BackoffSettings { ceiling: settings.period / 2, ..settings.backoff };
        Self { state: Move::Settled, onward: false, moved: None, backoff: Backoff::new(patience) }
    }
}

impl Reflector {
    /// Takes in [`super::Input::Unsettled`]: the watch leaves after a short random time, so that not all leave at once.
    pub(super) fn unsettled(&mut self, now: Instant, id: RequestId) {
        if self.is_successor(id) {
            self.moving.onward = true;
        } else if self.is_carried(id) && matches!(self.moving.state, Move::Settled | Move::Planned { .. }) {
            self.plan_move(now, id);
        }
    }

    /// Takes in [`super::Input::Settled`]: the connection is well after all.
    pub(super) fn settled(&mut self, id: RequestId, out: &mut Vec<Output>) {
        if self.is_successor(id) {
            self.moving.onward = false;
        } else if self.is_carried(id) {
            self.stay(out);
        }
    }

    /// Whether `id` is the watch, or the list that becomes it.
    fn is_carried(&self, id: RequestId) -> bool {
        match self.phase {
            Phase::Watching { id: stream, .. } | Phase::Listing { id: stream, streamed: true, .. } => stream == id,
            _ => false,
        }
    }

    fn plan_move(&mut self, now: Instant, from: RequestId) {
        let soon = self.moving.moved.is_some_and(|moved| now.since(moved) < self.settings.healthy_after);
        let delay = if soon {
            // A server that ends each connection as soon as it is made is met with growing patience (R6).
            self.moving.backoff.fail(&mut self.random)
        } else {
            self.moving.backoff.reset();
            self.random.between(Duration::ZERO, self.settings.relist_jitter)
        };
        self.moving.state = Move::Planned { from, at: now + delay };
    }

    /// Ends what was done to move.
    pub(super) fn stay(&mut self, out: &mut Vec<Output>) {
        let state = std::mem::replace(&mut self.moving.state, Move::Settled);
        if let Move::Opening { id, .. } | Move::Open { id, .. } = state {
            out.push(Output::Cancel(id));
        }
    }

    pub(super) fn move_wake(&self) -> Option<Instant> {
        let Phase::Watching { id, opened: Some(_), .. } = self.phase else { return None };
        match self.moving.state {
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
                out.push(Output::Cancel(id));
                self.move_later(now, None);
            }
            Move::Open { id, .. } => self.take_over(now, id, out),
            // Another watch is being opened already, and takes the place of this one.
            Move::Planned { .. } if matches!(self.side, Side::Replacing { .. }) => self.move_later(now, None),
            Move::Planned { .. } => self.begin_move(now, out),
        }
    }

    fn begin_move(&mut self, now: Instant, out: &mut Vec<Output>) {
        let broken_first = self.settings.rules.breaches.commit(Breach::BrokenBeforeMade);
        let Some(from) = self.version.clone().filter(|version| version.is_ordered() && !broken_first) else {
            // What two streams tell of opaque versions could not be told apart (C12), so there is only ever one.
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

    /// Whether `id` is the successor that is to take the place of the watch.
    pub(super) fn is_successor(&self, id: RequestId) -> bool {
        matches!(self.moving.state, Move::Opening { id: own, .. } | Move::Open { id: own, .. } if own == id)
    }

    pub(super) fn successor_opened(&mut self, now: Instant, id: RequestId) {
        self.moving.state = Move::Open { id, at: now + GRACE };
    }

    /// The successor goes on from the version that was held when it was requested; the watch before it ends.
    fn take_over(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        // How long it has been open and what it has proven goes on: it is one watch, on another connection.
        let Phase::Watching { id: watching, .. } = &mut self.phase else { return };
        out.push(Output::Cancel(std::mem::replace(watching, id)));
        self.has_moved(now, id);
        out.extend(self.version.clone().map(|version| Output::Note(Note::Moved { version })));
    }

    fn has_moved(&mut self, now: Instant, id: RequestId) {
        self.moving.state = Move::Settled;
        self.moving.moved = Some(now);
        if std::mem::take(&mut self.moving.onward) {
            self.plan_move(now, id);
        }
    }

    /// The server answers nothing where the successor is: it is tried again elsewhere. That is a doubt too where nothing was
    /// proven since it was requested: the connection of the watch itself is to end, and nothing more can be asked there.
    pub(super) fn successor_unanswered(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Move::Opening { deadline, .. } = self.moving.state else { return };
        let requested = deadline - self.settings.list_patience;
        self.stay(out);
        self.move_later(now, None);
        if self.evidence.proven.is_none_or(|proven| proven < requested) {
            self.unanswered(now, false, out);
        }
    }

    /// The successor could not be opened. The watch goes on as long as it can, so nothing is lost by trying later.
    pub(super) fn successor_failed(&mut self, now: Instant, failure: &Failure) {
        self.move_later(now, failure.retry_after);
    }

    /// The watch ended while its successor is being opened, and that is the watch now; tells whether there is one.
    pub(super) fn succeed(&mut self, now: Instant, failure: Option<&Failure>, out: &mut Vec<Output>) -> bool {
        let (id, opened) = match self.moving.state {
            Move::Opening { id, .. } => (id, None),
            Move::Open { id, .. } => (id, Some(now)),
            Move::Settled | Move::Planned { .. } => return false,
        };
        if failure.is_some_and(|failure| failure.kind != FailureKind::Unreachable) {
            self.stay(out);
            return false;
        }
        self.settle(now);
        self.has_moved(now, id);
        self.phase = Phase::Watching { id, sent: now, opened, proven: false };
        if let Some(failure) = failure.filter(|_| opened.is_none()) {
            self.set_broken(now, failure);
        }
        true
    }
}
