//! Lists that replace a watch, if the server rejects watches or its watches always fail (R3, R6).
//!
//! A failed watch is retried, since a watch is cheap and delivers the same changes as a list. If watches fail
//! repeatedly although the server responds, a list replaces them, at most once per poll interval. If the list succeeds,
//! polling starts and the list is repeated. Watches are still tried: a rejected one at fixed intervals, a failing one
//! with its own backoff. A watch that delivers records or stays open ends polling. If the list is rejected too, only
//! the watch is retried. Once the watch is permitted, no list is needed.

use std::sync::Arc;
use std::time::Duration;

use super::list_plan::ListPlan;
use super::{Diagnostic, Failure, FailureKind, Next, Output, Phase, Reflector, ReflectorSettings};
use crate::backoff::Backoff;
use crate::freshness::Polled;
use crate::random::Random;
use crate::time::Instant;

/// Number of consecutive failed watches after which a list replaces them.
const FAILURES: u32 = 5;

/// Approximate number of polls between two attempts of a rejected watch.
const POLLS_BETWEEN_WATCHES: u32 = 5;

/// Part of the poll interval after which a poll may run early, if a caller waits for a write.
const SOONEST: u32 = 12;

/// Cause of polling for a resource without versions.
const NO_VERSION: &str = "the server gives no version to watch from";

/// State of failing watches.
#[derive(Debug)]
pub(super) struct Polling {
    /// Number of consecutive watches that received a response and delivered nothing.
    failures: u32,
    /// Time of the first of these failures; `None` if other evidence decides.
    since: Option<Instant>,
    /// Set while lists replace watches.
    on: bool,
    /// Request time of the last complete list, unless a list was rejected since.
    listed: Option<Instant>,
    /// Time of the last list that failing watches caused.
    tried: Option<Instant>,
    /// Time of the next poll.
    poll_at: Instant,
    /// Time of the next watch; never, if no version exists to watch from.
    watch_at: Option<Instant>,
    /// Backoff of a watch that fails and is not rejected. Lists do not reset it.
    backoff: Backoff,
    /// Delay after the last failure.
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

    /// Records a complete list that was requested at `asked`, and schedules the next poll.
    pub(super) fn lists(&mut self, asked: Instant, every: Duration, random: &mut Random) {
        self.listed = Some(asked);
        // The jitter only shortens the interval: the age of the cache counts from the request of
        // the list.
        self.poll_at = asked + random.between(every * 9 / 10, every);
    }

    /// Records a rejected watch that was part of a list request. A plain watch would be rejected too.
    pub(super) fn expect_refusal(&mut self) {
        // One more failure reaches the limit: a plain watch must confirm the rejection.
        (self.failures, self.since) = (self.failures.max(FAILURES - 1), None);
    }

    /// Counts a failed watch to which the server responded.
    pub(super) fn count_failure(&mut self, now: Instant) {
        if self.failures == 0 {
            self.since = Some(now);
        }
        self.failures = self.failures.saturating_add(1);
    }

    /// Resets the failures after a watch delivered a record, or a proof covered it.
    pub(super) fn forget_failures(&mut self) {
        self.failures = 0;
        self.backoff.reset();
    }

    /// Returns the time of the next list or watch, with the kind of the request.
    fn next(&self) -> (Instant, Next) {
        match self.watch_at.filter(|at| *at < self.poll_at) {
            Some(at) => (at, Next::Watch),
            None => (self.poll_at, Next::List(ListPlan::poll())),
        }
    }
}

impl Reflector {
    fn poll_every(&self) -> Duration {
        self.settings.poll_every.unwrap_or(self.settings.period)
    }

    /// Records a complete list.
    pub(super) fn list_came(&mut self) {
        let every = self.poll_every();
        self.polling.lists(self.paging.asked, every, &mut self.random);
    }

    /// Handles a failed watch. `answered` is set if the failure is evidence about watches. Returns whether a list
    /// should replace the watch.
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
        // The delay grows with every failure, even while lists replace the watch.
        self.polling.patience = self.polling.backoff.fail(&mut self.random);
        // A server that has just started may fail or reject requests for a short time. This must not cause a list (R4).
        let least = if failure.asks_for_patience() { self.settings.period } else { self.settings.healthy_after };
        let soon = self.polling.since.is_some_and(|since| now.since(since) < least);
        if !self.polling.on && (soon || self.polling.failures < FAILURES) {
            return false;
        }
        // A list from before the first failure proves nothing: the resource may have been removed since.
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
        out.push(Output::Diagnostic(Diagnostic::Relisting { why: failure.why.clone() }));
        self.list_later(now, ListPlan::poll(), failure.retry_after);
        true
    }

    /// Returns whether a list that was requested after the first of the watch failures has succeeded, within a poll
    /// interval.
    ///
    /// Only such a list is evidence that the server serves lists but no watches, or rejects watches from every version.
    pub(super) fn has_listed_since_failure(&self, now: Instant) -> bool {
        let Some(listed) = self.polling.listed else { return false };
        now.since(listed) < self.poll_every() && self.polling.since.is_none_or(|since| listed >= since)
    }

    /// Returns whether the server rejected the version of a list that such a rejection had caused. Another list does
    /// not help then.
    pub(super) fn has_rejected_new_version(&self, now: Instant) -> bool {
        self.polling.failures > 0 && self.has_listed_since_failure(now)
    }

    /// Starts polling: lists are known to work and replace watches.
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
            out.push(Output::Diagnostic(Diagnostic::Polling { why: why.clone(), every }));
        }
        self.evidence.polled = Some(Polled { every, why });
        self.await_poll();
        self.set_streaming(now);
        // The list may have been requested before the break. An early poll provides the proof.
        if self.is_unproven_since_a_break() {
            self.hasten_poll(now);
        }
    }

    fn await_poll(&mut self) {
        let (until, then) = self.polling.next();
        self.phase = Phase::Waiting { until, then, unreachable: false };
    }

    /// Continues after a paged list: with a watch, unless lists replace it.
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

    /// Handles a failed poll. Returns whether a watch should be tried before the next poll.
    pub(super) fn poll_failed(&mut self, now: Instant, failure: &Failure) -> bool {
        if self.version.is_none() {
            return false;
        }
        // The server rejects lists as well, so polling cannot continue. `tried` delays the next
        // attempt.
        if failure.is_refusal() || failure.kind == FailureKind::Denied {
            self.polling.listed = None;
            self.polling.tried = Some(now);
            self.end_polling();
        }
        !self.polling.on
    }

    /// Moves the next poll forward for a caller that waits for a write.
    pub(super) fn hasten_poll(&mut self, now: Instant) {
        if !self.polling.on {
            return;
        }
        let soonest = self.paging.asked + self.poll_every() / SOONEST;
        // A failing poll keeps its backoff: waiting callers must not defeat the delay.
        if let Phase::Waiting { until, then: then @ (Next::List(_) | Next::Watch), unreachable: false } =
            &mut self.phase
            && *until > soonest
            && self.backoff.failures() == 0
        {
            (*until, *then) = (now.max(soonest), Next::List(ListPlan::poll()));
        }
    }

    /// Ends polling: a watch works, or lists do not work either.
    pub(super) fn end_polling(&mut self) {
        self.polling.on = false;
        self.polling.backoff.reset();
        self.evidence.polled = None;
        self.streaming.may_work();
    }
}
