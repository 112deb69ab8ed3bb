//! Effects of the machines on each other: the transitions between phases.

use std::sync::Arc;
use std::time::Duration;

use super::Reflector;
use super::comparison::WatchContext;
use super::delayed_action::DelayedAction;
use super::delta_list::DeltaList;
use super::diagnostic::{Diagnostic, RelistCause};
use super::effect::{Effect, Effects};
use super::epoch_probe::EpochProbe;
use super::failure::{Failure, FailureKind};
use super::list::List;
use super::list_plan::{ListForm, ListPlan};
use super::output::Output;
use super::phase::Phase;
use super::request::{ListFrom, Request, RequestId};
use super::watch::Watch;
use crate::fault_injection::inject;
use crate::freshness::{FreshnessState, Polled};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Cause of a suspect watch that is silent although its connection is alive.
const SILENT_WATCH: &str =
    "the API server does not respond on this connection, although a proxy may respond to its pings";

/// Cause of a suspect watch without a response head on a connection that is alive.
const NO_RESPONSE_HEAD: &str = "the API server does not respond on this connection, not even to the watch request, \
                                although a proxy may respond to its pings";

impl Reflector {
    /// Applies the effects of a step, in order. An effect may cause a step of another machine. The effects of that step
    /// are applied before the remaining `effects`.
    pub(super) fn apply(&mut self, now: Instant, effects: Effects, out: &mut Vec<Output>) {
        for effect in effects {
            self.apply_one(now, effect, out);
        }
    }

