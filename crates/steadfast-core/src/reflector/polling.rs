//! Lists that replace a watch, if the server rejects watches or its watches always fail (R3, R6).
//!
//! A failed watch is retried, since a watch is cheap and delivers the same changes as a list. If watches fail
//! repeatedly although the server responds, a list replaces them, at most once per poll interval. If the list succeeds,
//! polling starts and the list is repeated. Watches are still tried: a rejected watch at fixed intervals, a failing
//! watch with its own backoff. A watch that delivers records or stays open ends polling. If the list is rejected too,
//! only the watch is retried. Once the watch is permitted, no list is needed.

use std::sync::Arc;
use std::time::Duration;

use super::cache_state::CacheState;
use super::delayed_action::DelayedAction;
use super::diagnostic::{Diagnostic, RelistCause};
use super::effect::{Effect, Effects};
use super::failure::{Failure, FailureKind};
use super::list_plan::ListPlan;
use super::requester::Requester;
use super::settings::ReflectorSettings;
use crate::backoff::Backoff;
use crate::time::Instant;

/// Number of consecutive failed watches after which a list replaces them.
const MAX_WATCH_FAILURES: u32 = 5;

/// Approximate number of polls between two attempts of a rejected watch.
const POLLS_BETWEEN_WATCHES: u32 = 5;

/// Divisor of the poll interval. If a caller waits for a write, a poll may run after this part of the interval.
const EARLY_POLL_DIVISOR: u32 = 12;

/// Cause of polling for a resource without versions.
const NO_VERSION: &str = "the server returns no version from which a watch can start";

/// State of failing watches.
#[derive(Debug)]
pub(super) struct Polling {
    /// Number of consecutive failed watches whose failures indicate that watches do not work. A delivered record resets
    /// it.
    failures: u32,
    /// Time of the first of these failures. `None` after a rejected streamed list: then no minimum duration applies.
    failing_since: Option<Instant>,
    /// Set while lists replace watches.
    is_active: bool,
    /// Request time of the last complete list, unless a list was rejected since.
    last_list_requested_at: Option<Instant>,
    /// Time of the last list that failing watches caused.
    last_fallback_list_at: Option<Instant>,
    /// Time of the next poll.
    poll_at: Instant,
    /// Time of the next watch; `None` if no version exists from which a watch can start.
    watch_at: Option<Instant>,
    /// Backoff of a watch that fails and is not rejected. Lists do not reset it.
    backoff: Backoff,
    /// Delay after the last failure.
    last_delay: Duration,
}

impl Polling {
    /// Creates the state without failures.
    pub(super) fn new(settings: &ReflectorSettings) -> Self {
        Self {
            failures: 0,
            failing_since: None,
            is_active: false,
            last_list_requested_at: None,
            last_fallback_list_at: None,
            poll_at: Instant::ZERO,
            watch_at: None,
            backoff: Backoff::new(settings.backoff),
            last_delay: Duration::ZERO,
        }
    }

    /// Returns whether lists replace watches.
    pub(super) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Records a complete list that was requested at `requested_at`, and schedules the next poll.
    pub(super) fn list_complete(
        &mut self,
        requested_at: Instant,
        settings: &ReflectorSettings,
        requester: &mut Requester,
    ) {
        self.last_list_requested_at = Some(requested_at);
        let every = interval(settings);
        // The jitter only shortens the interval: the age of the cache counts from the request of
        // the list.
        self.poll_at = requested_at + requester.between(every * 9 / 10, every);
    }

    /// Records a rejected streamed list. A streamed list is a watch request, so the server probably rejects plain
    /// watches too.
    pub(super) fn expect_rejection(&mut self) {
        // One more failure reaches the limit: a plain watch must confirm the rejection.
        (self.failures, self.failing_since) = (self.failures.max(MAX_WATCH_FAILURES - 1), None);
    }

    /// Counts a failed watch whose failure indicates that watches do not work.
    fn count_failure(&mut self, now: Instant) {
        if self.failures == 0 {
            self.failing_since = Some(now);
        }
        self.failures = self.failures.saturating_add(1);
    }

    /// Resets the failures after a watch delivered a change or bookmark, or after a request alongside the watch
    /// provided a proof.
    pub(super) fn forget_failures(&mut self) {
        self.failures = 0;
        self.backoff.reset();
    }

    /// Returns the time of the next list or watch, with the kind of the request.
    pub(super) fn next(&self) -> (Instant, DelayedAction) {
        match self.watch_at.filter(|at| *at < self.poll_at) {
            Some(at) => (at, DelayedAction::Watch),
            None => (self.poll_at, DelayedAction::List(ListPlan::poll())),
        }
    }

