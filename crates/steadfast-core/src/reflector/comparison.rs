//! Comparisons of the cache with a list of the collection's identities. They provide the proof of freshness if the
//! server sends no bookmarks (R2), and the audit that detects changes lost by a server's watch (R12).
//!
//! A list of identities at version V contains the objects at V with their versions. A cached version above V is a later
//! change and is not compared. All other entries must be equal after our watch has reached V. Before that, the watch
//! may still deliver the change that explains a difference, so no decision is made. If all entries are equal, the cache
//! has reached V, even if the watch has not delivered V.
//!
//! Only a full list repairs the cache, since its commit preserves C1 to C5. An object with equal UID and version but
//! different content appears equal. No list of identities can detect this difference.

use std::sync::Arc;
use std::time::Duration;

use super::bookmark_interval::PERIODS_BETWEEN_LISTS;
use super::cache_state::CacheState;
use super::diagnostic::{Diagnostic, RelistCause};
use super::effect::{Effect, Effects};
use super::failure::{Failure, FailureKind};
use super::input::Differences;
use super::list_plan::ListPlan;
use super::output::Output;
use super::request::{Request, RequestId};
use super::requester::Requester;
use super::settings::ReflectorSettings;
use super::stream::{Stream, is_open};
use crate::fault_injection::inject;
use crate::freshness::FreshnessState;
use crate::record::ListMeta;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Number of identities in a page, unless the informer's own pages are smaller.
const IDENTITIES_PER_PAGE: u32 = 500;

/// Cause of a doubt between two lists of a server without bookmarks.
pub(super) const WITHOUT_BOOKMARKS: &str =
    "the server sends no bookmarks, so only a list proves that nothing is missing, at most once in five periods";

/// Cause of a doubt between two lists of a server with opaque versions.
const OPAQUE_VERSIONS: &str = "the server's versions cannot be ordered, so only a list proves that nothing is missing";

/// Time for a watch without bookmarks to deliver the changes that a list has shown.
const DELIVERY_GRACE: Duration = Duration::from_secs(5);

/// Running comparison, and the schedule of the next.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Time of the last complete list.
    listed_at: Instant,
    /// Time of the last complete list of identities.
    compared_at: Option<Instant>,
    /// Time of the next audit.
    audit_at: Option<Instant>,
    running: Option<RunningComparison>,
}

#[derive(Debug)]
struct RunningComparison {
    id: RequestId,
    /// Set for an audit, clear for a proof of freshness.
    is_audit: bool,
    /// Time at which the first page was requested. The list contains all earlier writes.
    requested_at: Instant,
    /// Version of the first page.
    version: Option<ResourceVersion>,
    state: ComparisonState,
}

#[derive(Clone, Copy, Debug)]
enum ComparisonState {
    Listing {
        deadline: Instant,
    },
    /// All pages are complete; the comparison follows immediately.
    Complete,
    /// Differences exist that the watch may still deliver. The watch may be a second one that was opened for this
    /// purpose.
    Waiting {
        until: Instant,
        was_replaced: bool,
    },
}

/// The watch, and the activity alongside it, at the time of a comparison's input.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchContext {
    pub(super) stream: Option<Stream>,
    /// Set if no probe, short watch or second watch is in flight.
    pub(super) is_quiet: bool,
}

impl RunningComparison {
    fn has_reached(&self, cache: &CacheState) -> bool {
        match (self.version.as_ref(), cache.reached_version()) {
            (Some(listed), Some(held)) => listed == held || held.is_newer_than(listed),
            _ => false,
        }
    }
}

impl Comparison {
    /// Returns the time of the running list's last progress. The list is cancelled after `timeout` without progress.
    pub(super) fn progress_at(&self, timeout: Duration) -> Option<Instant> {
        match self.running.as_ref()?.state {
            ComparisonState::Listing { deadline } => Some(deadline - timeout),
            ComparisonState::Complete | ComparisonState::Waiting { .. } => None,
        }
    }

    /// Returns whether `id` is the running comparison.
    pub(super) fn is_running(&self, id: RequestId) -> bool {
        self.running.as_ref().is_some_and(|running| running.id == id)
    }

    /// Records a committed full list, which makes a comparison unnecessary.
    pub(super) fn list_complete(
        &mut self,
        now: Instant,
        settings: &ReflectorSettings,
        requester: &mut Requester,
    ) -> Effects {
        let effects = self.cancel();
        self.listed_at = now;
        self.audit_later(now, None, settings, requester);
        effects
    }

