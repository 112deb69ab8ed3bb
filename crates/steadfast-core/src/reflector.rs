//! Reflector: the state machine for listing, watching, resuming and relisting.
//!
//! The caller passes the time and the input ([`Reflector::step`], and [`Reflector::record`] for the records of a
//! stream). The reflector returns the actions. It owns no object, no socket, no clock and no lock.
//!
//! | phase | waits for | ends with, and next phase |
//! |---|---|---|
//! | `Idle` | [`Input::Start`], or [`Input::Restart`] with a checkpoint | `AwaitingTransfer` for the first list; `Watching` from the version of the checkpoint |
//! | `AwaitingTransfer` | a permit for a full transfer; few run concurrently | `Listing`; `DeltaListing` after a `410` if few objects can have changed |
//! | `Listing` | the end of the pages, or of the initial events | complete: `Watching`, or `Waiting` for the next poll. Streams rejected or stalled: `AwaitingTransfer`, for pages. Older than the cache, or version too large: `Waiting`, then `ProbingEpoch`. Otherwise `Waiting`, to list again, or to watch if the list replaced a watch |
//! | `DeltaListing` | metadata of all objects, and the objects that differ from the cache | complete: `Watching`, or `Waiting` for the next poll. Unexpected content: `Listing`. Failed: `Waiting`, to list |
//! | `Watching` | records, until the stream ends | regular end after a second or more: `Watching` again immediately. Earlier end, break or rejection: `Waiting`, to resume; after repeated failures, to list. `410`: `Waiting`, to list |
//! | `Waiting` | a delay | `Watching`, `AwaitingTransfer` or `ProbingEpoch` |
//! | `ProbingEpoch` | a probe that distinguishes a lagging replica from another history | lower than the cached version: `Waiting`, to list in a new epoch. Not lower: `Waiting`, to list again. No response: `Waiting`, to probe again, or once per period to list |
//! | `Stopped` | nothing | |
//!
//! Each phase, and each activity alongside a watch, is a machine with its own data in its own file. A machine reads the
//! facts about the cache (`cache_state`), and returns its effects on the others (`effect`). Only this file passes
//! inputs to the machines, and only `apply` and `freshness_state` apply effects:
//!
//! | machine | role |
//! |---|---|
//! | `list` | a full transfer, streamed or in pages; `streamed_lists` decides between the two |
//! | `delta_list` | a relist that requests only the objects that differ; `delta_policy` decides for or against it |
//! | `epoch_probe` | the probe of the phase `ProbingEpoch` |
//! | `watch` | the watch, its end and its failures |
//! | `probe` | proofs of freshness alongside a watch, at the interval that the stream has shown (`bookmark_interval`) |
//! | `comparison` | comparisons of the cache with a list alongside a watch, as proofs and as audits |
//! | `watch_move` | the move of a watch to another connection before its own connection ends |
//! | `polling` | lists instead of watches that are rejected or always fail |
//! | `unidentified` | lists that resolve records without an identifiable object |
//!
//! Three backoffs determine the delays of `Waiting` (`backoffs`). The first counts failures, and any proof resets it.
//! The second counts lists that a failed watch required. Only a watch that stays open resets the second. The third
//! counts watches that ended within a second although they delivered a record. A delivered change, or a longer watch,
//! resets the third.

mod apply;
mod backoffs;
mod bookmark_interval;
mod cache_state;
mod cluster_match;
mod comparison;
mod delayed_action;
mod delta_list;
mod delta_policy;
mod diagnostic;
mod effect;
mod epoch_probe;
mod failure;
mod freshness_state;
mod input;
mod list;
mod list_hints;
mod list_plan;
mod output;
mod paging;
mod phase;
mod polling;
mod probe;
mod probe_schedule;
mod record_action;
mod request;
mod requester;
mod settings;
mod short_watch;
mod stream;
mod streamed_lists;
mod timer;
mod unidentified;
mod watch;
mod watch_move;

use std::sync::Arc;
use std::time::Duration;

