//! Proofs of freshness, requested alongside a watch that has been silent for a period (R2).
//!
//! A probe returns a version P that the server has reached. A proof follows in one of two ways: our watch reaches P, or
//! a short watch from our version shows no change up to P. Without either, the watch becomes suspect, and a second
//! watch is opened before the first is dropped. If the server sends no bookmarks, a short watch shows nothing, and a
//! list provides the proof (`comparison`).
//!
//! A real server often sends no bookmark in a short watch. It drops a bookmark that is not above the last event before
//! the start of the watch, even for an event outside the scope. The reflector therefore first checks that the
//! responding server has reached P ([`ProbeMethod`]). A short watch that then ends regularly has shown all changes up
//! to P. Our own stream has not confirmed P at this time. The later events of our own stream are processed even if they
//! are below P, and the stream resumes from its own version.
//!
//! While a caller waits, or after a stream broke, the short watch lasts one second instead of four. Its end without an
//! event is a proof as well, if the watch was open for at least half of that time. The server sends pending events as
//! soon as a watch is open. Any other end neither proves nor disproves freshness, and a watch of four seconds follows.
//!
//! The response may belong to another informer's probe, sent before this informer requested a proof. The response
//! therefore proves the state at the time at which the probe was sent. It does not indicate another history to an
//! informer that has reached a higher version since.

use std::sync::Arc;
use std::time::Duration;

use super::bookmark_interval::BookmarkInterval;
use super::cache_state::CacheState;
use super::diagnostic::Diagnostic;
use super::effect::{Effect, Effects};
use super::failure::{Failure, FailureKind};
use super::output::Output;
use super::probe_schedule::{MAX_SHARED_PROOF_AGE, ProbeSchedule};
use super::record_action::Record;
use super::request::{BRIEF_WATCH_SECONDS, ProbeMethod, Request, RequestId, SHORT_WATCH_SECONDS};
use super::requester::Requester;
use super::short_watch::{ProbeTarget, SHORT_WATCH_GRACE, ShortWatch, ShortWatchResult};
use super::stream::{Stream, is_open};
use crate::fault_injection::inject;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Requests for proofs alongside the watch.
#[derive(Debug)]
pub(super) struct Probe {
    state: State,
    pub(super) schedule: ProbeSchedule,
    /// Method to determine whether a server has reached a version.
    method: ProbeMethod,
    /// Version of a probe that the responding server has not reached.
    ///
    /// A server that lags is asked about this version again, without another probe (R5).
    lagging_target: Option<ProbeTarget>,
    /// Version of the last probe since a stream broke. Our own watch proves freshness when it reaches this version.
    awaited_target: Option<ProbeTarget>,
    /// Set if the server rejects probes. Events must then suffice as proofs.
    is_rejected: bool,
}

/// Activity alongside the watch.
#[derive(Clone, Debug)]
enum State {
    /// No activity.
    Quiet,
    /// A probe is in flight.
    Probing {
        id: RequestId,
        /// Version of the cache when the probe was requested. Our watch may have advanced before the response.
        held: ResourceVersion,
        /// Time at which this version was reached.
        since: Instant,
        /// True if a caller waits for the proof, or a stream broke.
        is_urgent: bool,
        deadline: Instant,
    },
    /// A short watch, which must show all changes up to the probe's version.
    ShortWatching { watch: ShortWatch, deadline: Instant },
    /// The short watch has ended, and our own watch must still deliver the changes that it showed.
    AwaitingDelivery { result: ShortWatchResult, deadline: Instant },
    /// A second watch is being opened, to replace the suspect one.
    Replacing { id: RequestId, deadline: Instant },
}

/// Divisor of a period for the maximum age at which another informer's probe is used here. This age exceeds the jitter
/// between informers that became silent at the same time.
const SHARED_PROBE_AGE_DIVISOR: u32 = 12;

/// Delay of the next request after a record of a backlog, which makes a short watch inconclusive.
const BACKLOG_DELAY: Duration = Duration::from_secs(2);