    fn apply_one(&mut self, now: Instant, effect: Effect, out: &mut Vec<Output>) {
        match effect {
            Effect::Perform(output) => out.push(output),

            Effect::Proven(proven_at) => self.record_proof(now, proven_at),
            Effect::ProofFound(proven_at) => self.handle_proof(now, proven_at, out),
            Effect::Unproven(reason) => {
                let mut effects = Effects::default();
                self.probe.handle_missing_proof(&reason, &self.cache, &mut effects);
                self.apply(now, effects, out);
            }
            Effect::Suspect(reason) => self.suspect_watch(now, reason, out),
            Effect::NoResponse => self.no_response(now, false, out),
            Effect::Broken(failure) => self.set_broken(now, &failure),
            Effect::SetFreshness(state, reason) => self.cache.set_state(now, state, reason),
            Effect::BookmarkReceived => self.cache.bookmark_interval.record_any_bookmark(),
            Effect::NoBookmarks => self.cache.bookmark_interval.record_missing_bookmarks(),
            Effect::StreamsRejected => {
                let until = now + self.cache.settings.paged_list_period;
                self.cache.streamed_lists.empty_list_rejected(until);
            }

            Effect::Advance(version) => {
                self.cache.advance(now, version.clone());
                out.push(Output::Advance(version));
            }
            Effect::ShortWatchReached(version) => {
                self.cache.set_shown(now, version.clone());
                out.push(Output::Advance(version));
            }

            Effect::JudgeShortWatch => {
                let mut effects = Effects::default();
                self.probe.judge(&self.cache, &mut effects);
                self.apply(now, effects, out);
            }
            Effect::CompareWithList => {
                let effects = self.comparison.request_proof(now, &self.cache, &mut self.requester);
                self.apply(now, effects, out);
            }
            Effect::SeekProof => self.seek_proof(now, out),
            Effect::ScheduleProof(at) => self.probe.schedule.set_due(at),
            Effect::DelayProof(retry_after) => self.probe.schedule.delay_by(now, retry_after, &mut self.requester),
            Effect::DropComparison => self.drop_comparison(now, out),

            Effect::Relist { plan, cause, reason } => self.relist(now, plan, cause, reason, out),
            Effect::ListLater { plan, retry_after } => self.list_later(now, plan, retry_after),
            Effect::ListComplete { version, fetched_count } => self.list_complete(now, version, fetched_count, out),
            Effect::ListFailed(failure) => self.list_failed(now, &failure, out),
            Effect::FallBackToPages(reason) => self.fall_back(now, reason, out),
            Effect::CountStreamedListFailure(reason) => {
                if let Phase::Listing(list) = &mut self.phase {
                    self.cache.streamed_lists.count_failure(reason, &mut list.plan);
                }
            }
            Effect::ListInFull { plan, not_before, reason } => self.list_in_full(now, plan, not_before, reason, out),
            Effect::DelayDeltaList(failure) => self.delay_delta_list(now, &failure, out),
            Effect::Lagging { plan, failure } => self.handle_lagging_server(now, plan, &failure, out),
            Effect::HistoryChanged(proof) => {
                if let Some(held) = self.cache.reached_version().cloned() {
                    self.list_new_history(now, held, proof, ListPlan::new_epoch(), out);
                }
            }
            Effect::ListNewHistory { held, proof, plan } => self.list_new_history(now, held, proof, plan, out),

            Effect::LeaveWatch => self.leave_watch(out),
            Effect::Watch => self.watch(now, out),
            Effect::Resume => {
                // This watch did not end immediately, so the backoff for watches that end immediately restarts.
                self.backoffs.immediate_ends.reset();
                self.record_watch_health(now);
                out.push(Output::Diagnostic(Diagnostic::Ended));
                self.watch(now, out);
            }
            Effect::ResumeLater => {
                out.push(Output::Diagnostic(Diagnostic::Ended));
                let until = now + self.backoffs.immediate_ends.fail(&mut self.requester.random);
                self.wait_until(until, DelayedAction::Watch);
            }
            Effect::WatchReplaced(id) => {
                // The start of a stream proves nothing. Its records are proofs. So is the response to the next probe,
                // which follows shortly.
                self.phase = Phase::Watching(Watch::open(id, now));
                self.cache.bookmark_interval.reset();
                self.comparison.watch_replaced(now);
            }
            Effect::TakeOver(id) => self.take_over(id, out),
            Effect::WatchFailed(failure) => self.watch_failed(now, &failure, out),
            Effect::VersionRejected(failure) => {
                let (settings, requester) = (&self.cache.settings, &mut self.requester);
                let effects = self.polling.version_rejected(now, &failure, settings, requester);
                self.apply(now, effects, out);
            }
            Effect::WatchUnavailable { failure, is_evidence } => {
                let (cache, requester) = (&self.cache, &mut self.requester);
                let effects = self.polling.watch_failed(now, &failure, is_evidence, cache, requester);
                self.apply(now, effects, out);
            }
            Effect::Wait { failure, then } => self.wait(now, &failure, then, out),
            Effect::RetryList(plan) => {
                let until = now + self.backoffs.failures.fail(&mut self.requester.random);
                self.wait_until(until, DelayedAction::List(plan));
            }
            Effect::WaitUntil { until, then } => self.wait_until(until, then),
            Effect::Poll { every, reason } => self.poll(now, Polled { every, reason }),
        }
    }

    /// Returns the watch and the activity alongside it.
    pub(super) fn watch_context(&self) -> WatchContext {
        WatchContext { stream: self.phase.stream(), is_quiet: self.probe.is_quiet() }
    }

    /// Continues the watch on the stream of the request `id`.
    fn take_over(&mut self, id: RequestId, out: &mut Vec<Output>) {
        let Phase::Watching(watch) = &mut self.phase else { return };
        out.push(Output::Cancel(watch.continue_on(id)));
        let version = self.cache.version.clone();
        out.extend(version.map(|version| Output::Diagnostic(Diagnostic::Moved { version })));
    }

    // Delays.

    fn wait_until(&mut self, until: Instant, then: DelayedAction) {
        self.phase = Phase::Waiting { until, then, unreachable: false };
    }

