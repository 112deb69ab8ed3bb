//! Reflector: all rules of listing, watching, resuming and relisting, as a state machine.
//!
//! The caller passes the time and the input ([`Reflector::step`], and [`Reflector::record`] for the records of a
//! stream). The reflector returns the actions. It owns no object, no socket, no clock and no lock.
//!
//! | phase | waits for | ends with, and next phase |
//! |---|---|---|
//! | `Idle` | [`Input::Start`], or [`Input::Restart`] with a checkpoint (`restart`) | `Queued` for the first list; `Watching` from the version of the checkpoint |
//! | `Queued` | a permit for a full transfer; few run at once | `Listing`; `DeltaListing` after a `410` if few objects can have changed |
//! | `Listing` | the end of the pages, or of the initial events | complete: `Watching`, or `Waiting` for the next poll. Streams rejected or stalled: `Queued`, for pages. Older than the cache, or version too large: `Waiting`, then `Deciding`. Otherwise `Waiting`, to list again, or to watch if the list replaced a watch |
//! | `DeltaListing` | metadata of all objects, and the objects that differ from the cache | complete: `Watching`, or `Waiting` for the next poll. Unexpected content: `Listing`. Failed: `Waiting`, to list |
//! | `Watching` | records, until the stream ends | regular end: `Watching` again at once, or `Waiting` if the watch lasted less than a second. Break, rejection, very short watch: `Waiting`, to resume; after repeated failures, to list. `410`: `Waiting`, to list |
//! | `Waiting` | a delay | `Watching`, `Queued` or `Deciding` |
//! | `Deciding` | a probe that distinguishes a lagging replica from another history | lower than the cached version: `Waiting`, to list in a new epoch. Not lower: `Waiting`, to list again. No response: `Waiting`, to probe again |
//! | `Stopped` | nothing | |
//!
//! If few objects can have changed, only these objects are requested (`delta_policy`). The reflector detects whether the
//! server streams lists or only serves pages (`streaming`). Lists replace watches that are rejected or always fail
//! (`polling`).
//!
//! Two activities run alongside a watch and never disturb it. The reflector may seek a proof of freshness (`probe`), at
//! the interval that the stream has shown (`bookmark_interval`). It may compare the cache with a list (`comparing`). A watch moves
//! to another connection before its own connection ends (`moving`).
//!
//! Two backoffs grow in `Waiting`. The first counts failures; any proof resets it. The second counts lists that a
//! failed watch required; only a watch that stays open resets it.

mod bookmark_interval;
mod comparing;
mod delta;
mod delta_relist;
mod diagnostic;
mod failure;
mod input;
mod list_hints;
mod list_plan;
mod listing;
mod moving;
mod output;
mod phase;
mod polling;
mod probe;
mod request;
mod restart;
mod settings;
mod streaming;
mod unnamed;
mod verdict;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::fault_injection::InjectedFault;
use crate::freshness::{Condition, Evidence, STOPPED};
use crate::keyset::KeySet;
use crate::random::Random;
use crate::record::Identity;
use crate::time::Instant;
use crate::version::ResourceVersion;

use bookmark_interval::BookmarkInterval;
use comparing::{Comparing, WITHOUT_BOOKMARKS};
use delta::DeltaPolicy;
pub use diagnostic::{Diagnostic, Severity};
pub use failure::{Failure, FailureKind, LONGEST_RETRY_AFTER};
pub use input::{Differences, Input};
pub use list_hints::ListHints;
use list_plan::ListPlan;
use listing::Paging;
use moving::Moving;
pub use output::Output;
use phase::{Next, Phase};
use polling::Polling;
use probe::{ProbeSchedule, ProbeState};
pub use request::{ListFrom, OF_NOTHING, ProbeMethod, Request, RequestId, encoded};
pub use restart::ClusterMatch;
pub use settings::ReflectorSettings;
use streaming::Streaming;
use unnamed::Unnamed;
pub use verdict::{Record, Verdict};

