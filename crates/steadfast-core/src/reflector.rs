//! The reflector: every rule of listing, watching, resuming and relisting, as a state machine.
//!
//! It is given the time and what happened ([`Reflector::step`], and [`Reflector::record`] for the records of a
//! stream), and answers with what to do. It holds no object, no socket, no clock, no lock.
//!
//! | phase | what it waits for | what ends it, and what follows |
//! |---|---|---|
//! | `Idle` | [`Input::Start`], or [`Input::Restart`] with what was kept (`restored`) | `Queued` for the first list; `Watching` from the version that was kept |
//! | `Queued` | one of the few places for full transfers | `Listing`; `Sparing` after a `410` where little can have changed |
//! | `Listing` | the end of the pages, or of the initial events | complete: `Watching`, or `Waiting` for the next poll. Streams refused or stalled: `Queued`, for pages. Older than what is held, or too new a version: `Waiting`, then `Deciding`. Else `Waiting`, to list again, or to watch where the list took a watch's place |
//! | `Sparing` | metadata of all objects, and those objects that differ from what is held | complete: `Watching`, or `Waiting` for the next poll. Anything that is not as it should be: `Listing`. Failed: `Waiting`, to list |
//! | `Watching` | records, for as long as it lasts | regular end: `Watching` anew at once, or `Waiting` where it lived less than a second. Break, refusal, very short life: `Waiting`, to watch on; time after time, to list. `410`: `Waiting`, to list |
//! | `Waiting` | a moment | `Watching`, `Queued` or `Deciding` |
//! | `Deciding` | a probe that tells a lagging replica from another history | lower than what is held: `Waiting`, to list in a new epoch. Not lower: `Waiting`, to list again. No answer: `Waiting`, to ask again |
//! | `Stopped` | nothing | |
//!
//! What has changed where little can have is requested by itself (`sparing`). Whether lists are streamed or come in pages is
//! found out (`streaming`), and where watches are refused or always fail, lists take their place (`polling`).
//!
//! Beside a watch, a proof of freshness may be sought (`proof`), by the rhythm that the stream has shown (`rhythm`), and
//! what is held may be compared with a list (`comparing`): that never disturbs the watch. A watch whose connection is to
//! end moves to another before it does (`moving`).
//!
//! Two patiences grow while `Waiting`: one with failures, forgotten at any proof; one with lists that a watch made
//! necessary, forgotten only when a watch stays open.

mod comparing;
mod delta;
mod failure;
mod full;
mod input;
mod listing;
mod moving;
mod note;
mod outlook;
mod output;
mod phase;
mod polling;
mod proof;
mod request;
mod restored;
mod rhythm;
mod settings;
mod sparing;
mod streaming;
mod unnamed;
mod verdict;
mod watching;

use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::breach::Breach;
use crate::freshness::{Condition, Evidence, STOPPED};
use crate::keyset::KeySet;
use crate::random::Random;
use crate::record::Identity;
use crate::time::Instant;
use crate::version::ResourceVersion;

use comparing::{Comparing, WITHOUT_BOOKMARKS};
use delta::Sparing;
pub use failure::{Failure, FailureKind, LONGEST_RETRY_AFTER};
use full::Full;
pub use input::{Differences, Input};
use listing::Paging;
use moving::Moving;
pub use note::{Gravity, Note};
pub use outlook::Outlook;
pub use output::Output;
use phase::{Next, Phase};
use polling::Polling;
use proof::{Search, Side};
pub use request::{ListFrom, OF_NOTHING, Reach, Request, RequestId, encoded};
pub use restored::Begun;
use rhythm::Rhythm;
pub use settings::ReflectorSettings;
use streaming::Streaming;
use unnamed::Unnamed;
pub use verdict::{Record, Verdict};

/// The reflector of one informer.
#[derive(Debug)]
pub struct Reflector {
    settings: ReflectorSettings,
    random: Random,
    phase: Phase,
    side: Side,
    moving: Moving,
    /// The version that lists and the watch have brought, from which the watch is resumed.
    version: Option<ResourceVersion>,
    /// When it reached that.
    held_since: Instant,
    synced: bool,
    streaming: Streaming,
    sparing: Sparing,
    polling: Polling,
    backoff: Backoff,
    /// How patiently it is watched on after watches that ended at once, whatever they brought.
    brief: Backoff,
    /// The watch that began with the list that is held, or from its version right after: what it brings comes behind that.
    listed_by: Option<RequestId>,
    /// How patiently it is listed again after a watch could not go on. Only a stream that stays open resets it: a list
    /// whose watch ends in another `410` is no health, though the list is a proof (R5).
    relist_backoff: Backoff,
    rhythm: Rhythm,
    search: Search,
    comparing: Comparing,
    unnamed: Unnamed,
    paging: Paging,
    requests: u64,
    records: u64,
    evidence: Evidence,
}