    /// Schedules the next audit within the audit interval, with jitter against simultaneous audits, or after `delay`.
    pub(super) fn audit_later(
        &mut self,
        now: Instant,
        delay: Option<Duration>,
        settings: &ReflectorSettings,
        requester: &mut Requester,
    ) {
        self.audit_at = settings.audit_every.map(|every| {
            // The upper bound below a full interval leaves time for the list itself.
            now + delay.unwrap_or_else(|| requester.between(every * 3 / 4, every * 9 / 10))
        });
    }

    /// Requests a proof by a list, at limited intervals, if only a list can provide one (C12, R2).
    pub(super) fn request_proof(&mut self, now: Instant, cache: &CacheState, requester: &mut Requester) -> Effects {
        let mut effects = Effects::default();
        // A cache without a version counts as opaque: nothing can be compared with it.
        let is_opaque = cache.version.as_ref().is_none_or(|version| !version.is_ordered());
        let reason = if is_opaque { OPAQUE_VERSIONS } else { WITHOUT_BOOKMARKS };
        let pause = cache.settings.period * PERIODS_BETWEEN_LISTS;
        let due = if is_opaque { self.listed_at + pause } else { self.proof_due(&cache.settings) };
        if self.running.is_some() || now < due {
            // While bookmarks may still appear, the next request for a proof follows after a period. Otherwise the next
            // request waits for the list.
            let retry_at = now + cache.settings.period;
            let waits_for_list = is_opaque || cache.bookmark_interval.is_certainly_without_bookmarks();
            effects.push(Effect::ScheduleProof(if waits_for_list { due.max(retry_at) } else { retry_at }));
            // Without a doubt, the state stays `Streaming` and only its reason changes. An existing doubt keeps its
            // reason.
            if cache.evidence.state == FreshnessState::Streaming {
                effects.push(Effect::SetFreshness(FreshnessState::Streaming, Arc::from(reason)));
            }
        } else if is_opaque {
            // Identities with opaque versions cannot be compared, so a full list replaces the
            // watch.
            effects.push(Effect::LeaveWatch);
            let cause = RelistCause::OpaqueVersions;
            effects.push(Effect::Relist { plan: ListPlan::first(), cause, reason: Arc::from(reason) });
        } else {
            effects.push(Effect::ScheduleProof(now + cache.bookmark_interval.period()));
            self.start(now, false, &cache.settings, requester, &mut effects);
        }
        effects
    }

    /// Returns the earliest time of the next list of identities as a proof.
    fn proof_due(&self, settings: &ReflectorSettings) -> Instant {
        self.compared_at.map_or(Instant::ZERO, |then| then + settings.period * PERIODS_BETWEEN_LISTS)
    }

    /// Returns whether a list of identities may be requested now as a proof.
    pub(super) fn may_start(&self, now: Instant, settings: &ReflectorSettings) -> bool {
        self.running.is_none() && now >= self.proof_due(settings)
    }

    fn start(
        &mut self,
        now: Instant,
        is_audit: bool,
        settings: &ReflectorSettings,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        effects.perform(Output::BeginComparison);
        let id = send_identities(None, settings, requester, effects);
        let state = ComparisonState::Listing { deadline: now + settings.list_stall_timeout };
        self.running = Some(RunningComparison { id, is_audit, requested_at: now, version: None, state });
    }

    /// Returns the next audit, the deadline of a page, or the next comparison.
    pub(super) fn due(&self, stream: Option<Stream>, cache: &CacheState) -> Option<Instant> {
        match &self.running {
            // The page timeout applies even after the watch breaks.
            Some(RunningComparison { state: ComparisonState::Listing { deadline }, .. }) => Some(*deadline),
            // Differences can only be judged against an open watch.
            _ if !is_open(stream) => None,
            // The watch has reached the list's version. The comparison is due immediately, since this time lies in the
            // past.
            Some(running) if running.has_reached(cache) => Some(cache.reached_at),
            Some(RunningComparison { state: ComparisonState::Waiting { until, .. }, .. }) => Some(*until),
            Some(RunningComparison { state: ComparisonState::Complete, .. }) => None,
            None => self.audit_at,
        }
    }