/// Reflector of one informer.
#[derive(Debug)]
pub struct Reflector {
    settings: ReflectorSettings,
    random: Random,
    phase: Phase,
    side: ProbeState,
    moving: Moving,
    /// Version that lists and the watch have reached. The watch resumes from it.
    version: Option<ResourceVersion>,
    /// Time at which the version was reached.
    held_since: Instant,
    synced: bool,
    streaming: Streaming,
    delta_policy: DeltaPolicy,
    polling: Polling,
    backoff: Backoff,
    /// Backoff for watches that end immediately, independent of their records.
    brief: Backoff,
    /// Watch that started with the current list, or directly from the list's version: its records follow the list.
    listed_by: Option<RequestId>,
    /// Backoff for lists after a watch that could not resume. Only a stream that stays open resets it. A list whose
    /// watch ends in another `410` is no sign of health, although the list is a proof (R5).
    relist_backoff: Backoff,
    bookmark_interval: BookmarkInterval,
    search: ProbeSchedule,
    comparing: Comparing,
    unnamed: Unnamed,
    paging: Paging,
    requests: u64,
    records: u64,
    evidence: Evidence,
}

/// Final cause of a doubt about a cache with a stream.
const UNPROVEN: &str = "no proof of freshness within two periods";

impl Reflector {
    /// Creates a reflector with an empty cache. `seed` determines its jitter.
    pub fn new(settings: ReflectorSettings, seed: u64) -> Self {
        let settings = settings.bounded();
        let evidence = Evidence {
            condition: Condition::Starting,
            since: Instant::ZERO,
            why: Arc::from("not started"),
            version: None,
            attempts: 0,
            next_attempt: None,
            proven: None,
            polled: None,
            bound: settings.period * 2,
            patience: settings.stream_patience,
            tainted: KeySet::default(),
            unnamed: false,
            faults: settings.rules.faults,
        };
        Self {
            random: Random::new(seed),
            phase: Phase::Idle,
            side: ProbeState::Quiet,
            moving: Moving::new(&settings),
            version: None,
            held_since: Instant::ZERO,
            synced: false,
            streaming: Streaming::new(settings.streamed_lists),
            delta_policy: DeltaPolicy::new(&settings),
            polling: Polling::new(&settings),
            backoff: Backoff::new(settings.backoff),
            brief: Backoff::new(settings.backoff),
            listed_by: None,
            relist_backoff: Backoff::new(listing::relist_backoff(&settings)),
            bookmark_interval: BookmarkInterval::new(&settings),
            search: ProbeSchedule::new(settings.period),
            comparing: Comparing::default(),
            unnamed: Unnamed::default(),
            paging: Paging::default(),
            requests: 0,
            records: 0,
            evidence,
            settings,
        }
    }

    /// Returns the evidence from which the freshness can be computed at any later time.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Returns the version of the store.
    pub fn version(&self) -> Option<&ResourceVersion> {
        self.reached()
    }

    /// Returns whether the store contains a first complete list.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Sets the hints that determine the method of the next list.
    pub fn expect(&mut self, hints: ListHints) {
        self.streaming.expect(hints);
        self.delta_policy.expect(hints);
    }

    /// Records the number of objects in which a committed list differed from the store.
    pub fn found(&mut self, changes: usize) {
        self.delta_policy.changed(changes);
    }

    /// Sets the keys whose newest state could not be decoded, as the store reports them.
    pub fn set_tainted(&mut self, keys: KeySet) {
        self.evidence.tainted = keys;
    }

