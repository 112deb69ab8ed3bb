//! Lists in place of a watch: where the server does not let us watch, or where its watches always fail (R3, R6).
//!
//! A watch that fails is tried again, as it is cheap and brings all that a list would. Where it fails time after time
//! though the server answers, a list tells what it cannot: one at most in the time of a poll. If that comes, there is
//! something to live on, and it is requested again and again; the watch is tried still, a refused one ever so often, one
//! that fails with its own patience. What ends it is a watch that brings something or stays open. If the list is refused
//! too, nothing is to be had, and the watch is what is tried: once it is allowed, nothing need be listed.

use std::sync::Arc;
use std::time::Duration;

use super::full::Full;
use super::{Failure, FailureKind, Next, Note, Output, Phase, Reflector, ReflectorSettings};
use crate::backoff::Backoff;
use crate::freshness::Polled;
use crate::random::Random;
use crate::time::Instant;

/// So many watches in a row may fail before a list is made in their place.
const FAILURES: u32 = 5;

/// How many polls apart a watch that is refused is tried again, about.
const POLLS_BETWEEN_WATCHES: u32 = 5;

/// The part of the time between polls after which one may be made sooner, where someone waits for a write.
const SOONEST: u32 = 12;

/// Why what has no versions is listed.
const NO_VERSION: &str = "the server gives no version to watch from";

/// What is known of watches that fail.
#[derive(Debug)]
pub(super) struct Polling {
    /// How many watches in a row were answered and brought nothing.
    failures: u32,
    /// When the first of them failed; none where more than that is known.
    since: Option<Instant>,
    /// Whether lists take the place of watches.
    on: bool,
    /// When the last complete one was requested, as long as none was refused since.
    listed: Option<Instant>,
    /// When a list was last tried because watches fail.
    tried: Option<Instant>,
    /// When the next poll is due.
    poll_at: Instant,
    /// When a watch is tried next; never, where there is no version to watch from.
    watch_at: Option<Instant>,
    /// How patiently a watch is tried that fails and is not refused. Lists do not reset it.
    backoff: Backoff,
    /// The wait after the last failure.
    patience: Duration,
}