    /// Handles a failed watch: retries it, or replaces it by a list. `is_evidence` is set if the failure indicates that
    /// watches do not work, although the server may be reachable.
    pub(super) fn watch_failed(
        &mut self,
        now: Instant,
        failure: &Failure,
        is_evidence: bool,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        if is_evidence {
            self.count_failure(now);
        } else if !self.is_active {
            return retry(failure);
        }
        // The delay grows with every failure, even while lists replace the watch.
        self.last_delay = self.backoff.fail(&mut requester.random);
        let settings = &cache.settings;
        // A server that has just started may fail or reject requests for a short time. These failures must not cause a
        // list (R4).
        let min_duration = if failure.requests_delay() { settings.period } else { settings.healthy_after };
        let is_early = self.failing_since.is_some_and(|failing_since| now.since(failing_since) < min_duration);
        if !self.is_active && (is_early || self.failures < MAX_WATCH_FAILURES) {
            return retry(failure);
        }
        // A list from before the first failure proves nothing: the resource may have been removed since.
        if self.is_active || self.has_listed_since_failure(now, settings) {
            return self.replace_watch(now, failure, settings, requester);
        }
        if self
            .last_fallback_list_at
            .is_some_and(|last_fallback_list_at| now.since(last_fallback_list_at) < interval(settings))
        {
            return retry(failure);
        }
        self.last_fallback_list_at = Some(now);
        let mut effects = Effects::from(Effect::Broken(failure.clone()));
        effects.push(Effect::DropComparison);
        effects.report(Diagnostic::Relisting { cause: RelistCause::WatchesFail, reason: failure.message.clone() });
        effects.push(Effect::ListLater { plan: ListPlan::poll(), retry_after: failure.retry_after });
        effects
    }

    /// Handles a watch whose version the server rejects. A list provides another version, unless the server rejected
    /// the version of such a list too.
    pub(super) fn version_rejected(
        &mut self,
        now: Instant,
        failure: &Failure,
        settings: &ReflectorSettings,
        requester: &mut Requester,
    ) -> Effects {
        if self.is_active || self.failures > 0 && self.has_listed_since_failure(now, settings) {
            return self.replace_watch(now, failure, settings, requester);
        }
        self.count_failure(now);
        let (plan, cause) = (ListPlan::first(), RelistCause::VersionRejected);
        Effect::Relist { plan, cause, reason: failure.message.clone() }.into()
    }

    /// Returns whether a list that was requested after the first of the watch failures has succeeded, within a poll
    /// interval.
    ///
    /// Only such a list is evidence that the server serves lists but no watches, or rejects watches from every version.
    fn has_listed_since_failure(&self, now: Instant, settings: &ReflectorSettings) -> bool {
        let Some(last_list_requested_at) = self.last_list_requested_at else { return false };
        now.since(last_list_requested_at) < interval(settings)
            && self.failing_since.is_none_or(|failing_since| last_list_requested_at >= failing_since)
    }

    /// Starts polling: lists are known to work and replace watches.
    fn replace_watch(
        &mut self,
        now: Instant,
        failure: &Failure,
        settings: &ReflectorSettings,
        requester: &mut Requester,
    ) -> Effects {
        let pause = if failure.is_rejection() {
            let polls = interval(settings) * POLLS_BETWEEN_WATCHES;
            requester.between(polls * 4 / 5, polls * 6 / 5)
        } else {
            self.last_delay
        };
        self.watch_at = Some(now + requester.delay(pause, failure.retry_after));
        self.poll(failure.message.clone(), settings)
    }

    fn poll(&mut self, reason: Arc<str>, settings: &ReflectorSettings) -> Effects {
        let every = interval(settings);
        let mut effects = Effects::default();
        if !std::mem::replace(&mut self.is_active, true) {
            effects.report(Diagnostic::Polling { reason: reason.clone(), every });
        }
        effects.push(Effect::Poll { every, reason });
        effects
    }

    /// Continues after a paged list: with a watch, unless lists replace it.
    pub(super) fn after_list(&mut self, now: Instant, cache: &CacheState) -> Effects {
        if cache.version.is_none() {
            self.watch_at = None;
            self.poll(Arc::from(NO_VERSION), &cache.settings)
        } else if self.is_active && self.watch_at.is_some_and(|at| now < at) {
            let (until, then) = self.next();
            Effect::WaitUntil { until, then }.into()
        } else {
            Effect::Watch.into()
        }
    }

    /// Records a failed poll. Returns whether the server rejects lists as well, so that polling has ended.
    pub(super) fn poll_failed(&mut self, now: Instant, failure: &Failure) -> bool {
        let is_rejected = failure.is_rejection() || failure.kind == FailureKind::Denied;
        if is_rejected {
            // `last_fallback_list_at` delays the next attempt.
            self.last_list_requested_at = None;
            self.last_fallback_list_at = Some(now);
        }
        is_rejected
    }

    /// Returns the earliest time of a poll for a caller that waits for a write. The last list was requested at
    /// `requested_at`.
    pub(super) fn earliest_poll(&self, requested_at: Instant, settings: &ReflectorSettings) -> Option<Instant> {
        self.is_active.then(|| requested_at + interval(settings) / EARLY_POLL_DIVISOR)
    }

    /// Ends polling: a watch works, or lists do not work either.
    pub(super) fn end(&mut self) {
        self.is_active = false;
        self.backoff.reset();
    }
}

/// Returns the poll interval.
fn interval(settings: &ReflectorSettings) -> Duration {
    settings.poll_every.unwrap_or(settings.period)
}

/// Returns the effects of a watch that is retried.
fn retry(failure: &Failure) -> Effects {
    let mut effects = Effects::from(Effect::Broken(failure.clone()));
    effects.push(Effect::Wait { failure: failure.clone(), then: DelayedAction::Watch });
    effects
}