use crate::fault_injection::inject;
use crate::freshness::{Evidence, FreshnessState, STOPPED};
use crate::keyset::KeySet;
use crate::record::{Identity, ListMeta};
use crate::time::Instant;
use crate::version::ResourceVersion;

use backoffs::Backoffs;
use cache_state::CacheState;
pub use cluster_match::ClusterMatch;
use comparison::Comparison;
use delayed_action::DelayedAction;
use delta_policy::DeltaPolicy;
pub use diagnostic::{Diagnostic, RelistCause, Severity};
use effect::Effects;
pub use failure::{Failure, FailureKind, MAX_RETRY_AFTER};
pub use input::{Differences, Input};
use list::ListRecord;
pub use list_hints::ListHints;
use list_plan::ListPlan;
pub use output::Output;
use phase::Phase;
use polling::Polling;
use probe::Probe;
pub use record_action::{Record, RecordAction};
pub use request::{EMPTY_FIELD_SELECTOR, ListFrom, ProbeMethod, Request, RequestId, encoded};
use requester::Requester;
pub use settings::ReflectorSettings;
use timer::Timer;
use unidentified::Unidentified;
use watch::{RecordMeaning, Watch};
use watch_move::WatchMove;

/// Reflector of one informer.
#[derive(Debug)]
pub struct Reflector {
    cache: CacheState,
    requester: Requester,
    backoffs: Backoffs,
    phase: Phase,
    probe: Probe,
    watch_move: WatchMove,
    comparison: Comparison,
    polling: Polling,
    unidentified: Unidentified,
    delta_policy: DeltaPolicy,
    /// Time at which the last list was requested. The list contains all earlier writes; later writes may be missing.
    list_requested: Instant,
    /// Number of applied records, for the injected fault that drops some.
    records: u64,
}

/// Cause of the doubt about a restored cache.
const RESTORED: &str = "restored from a checkpoint; the server has not confirmed it yet";

impl Reflector {
    /// Creates a reflector with an empty cache. `seed` determines its jitter.
    pub fn new(settings: ReflectorSettings, seed: u64) -> Self {
        let cache = CacheState::new(settings.bounded());
        let settings = &cache.settings;
        Self {
            requester: Requester::new(settings, seed),
            backoffs: Backoffs::new(settings),
            phase: Phase::Idle,
            probe: Probe::new(&cache),
            watch_move: WatchMove::new(settings),
            comparison: Comparison::default(),
            polling: Polling::new(settings),
            unidentified: Unidentified::default(),
            delta_policy: DeltaPolicy::new(settings),
            list_requested: Instant::ZERO,
            records: 0,
            cache,
        }
    }

    /// Returns the evidence from which the freshness can be computed at any later time.
    pub fn evidence(&self) -> &Evidence {
        &self.cache.evidence
    }

    /// Returns the version of the store.
    pub fn version(&self) -> Option<&ResourceVersion> {
        self.cache.reached_version()
    }

    /// Returns whether the store contains a first complete list.
    pub fn is_synced(&self) -> bool {
        self.cache.is_synced
    }

    /// Sets the hints that determine the method of the next list.
    pub fn set_list_hints(&mut self, hints: ListHints) {
        self.cache.streamed_lists.set_list_hints(hints);
        self.delta_policy.set_list_hints(hints);
    }

    /// Records the number of objects in which a committed list differed from the store.
    pub fn list_differed(&mut self, changes: usize) {
        self.delta_policy.changed(changes);
    }

    /// Sets the keys whose newest state could not be decoded, as the store reports them.
    pub fn set_tainted(&mut self, keys: KeySet) {
        self.cache.evidence.tainted = keys;
    }

    /// Requests pages until `until`, after another informer of the resource detected that streamed lists do not work.
    pub fn list_in_pages_until(&mut self, until: Instant) {
        self.cache.streamed_lists.list_in_pages_until(until);
    }

    /// Disables delta relists until `until`, after another informer of the resource detected that metadata are not
    /// available.
    pub fn list_in_full_until(&mut self, until: Instant) {
        self.delta_policy.full_until = Some(until);
    }