impl Polling {
    pub(super) fn new(settings: &ReflectorSettings) -> Self {
        Self {
            failures: 0,
            since: None,
            on: false,
            listed: None,
            tried: None,
            poll_at: Instant::ZERO,
            watch_at: None,
            backoff: Backoff::new(settings.backoff),
            patience: Duration::ZERO,
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    /// The list that was requested at that moment is complete.
    pub(super) fn lists(&mut self, asked: Instant, every: Duration, random: &mut Random) {
        self.listed = Some(asked);
        self.poll_at = asked + random.between(every * 9 / 10, every);
    }

    /// A watch was refused as it was asked with a list: what is asked without one will be, too.
    pub(super) fn expect_refusal(&mut self) {
        (self.failures, self.since) = (self.failures.max(FAILURES - 1), None);
    }

    /// Counts the failure of a watch that the server answered.
    pub(super) fn count_failure(&mut self, now: Instant) {
        if self.failures == 0 {
            self.since = Some(now);
        }
        self.failures = self.failures.saturating_add(1);
    }

    /// A watch has brought something, or was shown to lack nothing.
    pub(super) fn forget_failures(&mut self) {
        self.failures = 0;
        self.backoff.reset();
    }

    /// When the next list or watch is due, and which.
    fn next(&self) -> (Instant, Next) {
        match self.watch_at.filter(|at| *at < self.poll_at) {
            Some(at) => (at, Next::Watch),
            None => (self.poll_at, Next::List(Full::poll())),
        }
    }
}

impl Reflector {
    fn poll_every(&self) -> Duration {
        self.settings.poll_every.unwrap_or(self.settings.period)
    }

    /// A list is complete.
    pub(super) fn list_came(&mut self) {
        let every = self.poll_every();
        self.polling.lists(self.paging.asked, every, &mut self.random);
    }

    /// Takes in that a watch failed, of which `answered` says whether it says something of watches; tells whether a list
    /// is to take its place.
    pub(super) fn list_instead(
        &mut self,
        now: Instant,
        failure: &Failure,
        answered: bool,
        out: &mut Vec<Output>,
    ) -> bool {
        if answered {
            self.polling.count_failure(now);
        } else if !self.polling.on {
            return false;
        }
        self.polling.patience = self.polling.backoff.fail(&mut self.random);
        // A server that has just started may fail and refuse for a moment: that costs no list (R4).
        let least = if failure.asks_for_patience() { self.settings.period } else { self.settings.healthy_after };
        let soon = self.polling.since.is_some_and(|since| now.since(since) < least);
        if !self.polling.on && (soon || self.polling.failures < FAILURES) {
            return false;
        }
        // A list from before the first failure proves nothing: the resource may have been removed with its watches.
        if self.polling.on || self.has_listed_since_failure(now) {
            self.poll_because(now, failure, out);
            return true;
        }
        if self.polling.tried.is_some_and(|tried| now.since(tried) < self.poll_every()) {
            return false;
        }
        self.polling.tried = Some(now);
        self.set_broken(now, failure);
        self.drop_comparison(out);
        out.push(Output::Note(Note::Relisting { why: failure.why.clone() }));
        self.list_later(now, Full::poll(), failure.retry_after);
        true
    }

    /// Returns whether a list that was requested after the first of the watch failures has succeeded, within the time
    /// of a poll.
    ///
    /// Only such a list is evidence that the server serves lists but no watches, or rejects watches from every version.
    pub(super) fn has_listed_since_failure(&self, now: Instant) -> bool {
        let Some(listed) = self.polling.listed else { return false };
        now.since(listed) < self.poll_every() && self.polling.since.is_none_or(|since| listed >= since)
    }

    /// Returns whether the server rejected the version of a list that was made because of such a rejection: another
    /// list does not help then.
    pub(super) fn has_rejected_new_version(&self, now: Instant) -> bool {
        self.polling.failures > 0 && self.has_listed_since_failure(now)
    }

    /// Lists are known to work, and take the place of watches.
    pub(super) fn poll_because(&mut self, now: Instant, failure: &Failure, out: &mut Vec<Output>) {
        let pause = if failure.is_refusal() {
            let polls = self.poll_every() * POLLS_BETWEEN_WATCHES;
            self.random.between(polls * 4 / 5, polls * 6 / 5)
        } else {
            self.polling.patience
        };
        self.polling.watch_at = Some(now + self.delay(pause, failure.retry_after));
        self.poll(now, failure.why.clone(), out);
    }

    fn poll(&mut self, now: Instant, why: Arc<str>, out: &mut Vec<Output>) {
        let every = self.poll_every();
        if !std::mem::replace(&mut self.polling.on, true) {
            out.push(Output::Note(Note::Polling { why: why.clone(), every }));
        }
        self.evidence.polled = Some(Polled { every, why });
        self.await_poll();
        self.set_streaming(now);
        if self.is_unproven_since_a_break() {
            self.hasten_poll(now);
        }
    }

    fn await_poll(&mut self) {
        let (until, then) = self.polling.next();
        self.phase = Phase::Waiting { until, then, unreachable: false };
    }

    /// Goes on from a list that came in pages: with a watch, unless lists take its place.
    pub(super) fn watch_or_poll(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.version.is_none() {
            self.polling.watch_at = None;
            self.poll(now, Arc::from(NO_VERSION), out);
        } else if self.polling.on && self.polling.watch_at.is_some_and(|at| now < at) {
            self.await_poll();
        } else {
            self.watch(now, out);
        }
    }

    /// A list in place of a watch failed; tells whether a watch is to be tried before another one.
    pub(super) fn poll_failed(&mut self, now: Instant, failure: &Failure) -> bool {
        if self.version.is_none() {
            return false;
        }
        if failure.is_refusal() || failure.kind == FailureKind::Denied {
            self.polling.listed = None;
            self.polling.tried = Some(now);
            self.end_polling();
        }
        !self.polling.on
    }

    /// Someone waits for a write: that is answered by the next poll, which need not wait its whole time.
    pub(super) fn hasten_poll(&mut self, now: Instant) {
        if !self.polling.on {
            return;
        }
        let soonest = self.paging.asked + self.poll_every() / SOONEST;
        if let Phase::Waiting { until, then: then @ (Next::List(_) | Next::Watch), unreachable: false } =
            &mut self.phase
            && *until > soonest
            && self.backoff.failures() == 0
        {
            (*until, *then) = (now.max(soonest), Next::List(Full::poll()));
        }
    }

    /// There is a watch, or nothing at all.
    pub(super) fn end_polling(&mut self) {
        self.polling.on = false;
        self.polling.backoff.reset();
        self.evidence.polled = None;
        self.streaming.may_work();
    }
}