    /// Returns the time of the next [`Input::Tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Idle | Phase::Queued(_) | Phase::Stopped => None,
            Phase::Waiting { until, .. } => Some(*until),
            Phase::Listing { progress, streamed, sent, .. } => Some(self.list_patience(*progress, *streamed, *sent)),
            Phase::DeltaListing(delta) => Some(delta.due(self.settings.list_patience)),
            Phase::Deciding { deadline, .. } => Some(*deadline),
            Phase::Watching { sent, opened, .. } => self.watch_wake(*sent, *opened),
        };
        [phase, self.side_wake(), self.move_wake(), self.comparison_wake()].into_iter().flatten().min()
    }

    /// Returns the time of the last progress of the running full transfer, or of its request.
    pub fn list_progress(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Listing { progress, .. } => Some(*progress),
            Phase::DeltaListing(delta) => Some(delta.progress),
            _ => None,
        }
    }

    /// Returns the time of the last progress of the running list of versions, or of its request.
    pub fn comparison_heard(&self) -> Option<Instant> {
        self.comparing.heard(self.settings.list_patience)
    }

    /// Processes `input` at `now` and returns the actions, in order.
    pub fn step(&mut self, now: Instant, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Start => {
                // A repeated `Start` must not drop a running list or watch.
                if self.is_idle() {
                    self.evidence.since = now;
                    self.evidence.why = Arc::from("the first list is not complete");
                    self.queue(ListPlan::first(), &mut out);
                }
            }
            Input::Restart(begun) => self.restart(now, begun, &mut out),
            Input::Tick => self.tick(now, &mut out),
            Input::TransferGranted => self.begin_list(now, &mut out),
            Input::Reachable => self.hurry(now),
            Input::Opened(id) => self.opened(now, id, &mut out),
            Input::ListEnded(id, meta) => self.list_ended(now, id, meta, &mut out),
            Input::Probed(id, version, sent) => self.probed(now, id, version, sent, &mut out),
            Input::Judged(found) => self.comparison_judged(now, &found, &mut out),
            Input::Differs(id, identity) => self.differs(now, id, identity, &mut out),
            Input::Unidentified(id, why) => self.unidentified(now, id, why, &mut out),
            Input::Contradicted(id, why) => self.contradicted(now, id, why, &mut out),
            Input::Disordered => self.disordered(&mut out),
            Input::Unsettled(id) => self.unsettled(now, id),
            Input::Settled(id) => self.settled(id, &mut out),
            Input::Answering(id, answering) => self.answering(now, id, answering, &mut out),
            Input::Ended(id) => self.ended(now, id, &mut out),
            Input::Failed(id, failure) => self.failed(now, id, &failure, &mut out),
            Input::SeekProof => {
                self.hasten_poll(now);
                self.search.await_proof(now);
                self.side_tick(now, &mut out);
            }
            Input::Stop => self.stop(now, &mut out),
        }
        // Readers compute freshness between two inputs from the evidence alone, so every input
        // refreshes these values.
        self.evidence.attempts = self.attempts();
        self.evidence.bound = self.bookmark_interval.period() * 2;
        self.evidence.next_attempt = match &self.phase {
            Phase::Waiting { until, .. } => Some(*until),
            // Without bookmarks, only the search can extend the proof.
            Phase::Watching { .. } if self.bookmark_interval.is_without_bookmarks() => Some(self.search.due()),
            _ => None,
        };
        out
    }

    /// Processes a record of the stream `id` and returns the action for it.
    pub fn record(&mut self, now: Instant, id: RequestId, record: Record<'_>) -> Verdict {
        // A `Status` inside a stream ends the stream like a failed response, for example `410`.
        if let Record::Error(status) = record {
            return Verdict::Do(self.step(now, Input::Failed(id, Failure::from_status(status, None))));
        }
        // Without a version, a record leaves no position to resume from.
        if let Record::Object(_, identity) = record
            && !identity.version.is_given()
        {
            return self.unversioned(now, id, identity);
        }
        match self.phase {
            Phase::Listing { id: listing, streamed: true, .. } if listing == id => self.listed(now, record),
            Phase::Watching { id: watching, .. } if watching == id => self.watched(now, record),
            // Both watches deliver while a successor opens. The version check drops records already
            // seen.
            _ if self.is_successor(id) => self.watched(now, record),
            _ => self.side_record(now, id, record),
        }
    }

    /// Processes an entry of the list `id` and returns the action for it.
    pub fn list_item(&mut self, now: Instant, id: RequestId, identity: &Identity) -> Verdict {
        let (compared, spared) = (self.is_comparing(id), self.is_sparing(id));
        match &mut self.phase {
            _ if spared => self.delta_item(now, id, identity),
            Phase::Listing { id: listing, progress, .. } if *listing == id => {
                *progress = now;
                self.paging.brings(&identity.version);
                Verdict::Stage
            }
            _ if compared && !identity.version.is_given() => self.unversioned(now, id, identity),
            _ if compared => {
                self.comparison_progress(now);
                Verdict::Compare
            }
            _ => Verdict::Skip,
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        match &self.phase {
            Phase::Waiting { until, then, .. } if now >= *until => match then.clone() {
                Next::Watch => self.watch(now, out),
                Next::List(plan) => self.queue(plan, out),
                Next::Decide(plan) => self.decide(now, plan, out),
            },
            Phase::Listing { id, progress, streamed, sent, .. }
                if now >= self.list_patience(*progress, *streamed, *sent) =>
            {
                self.list_stalled(now, *id, out);
            }
            Phase::DeltaListing(delta) if now >= delta.due(self.settings.list_patience) => self.delta_due(now, out),
            Phase::Deciding { id, deadline, .. } if now >= *deadline => {
                let id = *id;
                out.push(Output::Cancel(id));
                self.failed(now, id, &Failure::unreachable("no response to the probe in time"), out);
            }
            Phase::Watching { .. } => self.watch_tick(now, out),
            _ => {}
        }
        // Each activity alongside the watch keeps its own timer. The outer wake time covers the
        // earliest of all.
        self.side_tick(now, out);
        self.move_tick(now, out);
        self.comparison_tick(now, out);
    }

    /// Handles the failure of request `id`, by the role of the request.
    fn failed(&mut self, now: Instant, id: RequestId, failure: &Failure, out: &mut Vec<Output>) {
        match &self.phase {
            Phase::Listing { id: listing, .. } if *listing == id => self.list_failed(now, failure, out),
            Phase::DeltaListing(_) if self.is_sparing(id) => self.delta_failed(now, id, failure, out),
            Phase::Deciding { id: deciding, .. } if *deciding == id => self.decision_failed(now, failure, out),
            Phase::Watching { id: watching, .. } if *watching == id => {
                if !self.succeed(now, Some(failure), out) {
                    self.watch_failed(now, failure, out);
                }
            }
            _ if self.is_successor(id) => self.successor_failed(now, failure),
            _ if self.is_comparing(id) => self.comparison_failed(now, failure, out),
            _ => self.side_failed(now, id, failure, out),
        }
    }

    /// Handles the regular end of a stream.
    fn ended(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        match &self.phase {
            Phase::Listing { id: listing, .. } if *listing == id => self.list_cut(now, out),
            Phase::DeltaListing(_) if self.is_sparing(id) => {
                self.delta_failed(now, id, &Failure::unreadable("a list of metadata came as a stream"), out);
            }
            Phase::Watching { id: watching, .. } if *watching == id => {
                // An open or opening successor takes over without a delay.
                if !self.succeed(now, None, out) {
                    self.watch_ended(now, out);
                }
            }
            _ if self.is_successor(id) => {
                self.successor_failed(now, &Failure::unreachable("the server ended the stream"));
            }
            _ => self.side_ended(now, id, out),
        }
    }

    fn opened(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        let (successor, compared) = (self.is_successor(id), self.is_comparing(id));
        let spared = self.is_sparing(id);
        match &mut self.phase {
            _ if spared => self.delta_opened(now),
            Phase::Listing { id: listing, opened, progress, .. } if *listing == id => {
                // The response head counts as progress, so the stall timer restarts.
                (*opened, *progress) = (true, now);
            }
            Phase::Watching { id: watching, .. } if *watching == id => self.watch_opened(now, out),
            _ if successor => self.successor_opened(now, id),
            _ if compared => self.comparison_progress(now),
            _ => self.side_opened(now, id, out),
        }
    }

    /// Shortens the current delay after the server has become reachable. The jitter prevents all informers from
    /// retrying at once.
    fn hurry(&mut self, now: Instant) {
        let soon = now + self.random.between(Duration::ZERO, self.settings.relist_jitter);
        if let Phase::Waiting { until, unreachable: true, .. } = &mut self.phase {
            *until = soon.min(*until);
        }
    }

    fn stop(&mut self, now: Instant, out: &mut Vec<Output>) {
        match &self.phase {
            Phase::Stopped => return,
            Phase::Queued(_) => out.push(Output::ReleaseTransfer),
            Phase::Listing { id, .. } => {
                out.extend([Output::Cancel(*id), Output::DropStaging, Output::ReleaseTransfer]);
            }
            Phase::DeltaListing(delta) => {
                delta.abandon(out);
                out.push(Output::ReleaseTransfer);
            }
            Phase::Deciding { id, .. } | Phase::Watching { id, .. } => out.push(Output::Cancel(*id)),
            Phase::Idle | Phase::Waiting { .. } => {}
        }
        self.stay(out);
        self.quiet_side(out);
        self.drop_comparison(out);
        self.phase = Phase::Stopped;
        self.set_condition(now, Condition::Stopped, STOPPED);
    }

    /// Waits for the delay that the server requested, or for the backoff. Continues with `then`.
    fn wait(&mut self, now: Instant, failure: &Failure, then: Next, out: &mut Vec<Output>) {
        // Only a server that did not respond at all can be reported as reachable later. A server that accepts and
        // closes connections immediately keeps the full backoff, however often a connection succeeds (R6).
        let answered = match &self.phase {
            Phase::Watching { opened, .. } => opened.is_some(),
            Phase::Listing { opened, .. } => *opened,
            Phase::DeltaListing(delta) => delta.opened,
            _ => false,
        };
        let unreachable = failure.kind == FailureKind::Unreachable && !answered;
        let patience = self.backoff.fail(&mut self.random);
        let delay = self.delay(patience, failure.retry_after);
        let (why, attempts) = (failure.why.clone(), self.attempts());
        out.push(Output::Diagnostic(Diagnostic::Failed { why, attempts, retry_in: delay }));
        self.phase = Phase::Waiting { until: now + delay, then, unreachable };
    }

    /// Computes a delay: the backoff, or the server's requested delay if it is longer (R11).
    fn delay(&mut self, patience: Duration, asked: Option<Duration>) -> Duration {
        let Some(asked) = asked else { return patience };
        if self.settings.rules.faults.is_injected(InjectedFault::IgnoredRetryAfter) {
            return patience;
        }
        // The delay of the server is a minimum. Our own backoff still applies.
        let least = asked.min(LONGEST_RETRY_AFTER).max(patience);
        // Up to a tenth is added. Clients that received the same delay would otherwise retry at the same time.
        self.random.between(least, least + least / 10)
    }

    /// Returns the number of attempts since the last sign of health.
    fn attempts(&self) -> u32 {
        self.backoff.failures().saturating_add(self.relist_backoff.failures())
    }

    fn next_id(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// Advances to `version`, which is a proof of freshness (C10).
    fn reach(&mut self, now: Instant, version: ResourceVersion) {
        self.hold(now, version);
        // A record proves that the watch works, so a short lifetime is no failure.
        if let Phase::Watching { proven, .. } = &mut self.phase {
            *proven = true;
        }
        self.polling.forget_failures();
        // A working watch replaces the polls.
        if self.polling.is_on() {
            self.end_polling();
            self.set_streaming(now);
        }
        self.proven(now, now);
    }

    fn hold(&mut self, now: Instant, version: ResourceVersion) {
        self.version = Some(version);
        self.held_since = now;
        self.evidence.version = self.reached().cloned();
    }

    fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Sets the condition while no complete list or no stream exists.
    fn set_broken(&mut self, now: Instant, failure: &Failure) {
        self.search.broken(now);
        let condition = match failure.kind {
            // These failures rarely end without a change by an operator.
            FailureKind::Denied | FailureKind::Invalid | FailureKind::Full => Condition::Failed,
            // Without a first list, no cached state can be stale.
            FailureKind::TooLarge if self.synced => Condition::Stale,
            _ if self.synced => Condition::Resuming,
            _ => Condition::Starting,
        };
        self.set_condition(now, condition, failure.why.clone());
    }

    /// Sets the condition after a stream was opened: fresh by the last proof, unless a symptom exists. After a broken
    /// stream, only a proof after the break counts (C10).
    fn set_streaming(&mut self, now: Instant) {
        match self.unnamed.why.clone() {
            // An unidentified record keeps the whole cache in doubt, even on an open stream (R8).
            Some(why) => self.set_condition(now, Condition::Suspect, why),
            None if self.is_unproven_since_a_break() => {
                let why = self.evidence.why.clone();
                self.set_condition(now, Condition::Resuming, why);
                self.hasten_proof(now);
            }
            None if self.bookmark_interval.is_without_bookmarks() => {
                self.set_condition(now, Condition::Streaming, WITHOUT_BOOKMARKS);
            }
            None => {
                let polled = self.evidence.polled.as_ref().map(|polled| Arc::from(polled.to_string()));
                self.set_condition(now, Condition::Streaming, polled.unwrap_or_else(|| Arc::from(UNPROVEN)));
            }
        }
    }

    fn set_condition(&mut self, now: Instant, condition: Condition, why: impl Into<Arc<str>>) {
        self.evidence.turn(now, condition, why);
    }
}