impl Probe {
    /// Creates the machine without an activity.
    pub(super) fn new(cache: &CacheState) -> Self {
        Self {
            state: State::Quiet,
            schedule: ProbeSchedule::new(cache.settings.period),
            method: ProbeMethod::Streamed,
            lagging_target: None,
            awaited_target: None,
            is_rejected: false,
        }
    }

    /// Returns whether no activity runs alongside the watch.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(self.state, State::Quiet)
    }

    /// Returns whether a second watch is being opened.
    pub(super) fn is_replacing(&self) -> bool {
        matches!(self.state, State::Replacing { .. })
    }

    /// Returns whether `id` is the short watch.
    pub(super) fn is_short_watch(&self, id: RequestId) -> bool {
        matches!(&self.state, State::ShortWatching { watch, .. } if watch.id == id)
    }

    /// Returns whether a stream broke and no proof has arrived since.
    pub(super) fn is_unproven_since_break(&self, cache: &CacheState) -> bool {
        self.schedule.broken_at().is_some() && !inject!(cache.faults(), UnprovenResume)
    }

    /// Returns the instant up to which a record of our own watch proves that the cache had all changes, after a stream
    /// broke. `None` if the record is no proof.
    ///
    /// The record may belong to a backlog. It is a proof only if the watch has reached the version of a later probe. A server
    /// that rejects probes, or whose versions have no order, permits no such check.
    pub(super) fn proof_after_break(&self, now: Instant, cache: &CacheState) -> Option<Instant> {
        let is_ordered = cache.version.as_ref().is_some_and(ResourceVersion::is_ordered);
        if self.is_rejected || !is_ordered {
            return Some(now);
        }
        let target = self.awaited_target.as_ref().filter(|target| {
            // After repeated freezes, the probe may precede the last one. The proof of that earlier state counts once.
            let covers_break = self.schedule.broken_at().is_none_or(|broken_at| target.sent >= broken_at);
            cache.has_shown(&target.version) && (covers_break || !cache.is_proven_since(target.sent))
        });
        target.map(|target| target.sent)
    }

    /// Resets the method. Another server may support a form that one server rejected, or the rejection may have been
    /// temporary.
    pub(super) fn forget_rejections(&mut self) {
        self.method = ProbeMethod::Streamed;
    }

    /// Records a broken stream.
    pub(super) fn set_broken(&mut self, now: Instant) {
        self.schedule.set_broken(now);
        (self.lagging_target, self.awaited_target) = (None, None);
    }

    /// Records a freeze of the process. Returns the request to cancel.
    ///
    /// A starved machine causes freezes without end. If each freeze replaced the probe in flight, no probe would ever
    /// lead to a proof. A probe after an earlier freeze or break therefore continues, and proves the time at which it
    /// was sent.
    pub(super) fn set_frozen(&mut self, now: Instant) -> Option<Output> {
        let is_unproven = self.schedule.broken_at().is_some();
        let continues = match self.state {
            State::Probing { .. } => is_unproven,
            // The head of a second watch proves nothing, so that watch may continue.
            State::Replacing { .. } => true,
            // The duration of a short watch is part of its evidence, and the freeze has extended it.
            State::Quiet | State::ShortWatching { .. } | State::AwaitingDelivery { .. } => false,
        };
        let cancelled = if continues { None } else { self.cancel() };
        self.schedule.set_broken(now);
        self.lagging_target = None;
        if !is_unproven {
            self.awaited_target = None;
        }
        cancelled
    }

    /// Records a proof of the state at `then`.
    pub(super) fn proven(&mut self, then: Instant, interval: &BookmarkInterval, requester: &mut Requester) {
        self.lagging_target = None;
        self.schedule.proven(then, interval.period(), requester);
    }

    /// Ends the activity after a proof. Returns whether the watch was rightly silent: the silence lasted a period
    /// before the request, and no other proof has arrived since.
    pub(super) fn proof_found(&mut self, cache: &CacheState) -> bool {
        self.state = State::Quiet;
        let proven = cache.evidence.proven;
        self.schedule.was_overdue() && proven.is_none_or(|proven| proven < self.schedule.started_at())
    }

    /// Returns the time of the next request, or the deadline of the current activity.
    pub(super) fn due(&self, stream: Option<Stream>) -> Option<Instant> {
        match &self.state {
            State::Quiet => is_open(stream).then(|| self.schedule.due()),
            State::Probing { deadline, .. }
            | State::ShortWatching { deadline, .. }
            | State::AwaitingDelivery { deadline, .. }
            | State::Replacing { deadline, .. } => Some(*deadline),
        }
    }

    /// Requests a proof, or handles the deadline of the current activity.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        stream: Option<Stream>,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        let mut effects = Effects::default();
        if self.due(stream).is_none_or(|due| now < due) {
            return effects;
        }
        match &self.state {
            State::Quiet if inject!(cache.faults(), NoSilenceProbe) => {
                self.schedule.start(now);
                self.schedule.set_due(now + cache.bookmark_interval.period());
            }
            State::Quiet => self.seek_proof(now, cache, requester, &mut effects),
            State::Probing { id, .. } => {
                effects.cancel(*id);
                self.handle_missing_proof("no proof of freshness: no response to a probe in time", cache, &mut effects);
            }
            State::ShortWatching { watch, .. } => {
                effects.cancel(watch.id);
                self.judge(cache, &mut effects);
            }
            State::AwaitingDelivery { .. } => self.judge(cache, &mut effects),
            State::Replacing { id, .. } => {
                effects.cancel(*id);
                self.state = State::Quiet;
                self.schedule.retry_later(now, requester);
            }
        }
        effects
    }

    /// Sends the probe.
    fn seek_proof(&mut self, now: Instant, cache: &CacheState, requester: &mut Requester, effects: &mut Effects) {
        let reasons = self.schedule.start(now);
        // The cache is in doubt after a break, so the first short watch is brief.
        let is_urgent = reasons.is_awaited || self.is_unproven_since_break(cache);
        let period = cache.bookmark_interval.period();
        let Some(held) = cache.reached_version().cloned().filter(ResourceVersion::is_ordered) else {
            effects.push(Effect::CompareWithList);
            return;
        };
        // Early requests on behalf of callers are routine. Only a full period of silence is logged.
        if cache.evidence.proven.is_none_or(|proven| now.since(proven) >= period) {
            effects.report(Diagnostic::SeekingProof);
        }
        // The earlier probe's version is not used if a proof was explicitly requested, since a caller's write may be
        // newer. An old probe proves little.
        let lagging_target =
            self.lagging_target.take().filter(|target| !reasons.is_requested && now.since(target.sent) < period);
        if let Some(target) = lagging_target {
            return self.prove(now, target, is_urgent, cache, requester, effects);
        }
        let since = match self.schedule.broken_at() {
            // A probe from before this request does not help a caller that waits for a write.
            _ if reasons.is_requested => now,
            // After a broken connection, neither a probe from before the break helps nor a probe from long before the
            // new connection.
            Some(broken) => broken.max(now - MAX_SHARED_PROOF_AGE),
            None => now - period / SHARED_PROBE_AGE_DIVISOR,
        };
        let id = requester.next_id();
        let deadline = now + cache.settings.probe_deadline;
        let since_held = cache.reached_at;
        self.state = State::Probing { id, held, since: since_held, is_urgent, deadline };
        effects.send(id, Request::Probe { since });
    }

    /// Processes the response to the probe that was sent at `sent`.
    pub(super) fn probed(
        &mut self,
        now: Instant,
        id: RequestId,
        version: Option<ResourceVersion>,
        sent: Instant,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        let mut effects = Effects::default();
        let State::Probing { id: probing, held, since, is_urgent, .. } = &self.state else { return effects };
        let is_urgent = *is_urgent;
        if *probing != id {
            return effects;
        }
        // A probe that was sent before the cache reached its version may legitimately return a lower version.
        let is_older = *since <= sent && version.as_ref().is_some_and(|version| version.is_older_than(held));
        self.state = State::Quiet;
        let Some(version) = version.filter(|version| version.is_ordered() && cache.version.is_some()) else {
            self.handle_missing_proof(
                "no proof of freshness: the response to a probe has no comparable version",
                cache,
                &mut effects,
            );
            return effects;
        };
        self.is_rejected = false;
        if is_older {
            effects.push(Effect::LeaveWatch);
            effects.push(Effect::HistoryChanged(version));
        } else {
            if self.schedule.broken_at().is_some() {
                self.awaited_target = Some(ProbeTarget { version: version.clone(), sent });
            }
            self.prove(now, ProbeTarget { version, sent }, is_urgent, cache, requester, &mut effects);
        }
        effects
    }

    /// Takes a probe's version as a proof if the cache has all changes up to it. Otherwise opens the short watch.
    fn prove(
        &mut self,
        now: Instant,
        target: ProbeTarget,
        is_urgent: bool,
        cache: &CacheState,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        if cache.has_shown(&target.version) {
            effects.push(Effect::ProofFound(target.sent));
        } else {
            self.open_short_watch(now, target, is_urgent, cache, requester, effects);
        }
    }

    /// Opens the short watch, a brief one if it is urgent (`is_urgent`) and its end is a proof.
    fn open_short_watch(
        &mut self,
        now: Instant,
        target: ProbeTarget,
        is_urgent: bool,
        cache: &CacheState,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let Some(from) = cache.version.clone() else { return };
        // Streams that were rejected or cut here would fail for an empty list as well.
        if self.method == ProbeMethod::Streamed && !cache.streamed_lists.is_expected_to_work(now) {
            self.method = ProbeMethod::Listed;
        }
        let id = requester.next_id();
        let (method, deadline) = (self.method, now + cache.settings.short_watch_deadline);
        // A brief watch rarely receives a bookmark, so its regular end itself must be a proof.
        let is_brief = is_urgent && self.is_end_a_proof(cache);
        let seconds = if is_brief { BRIEF_WATCH_SECONDS } else { SHORT_WATCH_SECONDS };
        effects.send(id, Request::ShortWatch { from, target: target.version.clone(), method, seconds });
        self.state = State::ShortWatching { watch: ShortWatch::new(id, target, is_brief), deadline };
    }

    /// Returns true if the regular end of a short watch is a proof.
    ///
    /// The server must have shown by another request that it has reached the target: by a streamed list, or by a plain
    /// list if it also sends bookmarks.
    fn is_end_a_proof(&self, cache: &CacheState) -> bool {
        self.method == ProbeMethod::Streamed
            || self.method == ProbeMethod::Listed && cache.bookmark_interval.has_bookmarks()
    }

    /// Processes a record of a stream alongside the watch.
    pub(super) fn record(&mut self, now: Instant, id: RequestId, record: Record<'_>, cache: &CacheState) -> Effects {
        let mut effects = Effects::default();
        let State::ShortWatching { watch, .. } = &mut self.state else { return effects };
        if watch.id != id {
            return effects;
        }
        match record {
            Record::Object(_, identity) => watch.event(now, &identity.version),
            Record::Bookmark(bookmark) => {
                effects.push(Effect::BookmarkReceived);
                if watch.bookmark(bookmark, cache) {
                    effects.cancel(id);
                    if cache.is_new_version(&bookmark.version) {
                        effects.push(Effect::Advance(bookmark.version.clone()));
                    }
                    effects.push(Effect::JudgeShortWatch);
                }
            }
            Record::Error(_) => {}
        }
        effects
    }

    /// Checks the evidence of a short watch. A proof requires that the short watch reached the probe's version, and
    /// that our own watch has delivered all changes of the short watch.
    pub(super) fn judge(&mut self, cache: &CacheState, effects: &mut Effects) {
        let result = match &self.state {
            State::ShortWatching { watch, .. } => watch.result(),
            State::AwaitingDelivery { result, .. } => result.clone(),
            _ => return,
        };
        let lacks_event = result.newest_event.is_some_and(|newest_event| cache.is_new_version(&newest_event));
        if (lacks_event || !result.reached_target) && cache.is_proven_since(result.target.sent) {
            // Our own watch has reached the target in the meantime.
            self.state = State::Quiet;
        } else if lacks_event {
            self.handle_missing_proof("another watch has delivered events that this watch has not", cache, effects);
        } else if !result.reached_target {
            self.handle_missing_proof(
                "no proof of freshness: a short watch did not deliver all changes",
                cache,
                effects,
            );
        } else {
            // Our own watch stays at its version. The proven version is kept separately.
            if !cache.has_shown(&result.target.version) {
                effects.push(Effect::ShortWatchReached(result.target.version));
            }
            effects.push(Effect::ProofFound(result.target.sent));
        }
    }

    /// Handles the regular end of a stream alongside the watch. `may_compare` is set if a list of identities may be
    /// requested as a proof.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        id: RequestId,
        may_compare: bool,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        if !self.is_short_watch(id) {
            let failure = Failure::unreachable("the server ended the stream");
            return self.failed(now, id, &failure, cache, requester);
        }
        let mut effects = Effects::default();
        let server_reached_target = self.is_end_a_proof(cache);
        let State::ShortWatching { watch, .. } = &mut self.state else { return effects };
        watch.ended(now, server_reached_target);
        let (is_brief, result) = (watch.is_brief, watch.result());
        if is_brief && !result.reached_target {
            // One second was too short, for example because of events. Such an end neither proves nor disproves
            // freshness.
            self.state = State::Quiet;
            if !cache.is_proven_since(result.target.sent) {
                self.prove(now, result.target, false, cache, requester, &mut effects);
            }
            return effects;
        }
        // Only events above the cached version count. Our own watch has a short time to deliver the same events.
        if result.newest_event.as_ref().is_some_and(|newest_event| cache.is_new_version(newest_event)) {
            self.state = State::AwaitingDelivery { result, deadline: now + SHORT_WATCH_GRACE };
            return effects;
        }
        let has_bookmarks = cache.bookmark_interval.has_bookmarks();
        if !result.reached_target && !result.received_bookmark && (!has_bookmarks || may_compare && cache.is_suspect())
        {
            // The short watch received no bookmark. If no watch ever received one, the server sends none. Otherwise the
            // cache is in doubt, and a list may end the doubt if another watch does not.
            self.state = State::Quiet;
            if !has_bookmarks {
                effects.push(Effect::NoBookmarks);
            }
            effects.push(Effect::CompareWithList);
            return effects;
        }
        self.judge(cache, &mut effects);
        effects
    }

    /// Handles the head of a response alongside the watch.
    pub(super) fn opened(&mut self, now: Instant, id: RequestId, requester: &mut Requester) -> Effects {
        let mut effects = Effects::default();
        match &mut self.state {
            State::Replacing { id: replacing, .. } if *replacing == id => {
                self.state = State::Quiet;
                self.schedule.retry_later(now, requester);
                // The suspect watch stayed open until its replacement responded.
                effects.push(Effect::LeaveWatch);
                effects.push(Effect::WatchReplaced(id));
            }
            State::ShortWatching { watch, .. } if watch.id == id => watch.opened(now),
            _ => {}
        }
        effects
    }

    /// Handles a failed request alongside the watch.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        id: RequestId,
        failure: &Failure,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        let mut effects = Effects::default();
        match &self.state {
            State::ShortWatching { watch, .. }
                if watch.id == id && self.method != ProbeMethod::Unknown && is_rejection(failure) =>
            {
                // The server rejected this form. The working form, if any, is remembered as long as it leads to proofs.
                let (target, is_urgent) = (watch.target.clone(), watch.is_brief);
                self.method = match self.method {
                    ProbeMethod::Streamed => {
                        effects.push(Effect::StreamsRejected);
                        ProbeMethod::Listed
                    }
                    ProbeMethod::Listed | ProbeMethod::Unknown => ProbeMethod::Unknown,
                };
                self.state = State::Quiet;
                self.open_short_watch(now, target, is_urgent, cache, requester, &mut effects);
            }
            State::ShortWatching { watch, .. } if watch.id == id && may_lag(now, failure, cache) => {
                // The responding replica may only lag. The next request checks the same target without another probe
                // (R5).
                self.lagging_target = Some(watch.target.clone());
                self.state = State::Quiet;
                self.schedule.retry_later(now, requester);
            }
            State::Probing { id: request_id, .. }
            | State::ShortWatching { watch: ShortWatch { id: request_id, .. }, .. }
                if *request_id == id =>
            {
                if let (FailureKind::Busy, Some(retry_after)) = (failure.kind, failure.retry_after) {
                    // A delay that the server requested does not make the watch suspect. The cache still becomes stale
                    // at the maximum age.
                    self.state = State::Quiet;
                    self.schedule.delay_by(now, retry_after, requester);
                } else {
                    let is_probing = matches!(self.state, State::Probing { .. });
                    self.is_rejected |= is_probing && is_rejection(failure);
                    self.handle_missing_proof(
                        &format!("no proof of freshness: {}", failure.message),
                        cache,
                        &mut effects,
                    );
                }
            }
            State::Replacing { id: request_id, .. } if *request_id == id => {
                self.state = State::Quiet;
                self.schedule.retry_later(now, requester);
                // An expired version concerns our own watch as well, so both end.
                if failure.kind == FailureKind::Expired {
                    effects.push(Effect::LeaveWatch);
                    effects.push(Effect::WatchFailed(failure.clone()));
                }
            }
            _ => {}
        }
        effects
    }

    /// Cancels the activity.
    pub(super) fn cancel(&mut self) -> Option<Output> {
        match std::mem::replace(&mut self.state, State::Quiet) {
            State::Quiet | State::AwaitingDelivery { .. } => None,
            State::Probing { id, .. }
            | State::ShortWatching { watch: ShortWatch { id, .. }, .. }
            | State::Replacing { id, .. } => Some(Output::Cancel(id)),
        }
    }

    /// Handles a missing proof. Unless our own watch delivered a proof concurrently, it becomes suspect, and a second
    /// watch is opened on another connection.
    pub(super) fn handle_missing_proof(&mut self, reason: &str, cache: &CacheState, effects: &mut Effects) {
        self.state = State::Quiet;
        // The server rejected every method. The next request starts with the preferred method again.
        if self.method == ProbeMethod::Unknown {
            self.forget_rejections();
        }
        let is_advancing = cache.reached_at > self.schedule.started_at();
        if self.is_unproven_since_break(cache) && is_advancing {
            // Our own watch works, and still delivers a backlog.
            self.schedule.set_due(cache.reached_at + BACKLOG_DELAY);
            return;
        }
        // A bookmark of our own watch may have delivered the proof since the request.
        if cache.evidence.proven.is_none_or(|proven| proven <= self.schedule.started_at()) {
            effects.push(Effect::Suspect(Arc::from(reason)));
        }
    }

    /// Opens another watch that will replace the suspect watch.
    pub(super) fn replace(&mut self, now: Instant, cache: &CacheState, requester: &mut Requester) -> Effects {
        let mut effects = Effects::default();
        let Some(from) = cache.version.clone() else { return effects };
        let id = requester.next_id();
        // The deadline is half a period. A shorter deadline would open ever more connections to a silent server.
        self.state = State::Replacing { id, deadline: now + cache.settings.period / 2 };
        let timeout_seconds = requester.watch_seconds();
        effects.send(id, Request::Watch { from, timeout_seconds, new_connection: true });
        effects
    }
}

/// Returns whether the responding server may only lag behind the server of the probe, for up to a further period.
fn may_lag(now: Instant, failure: &Failure, cache: &CacheState) -> bool {
    let bound = cache.bookmark_interval.period() * 2;
    failure.kind == FailureKind::ResourceVersionTooLarge
        && cache.evidence.proven.is_some_and(|proven| now.since(proven) < bound)
}

/// Returns whether the server rejects the request in this form.
fn is_rejection(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Invalid | FailureKind::Denied | FailureKind::Unreadable)
}