    /// Starts an audit, compares again, or cancels a stalled list.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        watch_context: WatchContext,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        let mut effects = Effects::default();
        if self.due(watch_context.stream, cache).is_none_or(|due| now < due) {
            return effects;
        }
        match &self.running {
            None if cache.version.as_ref().is_some_and(ResourceVersion::is_ordered) => {
                self.start(now, true, &cache.settings, requester, &mut effects);
            }
            // A collection with opaque versions is listed again periodically, even without an audit.
            None => self.audit_later(now, None, &cache.settings, requester),
            Some(RunningComparison { id, state: ComparisonState::Listing { .. }, .. }) => {
                effects.cancel(*id);
                let seconds = cache.settings.list_stall_timeout.as_secs();
                let failure = Failure::unreachable(format!("the version list made no progress for {seconds} s"));
                self.fail(now, &failure, watch_context, cache, requester, &mut effects);
            }
            Some(RunningComparison { state: ComparisonState::Waiting { .. } | ComparisonState::Complete, .. }) => {
                effects.perform(Output::CompareListed);
            }
        }
        effects
    }

    /// Records progress of the list.
    pub(super) fn progress(&mut self, now: Instant, cache: &CacheState) {
        if let Some(RunningComparison { state: ComparisonState::Listing { deadline }, .. }) = &mut self.running {
            *deadline = now + cache.settings.list_stall_timeout;
        }
    }

    /// Handles a complete page of identities.
    pub(super) fn page_ended(
        &mut self,
        now: Instant,
        meta: ListMeta,
        watch_context: WatchContext,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        let mut effects = Effects::default();
        self.progress(now, cache);
        let Some(running) = &mut self.running else { return effects };
        // Only pages of one version can be compared.
        let is_same_version = match (&running.version, &meta.version) {
            (_, None) => false,
            (None, Some(version)) => version.is_ordered(),
            (Some(first), Some(version)) => first == version,
        };
        if !is_same_version {
            let failure = Failure::unreadable("the pages of a version list have no common version");
            self.fail(now, &failure, watch_context, cache, requester, &mut effects);
            return effects;
        }
        running.version = meta.version;
        if meta.continue_token.is_some() {
            // Every page uses its own request id. Late entries of an earlier page are ignored.
            running.id = send_identities(meta.continue_token, &cache.settings, requester, &mut effects);
            return effects;
        }
        running.state = ComparisonState::Complete;
        // The interval between proofs counts from complete lists, independent of their result.
        self.compared_at = Some(now);
        effects.perform(Output::CompareListed);
        effects
    }

    /// Handles a failed list of identities.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        failure: &Failure,
        watch_context: WatchContext,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        let mut effects = Effects::default();
        self.fail(now, failure, watch_context, cache, requester, &mut effects);
        effects
    }

    /// Ends the comparison. An audit is retried later. A requested proof counts as missing, unless the server requested
    /// a delay.
    fn fail(
        &mut self,
        now: Instant,
        failure: &Failure,
        watch_context: WatchContext,
        cache: &CacheState,
        requester: &mut Requester,
        effects: &mut Effects,
    ) {
        let Some(running) = self.running.take() else { return };
        effects.perform(Output::EndComparison);
        // Only a busy server's `Retry-After` applies. Other failures follow the schedule of audits.
        let retry_after = failure.retry_after.filter(|_| failure.kind == FailureKind::Busy);
        if running.is_audit {
            let later = cache.settings.audit_every.unwrap_or_default() / 8;
            let delay = retry_after.unwrap_or(later).max(Duration::from_secs(1));
            self.audit_later(now, Some(delay), &cache.settings, requester);
        } else if let Some(retry_after) = retry_after {
            effects.push(Effect::DelayProof(retry_after));
        } else if watch_context.is_quiet && watch_context.stream.is_some() {
            // A running probe or replacement would report a missing proof later. Without such an activity, the missing
            // proof is reported here.
            effects.push(Effect::Unproven(format!("no proof of freshness: {}", failure.message).into()));
        }
    }

    /// Handles the result of the comparison.
    pub(super) fn compared(
        &mut self,
        now: Instant,
        differences: &Differences,
        watch_context: WatchContext,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        let Some(running) = &self.running else { return Effects::default() };
        let (reached, state) = (running.has_reached(cache), running.state);
        let has_watch = watch_context.stream.is_some();
        if differences.count == 0 || inject!(cache.faults(), BlindAudit) {
            return self.found_equal(now, watch_context, cache, requester);
        }
        match state {
            // The watch delivered everything up to the list's version, so the difference is final.
            _ if has_watch && reached => self.repair(differences),
            ComparisonState::Listing { .. } | ComparisonState::Complete => self.await_differences(now, cache),
            // Either the grace period is still running, or no watch exists that could deliver the changes.
            ComparisonState::Waiting { until, .. } if now < until || !has_watch => Effects::default(),
            // The second watch lacked the changes as well, so the server's watches have lost them.
            ComparisonState::Waiting { was_replaced: true, .. } => self.repair(differences),
            // Without bookmarks, a stuck watch cannot be distinguished from a watch of a quiet collection. A second
            // watch on another connection shows which is the case.
            ComparisonState::Waiting { .. } if cache.bookmark_interval.is_without_bookmarks() => {
                self.wait(now + cache.settings.period / 2 + DELIVERY_GRACE, true);
                let suspect = || Effect::Suspect(Arc::from("a list contains changes that the watch has not delivered"));
                watch_context.is_quiet.then(suspect).map(Effects::from).unwrap_or_default()
            }
            // With bookmarks, the requests for proofs show whether the watch works. The next audit follows earlier than
            // usual.
            ComparisonState::Waiting { .. } => {
                let effects = self.cancel();
                let delay = cache.settings.audit_every.map(|every| every / 8);
                self.audit_later(now, delay, &cache.settings, requester);
                effects
            }
        }
    }

    /// Waits until our watch has delivered the differences. With bookmarks, also requests a proof that the watch has
    /// reached the list's version.
    fn await_differences(&mut self, now: Instant, cache: &CacheState) -> Effects {
        if cache.bookmark_interval.is_without_bookmarks() {
            self.wait(now + DELIVERY_GRACE, false);
            Effects::default()
        } else {
            self.wait(now + cache.settings.period * 2, false);
            Effect::SeekProof.into()
        }
    }

    fn wait(&mut self, until: Instant, was_replaced: bool) {
        if let Some(running) = &mut self.running {
            running.state = ComparisonState::Waiting { until, was_replaced };
        }
    }

    /// Gives the replacement of a suspect watch a short time to deliver the listed changes.
    pub(super) fn watch_replaced(&mut self, now: Instant) {
        if let Some(RunningComparison { state: ComparisonState::Waiting { was_replaced: true, .. }, .. }) =
            &self.running
        {
            self.wait(now + DELIVERY_GRACE, true);
        }
    }

    fn found_equal(
        &mut self,
        now: Instant,
        watch_context: WatchContext,
        cache: &CacheState,
        requester: &mut Requester,
    ) -> Effects {
        let (requested_at, version) = match &self.running {
            Some(running) => (running.requested_at, running.version.clone()),
            None => return Effects::default(),
        };
        let mut effects = self.cancel();
        effects.report(Diagnostic::Audited { version: version.clone() });
        // Equal content at the list's version moves the resume position without any event.
        if let Some(version) = version.filter(|version| cache.is_new_version(version)) {
            effects.push(Effect::Advance(version));
        }
        self.audit_later(now, None, &cache.settings, requester);
        // A running probe continues; the proof counts without cancelling the probe.
        effects.push(if watch_context.is_quiet {
            Effect::ProofFound(requested_at)
        } else {
            Effect::Proven(requested_at)
        });
        effects
    }

    /// Lists again to repair objects whose changes our watch should have reported.
    fn repair(&mut self, differences: &Differences) -> Effects {
        let mut effects = Effects::from(Effect::Perform(Output::ReportDifferences));
        effects.append(self.cancel());
        effects.push(Effect::LeaveWatch);
        if let Some((held, proof)) = differences.backwards.clone() {
            effects.push(Effect::ListNewHistory { held, proof, plan: ListPlan::repair(true) });
        } else {
            let reason = format!("the server's watch has lost changes of {} objects", differences.count);
            let (plan, cause) = (ListPlan::repair(false), RelistCause::LostChanges);
            effects.push(Effect::Relist { plan, cause, reason: reason.into() });
        }
        effects
    }

    /// Cancels the running comparison.
    pub(super) fn cancel(&mut self) -> Effects {
        let mut effects = Effects::default();
        if let Some(running) = self.running.take() {
            if let ComparisonState::Listing { .. } = running.state {
                effects.cancel(running.id);
            }
            effects.perform(Output::EndComparison);
        }
        effects
    }
}

fn send_identities(
    continue_token: Option<String>,
    settings: &ReflectorSettings,
    requester: &mut Requester,
    effects: &mut Effects,
) -> RequestId {
    let id = requester.next_id();
    let limit = settings.page_size.map_or(IDENTITIES_PER_PAGE, |own| own.min(IDENTITIES_PER_PAGE));
    effects.send(id, Request::Versions { limit, continue_token });
    id
}