    /// Waits for the delay that the server requested, or for the backoff. Continues with `then`.
    fn wait(&mut self, now: Instant, failure: &Failure, then: DelayedAction, out: &mut Vec<Output>) {
        // A server that did not respond at all may be retried early, once a connection to it succeeds. A server that
        // accepts and closes connections immediately keeps the full backoff, even if connections succeed repeatedly
        // (R6).
        let unreachable = failure.kind == FailureKind::Unreachable && !self.phase.has_response();
        let until = now + self.record_failure(failure, out);
        self.phase = Phase::Waiting { until, then, unreachable };
    }

    /// Counts and reports a failure. Returns the delay before the next attempt.
    fn record_failure(&mut self, failure: &Failure, out: &mut Vec<Output>) -> Duration {
        let backoff = self.backoffs.failures.fail(&mut self.requester.random);
        let retry_in = self.requester.delay(backoff, failure.retry_after);
        out.push(Output::Diagnostic(Diagnostic::failed(failure, self.backoffs.attempts(), retry_in)));
        retry_in
    }

    // Freshness.

    /// Requests a proof now.
    pub(super) fn seek_proof(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.probe.schedule.request(now);
        self.probe_tick(now, out);
    }

    /// Requests a proof if one is due, or handles the deadline of the current request.
    pub(super) fn probe_tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        let effects = self.probe.tick(now, self.phase.stream(), &self.cache, &mut self.requester);
        self.apply(now, effects, out);
    }

    /// Marks the watch as suspect and opens another watch alongside it.
    fn suspect_watch(&mut self, now: Instant, reason: Arc<str>, out: &mut Vec<Output>) {
        if self.cache.version.is_none() {
            return;
        }
        // A repeated doubt updates the reason without another log line.
        let is_new_doubt = !self.cache.is_suspect();
        self.cache.set_state(now, FreshnessState::Suspect, reason.clone());
        if is_new_doubt {
            out.push(Output::Diagnostic(Diagnostic::Suspect { reason }));
        }
        self.replace_watch(now, out);
    }

    fn replace_watch(&mut self, now: Instant, out: &mut Vec<Output>) {
        let effects = self.probe.replace(now, &self.cache, &mut self.requester);
        self.apply(now, effects, out);
    }

    /// Handles a server that does not respond on the connection of a watch. `has_head` is set if the head of the
    /// watch's response arrived.
    pub(super) fn no_response(&mut self, now: Instant, has_head: bool, out: &mut Vec<Output>) {
        // A replacement is already opening. Its deadline limits the number of connections.
        if self.probe.is_replacing() {
            return;
        }
        out.extend(self.probe.cancel());
        let state = self.cache.evidence.state;
        if self.is_streaming() || matches!(state, FreshnessState::Streaming | FreshnessState::Suspect) {
            self.suspect_watch(now, if has_head { SILENT_WATCH } else { NO_RESPONSE_HEAD }.into(), out);
        } else {
            // A doubt already exists, and the missing response becomes its cause. The watch is treated as failed,
            // although its response may still arrive.
            self.set_broken(now, &Failure::unreachable(NO_RESPONSE_HEAD));
            out.push(Output::Diagnostic(Diagnostic::Suspect { reason: NO_RESPONSE_HEAD.into() }));
            self.replace_watch(now, out);
        }
    }

    pub(super) fn drop_comparison(&mut self, now: Instant, out: &mut Vec<Output>) {
        let effects = self.comparison.cancel();
        self.apply(now, effects, out);
    }

    // Lists.

    /// Waits for a permit for a full transfer; only a few may run concurrently.
    pub(super) fn queue(&mut self, plan: ListPlan, out: &mut Vec<Output>) {
        self.phase = Phase::AwaitingTransfer(plan);
        out.push(Output::AwaitTransfer);
    }

    /// Starts the transfer after its permit was granted.
    pub(super) fn start_list(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Phase::AwaitingTransfer(plan) = &self.phase else {
            // The phase changed while the permit was pending, so the unused permit returns.
            out.push(Output::ReleaseTransfer);
            return;
        };
        let mut plan = plan.clone();
        if inject!(self.cache.faults(), OlderList) && self.cache.is_synced {
            plan.from = ListFrom::NotOlderThan(ResourceVersion::from("0"));
        }
        self.list_requested = now;
        let (settings, requester) = (&self.cache.settings, &mut self.requester);
        if self.unidentified.is_resolved() && self.delta_policy.applies(now, &plan, &self.cache) {
            let (list, effects) = DeltaList::start(now, plan, &self.delta_policy, settings, requester);
            self.phase = Phase::DeltaListing(list);
            return self.apply(now, effects, out);
        }
        // If this full list fails, the next list must be full as well.
        plan.delta_until = None;
        // Without bookmarks, probes rarely lead to a proof, so the list itself must be one.
        if self.cache.bookmark_interval.is_without_bookmarks() {
            plan.from = ListFrom::Consistent;
        }
        let is_streamed =
            matches!(plan.form, ListForm::StreamedIfSupported) && self.cache.streamed_lists.should_be_streamed(now);
        let new_epoch = plan.new_epoch;
        let (list, request) = List::start(now, plan, is_streamed, settings, requester);
        self.unidentified.list_started();
        out.extend([Output::BeginStaging { new_epoch }, Output::Send(list.id, request)]);
        self.phase = Phase::Listing(list);
    }

    /// Lists again after the backoff of relists, whose first delay is only jitter, for the reason `reason`.
    pub(super) fn relist(
        &mut self,
        now: Instant,
        plan: ListPlan,
        cause: RelistCause,
        reason: Arc<str>,
        out: &mut Vec<Output>,
    ) {
        out.push(Output::Diagnostic(Diagnostic::Relisting { cause, reason: reason.clone() }));
        self.drop_comparison(now, out);
        self.probe.set_broken(now);
        self.cache.set_state(now, self.state_without_stream(), reason);
        self.list_later(now, plan, None);
    }

    fn list_later(&mut self, now: Instant, plan: ListPlan, retry_after: Option<Duration>) {
        // Successful lists count as well: only a healthy watch resets this backoff (R6).
        let backoff = self.backoffs.relists.fail(&mut self.requester.random);
        let until = now + self.requester.delay(backoff, retry_after);
        self.wait_until(until, DelayedAction::List(plan));
    }

    /// Handles a streamed list that is complete at `version`.
    pub(super) fn stream_complete(&mut self, now: Instant, version: ResourceVersion) -> Vec<Output> {
        let mut out = Vec::new();
        let Phase::Listing(list) = &self.phase else { return out };
        let (id, plan) = (list.id, list.plan.clone());
        if self.commit(now, &plan, Some(version), None, &mut out) {
            self.cache.streamed_lists.succeeded();
            // The stream continues as the watch, so its records follow the list without a gap.
            self.phase = Phase::Watching(Watch::open(id, now).after_list());
            self.cache.bookmark_interval.reset();
            self.set_stream_open(now);
        } else {
            // `commit` has already pushed its outputs. The cancellation of this stream must precede these outputs.
            out.insert(0, Output::Cancel(id));
        }
        out
    }

    /// Handles a list that is complete and whose watch has not started.
    fn list_complete(
        &mut self,
        now: Instant,
        version: Option<ResourceVersion>,
        fetched_count: Option<usize>,
        out: &mut Vec<Output>,
    ) {
        let plan = match &self.phase {
            Phase::Listing(list) => list.plan.clone(),
            Phase::DeltaListing(list) => list.plan.clone(),
            _ => return,
        };
        if !self.commit(now, &plan, version, fetched_count, out) {
            return;
        }
        self.set_stream_open(now);
        let effects = self.polling.after_list(now, &self.cache);
        self.apply(now, effects, out);
        if let Phase::Watching(watch) = &mut self.phase
            && plan.from == ListFrom::Consistent
        {
            *watch = watch.clone().after_list();
        }
    }

    /// Replaces the content of the store by the staged list, unless the list is older than the store (C4).
    ///
    /// For a delta relist, `fetched_count` is the number of objects that were transferred in full.
    fn commit(
        &mut self,
        now: Instant,
        plan: &ListPlan,
        version: Option<ResourceVersion>,
        fetched_count: Option<usize>,
        out: &mut Vec<Output>,
    ) -> bool {
        let reached = self.cache.reached_version();
        let is_older = version.as_ref().zip(reached).is_some_and(|(new, held)| new.is_older_than(held));
        let is_newer = version.as_ref().zip(reached).is_none_or(|(new, held)| !new.is_older_than(held) && new != held);
        if is_older && !plan.new_epoch && !inject!(self.cache.faults(), OlderList) {
            // The cache never goes back within an epoch. A lower version means that the server lags (C4).
            let version = version.as_ref().map_or("no version", ResourceVersion::as_str);
            let reason = format!("the server returned a list at {version}, older than the cache");
            let effects = match &self.phase {
                Phase::DeltaListing(list) => list.list_in_full(reason.into()),
                _ => Effect::ListFailed(Failure::of(FailureKind::ResourceVersionTooLarge, reason)).into(),
            };
            self.apply(now, effects, out);
            return false;
        }
        let initial = !self.cache.is_synced;
        out.push(Output::Commit { version: version.clone(), initial, new_epoch: plan.new_epoch || is_older });
        out.push(Output::ReleaseTransfer);
        out.push(Output::Diagnostic(if initial {
            Diagnostic::Synced { version: version.clone() }
        } else {
            Diagnostic::Relisted { held: self.cache.version.clone(), version: version.clone(), fetched: fetched_count }
        }));
        if let ListForm::PagesFallback(fallback) = &plan.form {
            let until = self.requester.remembered_until(now);
            self.cache.streamed_lists.pages_complete(until);
            if fallback.applies_to_all_clients {
                out.push(Output::RememberPages { until });
            }
            out.push(Output::Diagnostic(Diagnostic::FellBackToPages { reason: fallback.reason.clone() }));
        }
        if initial {
            self.delta_policy.start(now);
        }
        self.cache.is_synced = true;
        let (settings, requester) = (&self.cache.settings, &mut self.requester);
        self.polling.list_complete(self.list_requested, settings, requester);
        let effects = self.comparison.list_complete(now, settings, requester);
        self.apply(now, effects, out);
        self.unidentified.list_complete(now, self.cache.settings.period);
        self.cache.evidence.needs_list = !self.unidentified.is_resolved();
        self.cache.list_complete(now, version);
        if is_newer || plan.from == ListFrom::Consistent {
            self.record_list(now, plan.from == ListFrom::Consistent);
        }
        true
    }

    /// Handles a failed full transfer and drops the staged objects.
    pub(super) fn list_failed(&mut self, now: Instant, failure: &Failure, out: &mut Vec<Output>) {
        let Phase::Listing(list) = &self.phase else { return };
        let (mut plan, is_streamed, is_continued) = (list.plan.clone(), list.is_streamed, list.is_continued());
        if is_streamed {
            if failure.is_rejection() && failure.kind == FailureKind::Denied {
                self.polling.expect_rejection();
            }
            if self.cache.streamed_lists.failed(failure, list.has_head, &mut plan) {
                return self.request_pages(now, plan, failure.message.clone(), out);
            }
        }
        out.extend([Output::DropStaging, Output::ReleaseTransfer]);
        self.set_broken(now, failure);
        match failure.kind {
            FailureKind::ResourceVersionTooLarge => self.handle_lagging_server(now, plan, failure, out),
            FailureKind::Expired => {
                if !is_continued {
                    // The version expired, not a continue token. The server's current version cannot have expired.
                    plan.from = ListFrom::Consistent;
                }
                // A list in a single response uses no continue token that could expire (F14).
                plan.is_unpaged = true;
                let (cause, reason) = (RelistCause::Expired, failure.message.clone());
                out.push(Output::Diagnostic(Diagnostic::Relisting { cause, reason }));
                self.list_later(now, plan, failure.retry_after);
            }
            _ => {
                if !is_streamed {
                    self.cache.streamed_lists.pages_failed(failure, &mut plan);
                }
                let replaces_watch = plan.replaces_watch && self.poll_failed(now, failure);
                self.wait(
                    now,
                    failure,
                    if replaces_watch { DelayedAction::Watch } else { DelayedAction::List(plan) },
                    out,
                );
            }
        }
    }

    /// Immediately replaces the running streamed list, which does not work, by pages.
    pub(super) fn fall_back(&mut self, now: Instant, reason: Arc<str>, out: &mut Vec<Output>) {
        let Phase::Listing(list) = &self.phase else { return };
        let plan = list.plan.clone().in_pages(reason.clone());
        self.request_pages(now, plan, reason, out);
    }

    /// Requests pages immediately. An earlier failure remains the cause of the doubt until the pages arrive.
    fn request_pages(&mut self, now: Instant, plan: ListPlan, reason: Arc<str>, out: &mut Vec<Output>) {
        // A permanent failure stays visible until a list succeeds.
        if self.cache.evidence.state != FreshnessState::Failed {
            self.cache.set_state(now, self.state_without_stream(), reason);
        }
        out.extend([Output::DropStaging, Output::ReleaseTransfer]);
        self.queue(plan, out);
    }

    /// Requests a full list instead of a delta relist: immediately, unless the server has requested a delay.
    fn list_in_full(
        &mut self,
        now: Instant,
        plan: ListPlan,
        not_before: Option<Instant>,
        reason: Arc<str>,
        out: &mut Vec<Output>,
    ) {
        out.push(Output::Diagnostic(Diagnostic::ListingAll { reason }));
        // Without this pause, every relist would transfer the metadata and then the full list too.
        self.delta_policy.full_until = Some(self.requester.remembered_until(now));
        if let Some(until) = not_before.filter(|until| now < *until) {
            // A delayed list must not block the transfers of other informers.
            out.push(Output::ReleaseTransfer);
            self.wait_until(until, DelayedAction::List(plan));
        } else {
            // The transfer permit is still held, so the full list starts without queueing again.
            self.phase = Phase::AwaitingTransfer(plan);
            self.start_list(now, out);
        }
    }

    /// Delays the next requests of a delta relist.
    fn delay_delta_list(&mut self, now: Instant, failure: &Failure, out: &mut Vec<Output>) {
        // The delay does not invalidate earlier proofs: the server read the listed version after the request of the
        // list.
        self.cache.set_state(now, FreshnessState::Resuming, failure.message.clone());
        let until = now + self.record_failure(failure, out);
        if let Phase::DeltaListing(list) = &mut self.phase {
            list.delay_until(until);
        }
    }

    /// Handles a cached version that is too large for the responding server (R5).
    ///
    /// A retry comes first: another replica may respond. If the retry fails in the same way, a consistent list is
    /// requested, which is never older. If its response is nevertheless older, a probe distinguishes a lagging replica
    /// from another history.
    fn handle_lagging_server(&mut self, now: Instant, mut plan: ListPlan, failure: &Failure, out: &mut Vec<Output>) {
        self.set_broken(now, failure);
        if plan.lagging_since.is_none() {
            out.push(Output::Diagnostic(Diagnostic::Lagging { reason: failure.message.clone() }));
            plan.lagging_since = Some(now);
            self.list_later(now, plan, failure.retry_after);
        } else if plan.make_consistent() {
            self.wait(now, failure, DelayedAction::List(plan), out);
        } else {
            self.probe_epoch(now, plan, out);
        }
    }

    /// Sends the probe that distinguishes a lagging replica from another history.
    pub(super) fn probe_epoch(&mut self, now: Instant, plan: ListPlan, out: &mut Vec<Output>) {
        let (epoch_probe, request) = EpochProbe::start(now, plan, &self.cache.settings, &mut self.requester);
        out.push(Output::Send(epoch_probe.id, request));
        self.phase = Phase::ProbingEpoch(epoch_probe);
    }

    /// Lists the collection of another history. The version `proof` proves that history, since the cache has the higher
    /// version `held`.
    fn list_new_history(
        &mut self,
        now: Instant,
        held: ResourceVersion,
        proof: ResourceVersion,
        plan: ListPlan,
        out: &mut Vec<Output>,
    ) {
        let diagnostic = Diagnostic::NewEpoch { held, proof };
        let reason: Arc<str> = Arc::from(diagnostic.to_string());
        out.push(Output::Diagnostic(diagnostic));
        self.drop_comparison(now, out);
        // Proofs from the old history do not cover the new history.
        self.probe.set_broken(now);
        self.cache.set_state(now, FreshnessState::Stale, reason);
        self.list_later(now, plan, None);
    }

    // The watch, and lists instead of it.

    /// Watches from the version of the cache; lists if no version exists.
    pub(super) fn watch(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Some(from) = self.cache.version.clone() else {
            self.queue(ListPlan::first(), out);
            return;
        };
        let id = self.requester.next_id();
        self.phase = Phase::Watching(Watch::requested(id, now));
        self.cache.bookmark_interval.reset();
        self.probe.forget_rejections();
        let timeout_seconds = self.requester.watch_seconds();
        out.push(Output::Send(id, Request::Watch { from, timeout_seconds, new_connection: false }));
    }

    pub(super) fn watch_failed(&mut self, now: Instant, failure: &Failure, out: &mut Vec<Output>) {
        self.record_watch_health(now);
        out.extend(self.probe.cancel());
        if let Phase::Watching(watch) = &self.phase {
            let effects = watch.failed(now, failure, &self.cache);
            self.apply(now, effects, out);
        }
    }

    /// Drops the watch and the activities alongside it.
    pub(super) fn leave_watch(&mut self, out: &mut Vec<Output>) {
        if let Phase::Watching(watch) = &self.phase {
            out.push(Output::Cancel(watch.id));
        }
        out.extend(self.watch_move.cancel());
        out.extend(self.probe.cancel());
    }

    fn poll(&mut self, now: Instant, polled: Polled) {
        self.cache.evidence.polled = Some(polled);
        let (until, then) = self.polling.next();
        self.wait_until(until, then);
        self.set_stream_open(now);
        // The list may have been requested before the break. An early poll provides the proof.
        if self.probe.is_unproven_since_break(&self.cache) {
            self.hasten_poll(now);
        }
    }

    /// Handles a failed poll. Returns whether a watch should be tried before the next poll.
    fn poll_failed(&mut self, now: Instant, failure: &Failure) -> bool {
        if self.cache.version.is_none() {
            return false;
        }
        if self.polling.poll_failed(now, failure) {
            self.end_polling();
        }
        !self.polling.is_active()
    }

    /// Schedules an earlier poll for a caller that waits for a write.
    pub(super) fn hasten_poll(&mut self, now: Instant) {
        let Some(earliest) = self.polling.earliest_poll(self.list_requested, &self.cache.settings) else { return };
        // A failing poll keeps its backoff: waiting callers must not defeat the delay.
        if let Phase::Waiting {
            until,
            then: then @ (DelayedAction::List(_) | DelayedAction::Watch),
            unreachable: false,
        } = &mut self.phase
            && *until > earliest
            && self.backoffs.failures.failures() == 0
        {
            (*until, *then) = (now.max(earliest), DelayedAction::List(ListPlan::poll()));
        }
    }
}