/// Why a cache with a stream is doubted at last.
const UNPROVEN: &str = "no proof of freshness within two periods";

impl Reflector {
    /// A reflector that holds nothing yet; `seed` decides its jitter.
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
            breaches: settings.rules.breaches,
        };
        Self {
            random: Random::new(seed),
            phase: Phase::Idle,
            side: Side::Quiet,
            moving: Moving::new(&settings),
            version: None,
            held_since: Instant::ZERO,
            synced: false,
            streaming: Streaming::new(settings.streamed_lists),
            sparing: Sparing::new(&settings),
            polling: Polling::new(&settings),
            backoff: Backoff::new(settings.backoff),
            brief: Backoff::new(settings.backoff),
            listed_by: None,
            relist_backoff: Backoff::new(listing::relist_backoff(&settings)),
            rhythm: Rhythm::new(&settings),
            search: Search::new(settings.period),
            comparing: Comparing::default(),
            unnamed: Unnamed::default(),
            paging: Paging::default(),
            requests: 0,
            records: 0,
            evidence,
            settings,
        }
    }

    /// What the freshness can be computed from at any later moment.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The version that the store has reached.
    pub fn version(&self) -> Option<&ResourceVersion> {
        self.reached()
    }

    /// Whether a first complete list is in the store.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// What the next list is chosen by.
    pub fn expect(&mut self, outlook: Outlook) {
        self.streaming.expect(outlook);
        self.sparing.expect(outlook);
    }

    /// A list has taken the store's place, and differed from it in so many objects.
    pub fn found(&mut self, changes: usize) {
        self.sparing.changed(changes);
    }

    /// The keys whose newest state could not be decoded, as the store has them.
    pub fn set_tainted(&mut self, keys: KeySet) {
        self.evidence.tainted = keys;
    }

    /// When [`Input::Tick`] is due.
    pub fn wake_at(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Idle | Phase::Queued(_) | Phase::Stopped => None,
            Phase::Waiting { until, .. } => Some(*until),
            Phase::Listing { progress, streamed, sent, .. } => Some(self.list_patience(*progress, *streamed, *sent)),
            Phase::Sparing(delta) => Some(delta.due(self.settings.list_patience)),
            Phase::Deciding { deadline, .. } => Some(*deadline),
            Phase::Watching { sent, opened, .. } => self.watch_wake(*sent, *opened),
        };
        [phase, self.side_wake(), self.move_wake(), self.comparison_wake()].into_iter().flatten().min()
    }

    /// When the full transfer under way was last seen to make progress, or was requested.
    pub fn list_progress(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Listing { progress, .. } => Some(*progress),
            Phase::Sparing(delta) => Some(delta.progress),
            _ => None,
        }
    }

    /// The same of the list of versions under way.
    pub fn comparison_heard(&self) -> Option<Instant> {
        self.comparing.heard(self.settings.list_patience)
    }

    /// Takes in what happened at `now` and tells what to do.
    pub fn step(&mut self, now: Instant, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        match input {
            Input::Start => {
                if self.is_idle() {
                    self.evidence.since = now;
                    self.evidence.why = Arc::from("the first list is not complete");
                    self.queue(Full::first(), &mut out);
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
        self.evidence.attempts = self.attempts();
        self.evidence.bound = self.rhythm.period() * 2;
        self.evidence.next_attempt = match &self.phase {
            Phase::Waiting { until, .. } => Some(*until),
            Phase::Watching { .. } if self.rhythm.is_without_bookmarks() => Some(self.search.due()),
            _ => None,
        };
        out
    }

    /// Takes in a record of the stream `id` and tells what to do with it.
    pub fn record(&mut self, now: Instant, id: RequestId, record: Record<'_>) -> Verdict {
        if let Record::Error(status) = record {
            return Verdict::Do(self.step(now, Input::Failed(id, Failure::from_status(status, None))));
        }
        if let Record::Object(_, identity) = record
            && !identity.version.is_given()
        {
            return self.unversioned(now, id, identity);
        }
        match self.phase {
            Phase::Listing { id: listing, streamed: true, .. } if listing == id => self.listed(now, record),
            Phase::Watching { id: watching, .. } if watching == id => self.watched(now, record),
            _ if self.is_successor(id) => self.watched(now, record),
            _ => self.side_record(now, id, record),
        }
    }

    /// Takes in an entry of the list `id`.
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
                Next::List(full) => self.queue(full, out),
                Next::Decide(full) => self.decide(now, full, out),
            },
            Phase::Listing { id, progress, streamed, sent, .. }
                if now >= self.list_patience(*progress, *streamed, *sent) =>
            {
                self.list_stalled(now, *id, out);
            }
            Phase::Sparing(delta) if now >= delta.due(self.settings.list_patience) => self.delta_due(now, out),
            Phase::Deciding { id, deadline, .. } if now >= *deadline => {
                let id = *id;
                out.push(Output::Cancel(id));
                self.failed(now, id, &Failure::unreachable("the probe was not answered in time"), out);
            }
            Phase::Watching { .. } => self.watch_tick(now, out),
            _ => {}
        }
        self.side_tick(now, out);
        self.move_tick(now, out);
        self.comparison_tick(now, out);
    }

    /// A request of `id` failed; which one it was decides what follows.
    fn failed(&mut self, now: Instant, id: RequestId, failure: &Failure, out: &mut Vec<Output>) {
        match &self.phase {
            Phase::Listing { id: listing, .. } if *listing == id => self.list_failed(now, failure, out),
            Phase::Sparing(_) if self.is_sparing(id) => self.delta_failed(now, id, failure, out),
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

    /// A stream came to its end.
    fn ended(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        match &self.phase {
            Phase::Listing { id: listing, .. } if *listing == id => self.list_cut(now, out),
            Phase::Sparing(_) if self.is_sparing(id) => {
                self.delta_failed(now, id, &Failure::unreadable("a list of metadata came as a stream"), out);
            }
            Phase::Watching { id: watching, .. } if *watching == id => {
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
                (*opened, *progress) = (true, now);
            }
            Phase::Watching { id: watching, .. } if *watching == id => self.watch_opened(now, out),
            _ if successor => self.successor_opened(now, id),
            _ if compared => self.comparison_progress(now),
            _ => self.side_opened(now, id, out),
        }
    }

    /// The server answers again: what waits for that need not wait longer, but not all at once either.
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
            Phase::Sparing(delta) => {
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

    /// Waits as long as the server requested, or as the back-off says, then goes on to `then`.
    fn wait(&mut self, now: Instant, failure: &Failure, then: Next, out: &mut Vec<Output>) {
        // Only a server that did not answer at all can be said to be back later: one that accepts and closes at once
        // is met with patience, however often it is seen to accept (R6).
        let answered = match &self.phase {
            Phase::Watching { opened, .. } => opened.is_some(),
            Phase::Listing { opened, .. } => *opened,
            Phase::Sparing(delta) => delta.opened,
            _ => false,
        };
        let unreachable = failure.kind == FailureKind::Unreachable && !answered;
        let patience = self.backoff.fail(&mut self.random);
        let delay = self.delay(patience, failure.retry_after);
        let (why, attempts) = (failure.why.clone(), self.attempts());
        out.push(Output::Note(Note::Failed { why, attempts, retry_in: delay }));
        self.phase = Phase::Waiting { until: now + delay, then, unreachable };
    }

    /// How long to wait: our own patience, or longer where the server asks for it (R11).
    fn delay(&mut self, patience: Duration, asked: Option<Duration>) -> Duration {
        let Some(asked) = asked else { return patience };
        if self.settings.rules.breaches.commit(Breach::IgnoredPatience) {
            return patience;
        }
        let least = asked.min(LONGEST_RETRY_AFTER).max(patience);
        // A tenth on top, so that all who were told the same do not come at the same moment.
        self.random.between(least, least + least / 10)
    }

    /// The attempts since the last sign of health.
    fn attempts(&self) -> u32 {
        self.backoff.failures().saturating_add(self.relist_backoff.failures())
    }

    fn next_id(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// The store reaches `version`, and that is a proof of freshness (C10).
    fn reach(&mut self, now: Instant, version: ResourceVersion) {
        self.hold(now, version);
        if let Phase::Watching { proven, .. } = &mut self.phase {
            *proven = true;
        }
        self.polling.forget_failures();
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

    /// What is reported while no complete list or no stream is there.
    fn set_broken(&mut self, now: Instant, failure: &Failure) {
        self.search.broken(now);
        let condition = match failure.kind {
            FailureKind::Denied | FailureKind::Invalid | FailureKind::Full => Condition::Failed,
            FailureKind::TooLarge if self.synced => Condition::Stale,
            _ if self.synced => Condition::Resuming,
            _ => Condition::Starting,
        };
        self.set_condition(now, condition, failure.why.clone());
    }

    /// A stream is open: fresh by its last proof, unless something speaks against it. After one that broke that is a
    /// proof from since then (C10).
    fn set_streaming(&mut self, now: Instant) {
        match self.unnamed.why.clone() {
            Some(why) => self.set_condition(now, Condition::Suspect, why),
            None if self.is_unproven_since_a_break() => {
                let why = self.evidence.why.clone();
                self.set_condition(now, Condition::Resuming, why);
                self.hasten_proof(now);
            }
            None if self.rhythm.is_without_bookmarks() => {
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