    /// Records that the store contains a checkpoint up to `version`. The cache is not fresh yet.
    /// [`Input::Restart`] must follow instead of a start.
    pub fn restore(&mut self, now: Instant, version: ResourceVersion) {
        self.cache.is_synced = true;
        self.cache.advance(now, version);
        self.probe.set_broken(now);
        self.cache.set_state(now, FreshnessState::Resuming, RESTORED);
    }

    /// Returns the time of the last progress of the running full transfer, or of its request.
    pub fn list_progress(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Listing(list) => Some(list.last_progress),
            Phase::DeltaListing(list) => Some(list.last_progress),
            _ => None,
        }
    }

    /// Returns the time of the last progress of the running list of versions, or of its request.
    pub fn comparison_progress(&self) -> Option<Instant> {
        self.comparison.progress_at(self.cache.settings.list_stall_timeout)
    }

    /// Returns the time of the next [`Input::Tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        let timers = Timer::OF_PHASES.into_iter().chain(Timer::OF_ACTIVITIES);
        timers.filter_map(|timer| self.due(timer)).min()
    }

    /// Processes `input` at `now` and returns the actions, in order.
    pub fn step(&mut self, now: Instant, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Start => {
                // A repeated `Start` must not drop a running list or watch.
                if self.is_idle() {
                    self.cache.evidence.since = now;
                    self.cache.evidence.reason = Arc::from("the first list is not complete");
                    self.queue(ListPlan::first(), &mut out);
                }
            }
            Input::Restart(cluster) => self.restart(now, cluster, &mut out),
            Input::Tick => self.tick(now, &mut out),
            Input::TransferGranted => self.start_list(now, &mut out),
            Input::Reachable => self.shorten_delay(now),
            Input::Opened(id) => self.opened(now, id, &mut out),
            Input::ListEnded(id, meta) => self.list_ended(now, id, meta, &mut out),
            Input::Probed(id, version, sent) => self.probed(now, id, version, sent, &mut out),
            Input::Compared(found) => {
                let (watch_context, requester) = (self.watch_context(), &mut self.requester);
                let effects = self.comparison.compared(now, &found, watch_context, &self.cache, requester);
                self.apply(now, effects, &mut out);
            }
            Input::Differs(id, identity) => {
                if let Phase::DeltaListing(list) = &mut self.phase {
                    let effects = list.differs(id, identity);
                    self.apply(now, effects, &mut out);
                }
            }
            Input::Unidentified(id, reason) => self.unidentified(now, id, reason, &mut out),
            Input::Contradicted(id, reason) => self.contradicted(now, id, reason, &mut out),
            Input::VersionsUnordered => {
                out.push(Output::Diagnostic(Diagnostic::VersionsUnordered));
                self.cache.make_opaque();
            }
            Input::ConnectionEnding(id) => {
                let is_watch = self.phase.is_watch(id);
                self.watch_move.request_move(now, id, is_watch, &self.cache, &mut self.requester);
            }
            Input::ConnectionHealthy(id) => {
                out.extend(self.watch_move.cancel_planned_move(id, self.phase.is_watch(id)));
            }
            Input::ResponsivenessChanged(id, responsive) => self.responsiveness_changed(now, id, responsive, &mut out),
            Input::Ended(id) => self.ended(now, id, &mut out),
            Input::Failed(id, failure) => self.failed(now, id, &failure, &mut out),
            Input::SeekProof => {
                self.hasten_poll(now);
                self.probe.schedule.await_proof(now);
                self.probe_tick(now, &mut out);
            }
            Input::Frozen => self.handle_freeze(now, &mut out),
            Input::Stop => self.stop(now, &mut out),
        }
        // Readers compute freshness between two inputs from the evidence alone, so every input
        // refreshes these values.
        let evidence = &mut self.cache.evidence;
        evidence.attempts = self.backoffs.attempts();
        evidence.max_fresh_age = self.cache.bookmark_interval.period() * 2;
        evidence.next_attempt = match &self.phase {
            Phase::Waiting { until, .. } => Some(*until),
            // Without bookmarks, only the response to a request can prove freshness again.
            Phase::Watching(_) if self.cache.bookmark_interval.is_without_bookmarks() => {
                Some(self.probe.schedule.due())
            }
            _ => None,
        };
        out
    }

    /// Processes a record of the stream `id` and returns the action for it.
    pub fn record(&mut self, now: Instant, id: RequestId, record: Record<'_>) -> RecordAction {
        // A `Status` inside a stream ends the stream like a failed response, for example `410`.
        if let Record::Error(status) = record {
            return RecordAction::Perform(self.step(now, Input::Failed(id, Failure::from_status(status, None))));
        }
        // Without a version, a record leaves no position to resume from.
        if let Record::Object(_, identity) = record
            && !identity.version.is_from_server()
        {
            return self.handle_unversioned(now, id, identity);
        }
        match &mut self.phase {
            Phase::Listing(list) if list.is_streamed && list.id == id => match list.record(now, record) {
                ListRecord::Object => RecordAction::Stage,
                ListRecord::Complete(version) => RecordAction::Perform(self.stream_complete(now, version)),
                ListRecord::PlainBookmark => self.list_in_pages(
                    now,
                    id,
                    "the server sent a bookmark before the end of the initial events".into(),
                ),
                ListRecord::Ignored => RecordAction::Skip,
            },
            // Both watches deliver while a successor opens. The version check drops records already
            // seen.
            Phase::Watching(watch) if watch.id == id || self.watch_move.is_successor(id) => {
                let record = watch.record(record, &self.cache);
                self.apply_watch_record(now, record)
            }
            _ => {
                let effects = self.probe.record(now, id, record, &self.cache);
                self.record_action(now, effects)
            }
        }
    }

    /// Processes a record of the watch.
    fn apply_watch_record(&mut self, now: Instant, record: RecordMeaning<'_>) -> RecordAction {
        match record {
            RecordMeaning::Change(version) => {
                self.advance_to(now, version.clone());
                // A watch that delivered a change resets the backoff for watches that end immediately.
                self.backoffs.immediate_ends.reset();
                self.delta_policy.changed(1);
                self.records += 1;
                if inject!(self.cache.faults(), DroppedRecords) && self.records.is_multiple_of(5) {
                    return RecordAction::Skip;
                }
                RecordAction::Apply
            }
            RecordMeaning::Repeated { reached_higher } => RecordAction::Older { reached_higher },
            RecordMeaning::Bookmark { version, is_new_version } => {
                self.cache.bookmark_interval.bookmark(now, version);
                if !is_new_version {
                    if inject!(self.cache.faults(), EqualBookmarks) {
                        self.record_proof(now, now);
                    }
                    return RecordAction::Skip;
                }
                if version.is_ordered() {
                    self.advance_to(now, version.clone());
                } else {
                    // This version differs from the cached one. It proves no freshness, since the order of opaque
                    // versions is unknown (C12).
                    self.cache.advance(now, version.clone());
                }
                RecordAction::Perform(vec![Output::Advance(version.clone())])
            }
            RecordMeaning::Ignored => RecordAction::Skip,
        }
    }

    /// Applies the effects of a record and returns its action.
    fn record_action(&mut self, now: Instant, effects: Effects) -> RecordAction {
        let mut out = Vec::new();
        self.apply(now, effects, &mut out);
        if out.is_empty() { RecordAction::Skip } else { RecordAction::Perform(out) }
    }

    /// Processes an entry of the list `id` and returns the action for it.
    pub fn list_item(&mut self, now: Instant, id: RequestId, identity: &Identity) -> RecordAction {
        match &mut self.phase {
            Phase::DeltaListing(list) if list.has_request(id) => match list.item(now, id, identity) {
                Ok(action) => action,
                Err(reason) => {
                    let effects = list.list_in_full(reason.into());
                    self.record_action(now, effects)
                }
            },
            Phase::Listing(list) if list.id == id => {
                list.item(now, &identity.version);
                RecordAction::Stage
            }
            _ if !self.comparison.is_running(id) => RecordAction::Skip,
            _ if !identity.version.is_from_server() => self.handle_unversioned(now, id, identity),
            _ => {
                self.comparison.progress(now, &self.cache);
                RecordAction::Compare
            }
        }
    }

    /// Handles an object without a version, if a version is needed to watch from or to compare with the cache.
    fn handle_unversioned(&mut self, now: Instant, id: RequestId, identity: &Identity) -> RecordAction {
        let reason: Arc<str> = format!("{} has no version from which a watch can start", identity.key).into();
        if matches!(&self.phase, Phase::Listing(list) if list.is_streamed && list.id == id) {
            // Without a version, the stream cannot continue as a watch after the list. Pages replace
            // the stream.
            return self.list_in_pages(now, id, reason);
        }
        RecordAction::Perform(self.step(now, Input::Unidentified(id, reason)))
    }

    /// Cancels the streamed list `id` and requests pages.
    fn list_in_pages(&mut self, now: Instant, id: RequestId, reason: Arc<str>) -> RecordAction {
        let mut out = vec![Output::Cancel(id)];
        self.fall_back(now, reason, &mut out);
        RecordAction::Perform(out)
    }

    // Timers.

    /// Returns the time at which `timer` expires; `None` if the timer is not set.
    fn due(&self, timer: Timer) -> Option<Instant> {
        let settings = &self.cache.settings;
        match (timer, &self.phase) {
            (Timer::Delay, Phase::Waiting { until, .. }) => Some(*until),
            (Timer::ListStall, Phase::Listing(list)) => Some(list.deadline(settings)),
            (Timer::DeltaList, Phase::DeltaListing(list)) => Some(list.due(settings)),
            (Timer::EpochProbe, Phase::ProbingEpoch(epoch_probe)) => Some(epoch_probe.deadline),
            (Timer::WatchHead, Phase::Watching(watch)) => watch.head_due(settings),
            (Timer::WatchHealth, Phase::Watching(watch))
                if self.backoffs.attempts() > 0 || self.polling.is_active() =>
            {
                watch.healthy_at(settings)
            }
            (Timer::UnidentifiedList, Phase::Watching(_)) => self.unidentified.due(),
            (Timer::Proof, _) => self.probe.due(self.phase.stream()),
            (Timer::WatchMove, _) => self.watch_move.due(self.phase.stream()),
            (Timer::Comparison, _) => self.comparison.due(self.phase.stream(), &self.cache),
            _ => None,
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        // All timers of the phase are checked first, since the handling of an expired timer may start another phase.
        let expired = Timer::OF_PHASES.map(|timer| self.due(timer).is_some_and(|due| now >= due));
        for (timer, _) in Timer::OF_PHASES.into_iter().zip(expired).filter(|(_, expired)| *expired) {
            self.phase_expired(now, timer, out);
        }
        // Each activity alongside the watch keeps its own timer.
        for timer in Timer::OF_ACTIVITIES {
            self.activity_expired(now, timer, out);
        }
    }

    fn phase_expired(&mut self, now: Instant, timer: Timer, out: &mut Vec<Output>) {
        let (settings, requester) = (&self.cache.settings, &mut self.requester);
        match (timer, &mut self.phase) {
            (Timer::Delay, Phase::Waiting { then, .. }) => match then.clone() {
                DelayedAction::Watch => self.watch(now, out),
                DelayedAction::List(plan) => self.queue(plan, out),
                DelayedAction::ProbeEpoch(plan) => self.probe_epoch(now, plan, out),
            },
            (Timer::ListStall, Phase::Listing(list)) => {
                let effects = list.stalled(now, settings);
                self.apply(now, effects, out);
            }
            (Timer::DeltaList, Phase::DeltaListing(list)) => {
                let effects = list.timer(now, settings, requester);
                self.apply(now, effects, out);
            }
            (Timer::EpochProbe, Phase::ProbingEpoch(epoch_probe)) => {
                out.push(Output::Cancel(epoch_probe.id));
                let failure = Failure::unreachable("no response to the probe in time");
                let effects = epoch_probe.failed(now, &failure, settings);
                self.apply(now, effects, out);
            }
            (Timer::WatchHead, Phase::Watching(watch)) => {
                out.push(Output::Cancel(watch.id));
                let seconds = settings.list_stall_timeout.as_secs();
                let failure = Failure::unreachable(format!("no response to a watch within {seconds} s"));
                self.watch_failed(now, &failure, out);
            }
            (Timer::WatchHealth, Phase::Watching(_)) => self.record_watch_health(now),
            (Timer::UnidentifiedList, Phase::Watching(_)) => {
                if let Some((plan, reason)) = self.unidentified.take_due_list(now, self.cache.version.as_ref()) {
                    self.leave_watch(out);
                    self.relist(now, plan, RelistCause::Unidentified, reason, out);
                }
            }
            _ => {}
        }
    }

    fn activity_expired(&mut self, now: Instant, timer: Timer, out: &mut Vec<Output>) {
        let (watch_context, requester) = (self.watch_context(), &mut self.requester);
        let effects = match timer {
            Timer::Proof => self.probe.tick(now, watch_context.stream, &self.cache, requester),
            Timer::WatchMove => {
                let is_replacing = self.probe.is_replacing();
                self.watch_move.tick(now, watch_context.stream, is_replacing, &self.cache, requester)
            }
            Timer::Comparison => self.comparison.tick(now, watch_context, &self.cache, requester),
            _ => Effects::default(),
        };
        self.apply(now, effects, out);
    }

    // Responses, by the role of the request.

    fn opened(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        match &mut self.phase {
            Phase::DeltaListing(list) if list.has_request(id) => list.opened(now),
            Phase::Listing(list) if list.id == id => list.opened(now),
            Phase::Watching(watch) if watch.id == id => {
                watch.opened(now);
                self.watch_opened(now, out);
            }
            _ if self.watch_move.is_successor(id) => self.watch_move.successor_opened(now, id),
            _ if self.comparison.is_running(id) => self.comparison.progress(now, &self.cache),
            _ => {
                let effects = self.probe.opened(now, id, &mut self.requester);
                self.apply(now, effects, out);
            }
        }
    }

    fn watch_opened(&mut self, now: Instant, out: &mut Vec<Output>) {
        let version = self.cache.version.clone();
        out.extend(version.map(|version| Output::Diagnostic(Diagnostic::Resumed { version })));
        if self.probe.is_replacing() {
            // The second watch was opened because the first watch did not respond. The first watch has responded now.
            out.extend(self.probe.cancel());
        }
        if self.cache.is_suspect() && self.unidentified.reason().is_none() {
            // A doubt started before this response, or during the wait for it. An open stream proves nothing (C10).
            self.probe.schedule.request_soon(now, &mut self.requester);
        } else {
            self.set_stream_open(now);
        }
    }

    /// Handles a complete page, or a complete response for an object.
    fn list_ended(&mut self, now: Instant, id: RequestId, meta: ListMeta, out: &mut Vec<Output>) {
        let (watch_context, requester) = (self.watch_context(), &mut self.requester);
        let effects = match &mut self.phase {
            Phase::Listing(list) if list.id == id => list.page_ended(now, meta, &self.cache.settings, requester),
            Phase::DeltaListing(list) if list.has_request(id) => list.ended(now, id, meta, &self.cache, requester),
            _ if self.comparison.is_running(id) => {
                self.comparison.page_ended(now, meta, watch_context, &self.cache, requester)
            }
            _ => return,
        };
        self.apply(now, effects, out);
    }

    /// Handles the response to a probe that was sent at `sent`.
    fn probed(
        &mut self,
        now: Instant,
        id: RequestId,
        version: Option<ResourceVersion>,
        sent: Instant,
        out: &mut Vec<Output>,
    ) {
        let effects = match &self.phase {
            Phase::ProbingEpoch(epoch_probe) if epoch_probe.id == id => epoch_probe.probed(version, sent, &self.cache),
            _ => self.probe.probed(now, id, version, sent, &self.cache, &mut self.requester),
        };
        self.apply(now, effects, out);
    }

    fn failed(&mut self, now: Instant, id: RequestId, failure: &Failure, out: &mut Vec<Output>) {
        let (watch_context, requester) = (self.watch_context(), &mut self.requester);
        let settings = &self.cache.settings;
        let effects = match &mut self.phase {
            Phase::Listing(list) if list.id == id => return self.list_failed(now, failure, out),
            Phase::DeltaListing(list) if list.has_request(id) => list.failed(now, id, failure, settings, requester),
            Phase::ProbingEpoch(epoch_probe) if epoch_probe.id == id => epoch_probe.failed(now, failure, settings),
            Phase::Watching(watch) if watch.id == id => {
                if !self.replace_by_successor(now, Some(failure), out) {
                    self.watch_failed(now, failure, out);
                }
                return;
            }
            _ if self.watch_move.is_successor(id) => {
                return self.watch_move.successor_failed(now, watch_context.stream, failure.retry_after, requester);
            }
            _ if self.comparison.is_running(id) => {
                self.comparison.failed(now, failure, watch_context, &self.cache, requester)
            }
            _ => self.probe.failed(now, id, failure, &self.cache, requester),
        };
        self.apply(now, effects, out);
    }

    /// Handles the regular end of a stream.
    fn ended(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        let (watch_context, requester) = (self.watch_context(), &mut self.requester);
        let settings = &self.cache.settings;
        let effects = match &mut self.phase {
            Phase::Listing(list) if list.id == id => list.truncated(now, settings),
            Phase::DeltaListing(list) if list.has_request(id) => {
                let failure = Failure::unreadable("the server streamed a metadata list");
                list.failed(now, id, &failure, settings, requester)
            }
            Phase::Watching(watch) if watch.id == id => {
                let effects = watch.ended(now, &self.cache);
                // An open or opening successor takes over without a delay.
                if self.replace_by_successor(now, None, out) {
                    return;
                }
                effects
            }
            _ if self.watch_move.is_successor(id) => {
                return self.watch_move.successor_failed(now, watch_context.stream, None, requester);
            }
            _ => {
                let may_compare = self.comparison.may_start(now, settings);
                self.probe.ended(now, id, may_compare, &self.cache, requester)
            }
        };
        self.apply(now, effects, out);
    }

    /// Replaces a watch that ended while its successor was being opened. Returns whether a successor exists.
    fn replace_by_successor(&mut self, now: Instant, failure: Option<&Failure>, out: &mut Vec<Output>) -> bool {
        let Some(successor) = self.watch_move.successor(failure, out) else { return false };
        self.record_watch_health(now);
        self.watch_move.complete(now, successor.id, &self.cache, &mut self.requester);
        // A successor without a response head receives the full timeout again.
        let watch = if successor.is_open { Watch::open } else { Watch::requested };
        self.phase = Phase::Watching(watch(successor.id, now));
        // An open successor leaves no gap, so freshness stays unchanged.
        if let Some(failure) = failure.filter(|_| !successor.is_open) {
            self.set_broken(now, failure);
        }
        true
    }

    /// Processes [`Input::ResponsivenessChanged`]. If the server does not respond on the connection of the watch, the watch is
    /// suspect immediately. If the server responds again, a proof is requested, since the watch may have missed changes
    /// in the meantime. A watch without a response head must receive the head first.
    fn responsiveness_changed(&mut self, now: Instant, id: RequestId, responsive: bool, out: &mut Vec<Output>) {
        let stream = self.phase.stream();
        if self.watch_move.is_successor(id) && !responsive {
            let effects = self.watch_move.successor_without_response(now, stream, &self.cache, &mut self.requester);
            return self.apply(now, effects, out);
        }
        let Some(watch) = stream.filter(|stream| stream.id == id) else { return };
        if !responsive {
            self.no_response(now, watch.is_open, out);
        } else if watch.is_open {
            self.seek_proof(now, out);
        }
    }

    // Records without an identifiable object.

    /// Returns whether `id` is the watch, its successor, or the short watch alongside it.
    fn is_read_from(&self, id: RequestId) -> bool {
        self.phase.stream().is_some_and(|watch| watch.id == id)
            || self.probe.is_short_watch(id)
            || self.watch_move.is_successor(id)
    }

    /// Processes [`Input::Unidentified`].
    fn unidentified(&mut self, now: Instant, id: RequestId, reason: Arc<str>, out: &mut Vec<Output>) {
        let watched = self.is_read_from(id);
        match &mut self.phase {
            Phase::Listing(list) if list.id == id => {
                list.last_progress = now;
                self.unidentified.record_list_entry(reason.clone());
            }
            Phase::DeltaListing(list) if list.has_request(id) => {
                let effects = list.list_in_full(reason);
                return self.apply(now, effects, out);
            }
            _ if self.comparison.is_running(id) => {
                out.push(Output::Cancel(id));
                let reason = format!("an entry of a version list cannot be identified: {reason}");
                let (watch_context, requester) = (self.watch_context(), &mut self.requester);
                let failure = Failure::unreadable(reason);
                let effects = self.comparison.failed(now, &failure, watch_context, &self.cache, requester);
                return self.apply(now, effects, out);
            }
            _ if watched => self.unidentified.record(now, self.cache.settings.period, reason.clone()),
            _ => return,
        }
        out.push(Output::Diagnostic(Diagnostic::Unidentified { reason }));
        // An entry of a list counts when the list is complete.
        if watched {
            self.cache.evidence.needs_list = true;
            self.set_stream_open(now);
        }
    }

    /// Processes [`Input::Contradicted`]: a list resolves the contradiction. At most one such list starts per period.
    fn contradicted(&mut self, now: Instant, id: RequestId, reason: Arc<str>, out: &mut Vec<Output>) {
        if !self.is_read_from(id) {
            return;
        }
        self.unidentified.record_contradiction(now, self.cache.settings.period, reason.clone());
        self.cache.evidence.needs_list = true;
        out.push(Output::Diagnostic(Diagnostic::Contradicted { reason }));
        self.set_stream_open(now);
    }

    // Start and stop.

    fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Starts from the checkpoint.
    fn restart(&mut self, now: Instant, cluster: ClusterMatch, out: &mut Vec<Output>) {
        if !self.is_idle() {
            return;
        }
        self.delta_policy.start(now);
        // A list would set the time of the first audit, but a list may never be needed.
        self.comparison.audit_later(now, None, &self.cache.settings, &mut self.requester);
        let (reason, state, plan) = match cluster {
            ClusterMatch::Same => return self.watch(now, out),
            ClusterMatch::Unsure(reason) => (reason, FreshnessState::Resuming, ListPlan::first()),
            ClusterMatch::Other(reason) => (reason, FreshnessState::Stale, ListPlan::new_epoch()),
        };
        out.push(Output::Diagnostic(Diagnostic::NotRestored { reason: reason.clone() }));
        self.cache.set_state(now, state, reason);
        self.queue(plan, out);
    }

    /// Shortens the current delay after the server has become reachable. The jitter prevents all informers from
    /// retrying at the same time.
    fn shorten_delay(&mut self, now: Instant) {
        let earliest = now + self.requester.between(Duration::ZERO, self.cache.settings.relist_jitter);
        if let Phase::Waiting { until, unreachable: true, .. } = &mut self.phase {
            *until = earliest.min(*until);
        }
    }

    fn stop(&mut self, now: Instant, out: &mut Vec<Output>) {
        match &self.phase {
            Phase::Stopped => return,
            Phase::AwaitingTransfer(_) => out.push(Output::ReleaseTransfer),
            Phase::Listing(list) => {
                out.extend([Output::Cancel(list.id), Output::DropStaging, Output::ReleaseTransfer]);
            }
            Phase::DeltaListing(list) => {
                let effects = list.abandon();
                self.apply(now, effects, out);
                out.push(Output::ReleaseTransfer);
            }
            Phase::ProbingEpoch(epoch_probe) => out.push(Output::Cancel(epoch_probe.id)),
            Phase::Watching(watch) => out.push(Output::Cancel(watch.id)),
            Phase::Idle | Phase::Waiting { .. } => {}
        }
        out.extend(self.watch_move.cancel());
        out.extend(self.probe.cancel());
        self.drop_comparison(now, out);
        self.phase = Phase::Stopped;
        self.cache.set_state(now, FreshnessState::Stopped, STOPPED);
    }
}
