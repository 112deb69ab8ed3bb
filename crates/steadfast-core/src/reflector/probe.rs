//! Proofs of freshness, requested alongside a watch that has been silent for a period (R2).
//!
//! A probe returns a version P that the server has reached. A proof follows in one of two ways: our watch reaches P, or
//! a short watch from our version shows no change up to P. Without either, the watch becomes suspect, and a second
//! watch is opened before the first is dropped. If the server sends no bookmarks, a short watch shows nothing, and a
//! list provides the proof (`comparing`).
//!
//! A real server often sends no bookmark in a short watch. It drops a bookmark that is not above the last event before
//! the start of the watch, even for an event outside the scope. The reflector therefore first checks that the
//! responding server has reached P ([`ProbeMethod`]). A short watch that then ends regularly has shown all changes up
//! to P. Our own stream has not confirmed P. Its later events are processed even if they are below P, and it resumes
//! from its own version.
//!
//! While a caller waits, the short watch lasts one second instead of four. Its end without an event is an equal proof
//! if the watch was open for half of that time. The server sends pending events as soon as a watch is open. Any other
//! end decides nothing, and a watch of four seconds follows.
//!
//! The response may belong to another informer's probe, sent before this informer requested a proof. It therefore
//! proves the state at the time of its sending. It is no sign of another history for an informer that has reached a
//! higher version since.

use std::time::Duration;

use super::request::{BRIEF_WATCH_SECONDS, SHORT_WATCH_SECONDS};
use super::{
    Diagnostic, Failure, FailureKind, LONGEST_RETRY_AFTER, Output, Phase, ProbeMethod, Record, Reflector, Request,
    RequestId, Verdict,
};
use crate::backoff::{Backoff, BackoffSettings};
use crate::fault_injection::InjectedFault;
use crate::freshness::Condition;
use crate::random::Random;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Activity alongside the watch.
#[derive(Clone, Debug)]
pub(super) enum ProbeState {
    /// No activity.
    Quiet,
    /// A probe is in flight.
    Probing {
        id: RequestId,
        /// Version of the cache when the probe was requested. Our watch may have advanced before the response.
        held: ResourceVersion,
        /// Time at which this version was reached.
        since: Instant,
        /// True if a caller waits for the proof.
        is_awaited: bool,
        deadline: Instant,
    },
    /// A short watch, which must show all changes up to the probe's version.
    Reaching {
        id: RequestId,
        target: ResourceVersion,
        /// Time at which the probe for the target was sent.
        sent: Instant,
        /// Newest event of the short watch, and its time.
        ahead: Option<(ResourceVersion, Instant)>,
        /// Set after any bookmark.
        heard: bool,
        /// Set after a bookmark that reached the target.
        complete: bool,
        /// True if the probe lasts only one second, for a waiting caller.
        brief: bool,
        /// Arrival time of the response's head.
        opened: Option<Instant>,
        deadline: Instant,
    },
    /// The short watch has ended, and our own watch must still deliver the changes that it showed.
    Following { target: ResourceVersion, sent: Instant, ahead: ResourceVersion, complete: bool, deadline: Instant },
    /// A second watch is being opened, to replace the suspect one.
    Replacing { id: RequestId, deadline: Instant },
}

/// Schedule of the requests for proofs.
#[derive(Debug)]
pub(super) struct ProbeSchedule {
    /// Time at which the silence exceeds the period.
    pub(super) at: Instant,
    /// Set if a caller needs a proof earlier.
    wanted: bool,
    /// Set if `wanted` comes from a caller and not from a comparison.
    is_awaited: bool,
    /// Earliest time of the next request, even if a caller needs a proof.
    earliest: Instant,
    /// Start of the last request.
    begun: Instant,
    /// Set if a period of silence had passed at that start.
    overdue: bool,
    /// Time at which a stream broke. A proof after it is required before the cache is fresh again (C10).
    broken: Option<Instant>,
    /// Method to determine whether a server has reached a version.
    reach: ProbeMethod,
    /// Version of a probe that the responding server has not reached, and the time at which the probe was sent.
    ///
    /// A server that lags is asked about this version again, without another probe (R5).
    behind: Option<(ResourceVersion, Instant)>,
    /// Version up to which a short watch has shown all changes, if our own watch has not reached it.
    pub(super) told: Option<ResourceVersion>,
    /// Backoff after requests without a proof.
    backoff: Backoff,
}

/// Cause of a suspect watch that is silent although its connection is alive.
const UNANSWERED: &str =
    "the server answers nothing on this connection, though something on the way may answer its pings";

/// Cause of a suspect watch without a response head on a connection that is alive.
const UNOPENED: &str = "the server answers nothing on this connection, not even the watch that was requested there, though \
                        something on the way may answer its pings";

/// Minimum time between the starts of two requests.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum time until a proof is requested after a broken watch is open again. The time is random, so that the first
/// informer's probe serves the other informers of the resource.
const MAX_PROOF_DELAY: Duration = Duration::from_secs(2);

/// Time for our own watch to deliver the changes that a short watch has shown. Also the minimum silence of a short
/// watch at its end, since the server may end it between two changes.
const SHORT_WATCH_GRACE: Duration = Duration::from_secs(1);

/// Part of a period: the maximum age of another informer's probe to be used here. It exceeds the jitter between
/// informers that became silent at the same time.
const SHARED_WITHIN: u32 = 12;

impl ProbeSchedule {
    pub(super) fn new(period: Duration) -> Self {
        let patience = BackoffSettings { first: PAUSE, second: PAUSE * 2, ceiling: period / 2 };
        let (at, earliest, begun) = (Instant::ZERO, Instant::ZERO, Instant::ZERO);
        Self {
            at,
            wanted: false,
            is_awaited: false,
            earliest,
            begun,
            overdue: false,
            broken: None,
            reach: ProbeMethod::Streamed,
            behind: None,
            told: None,
            backoff: Backoff::new(patience),
        }
    }

    /// Requests a proof for a caller, as soon as a stream exists.
    pub(super) fn want(&mut self, now: Instant) {
        self.wanted = true;
        self.earliest = self.earliest.max(now);
    }

    /// A caller waits for the proof.
    pub(super) fn await_proof(&mut self, now: Instant) {
        self.want(now);
        self.is_awaited = true;
    }

    pub(super) fn due(&self) -> Instant {
        if self.wanted { self.earliest.min(self.at) } else { self.at }
    }

    /// Resets the method. Another server may support a form that one server rejected, or the rejection may have been
    /// temporary.
    pub(super) fn forget_refusals(&mut self) {
        self.reach = ProbeMethod::Streamed;
    }

    /// Records a broken stream: earlier proofs do not cover the server's current state.
    pub(super) fn broken(&mut self, now: Instant) {
        self.broken = Some(now);
        self.behind = None;
    }

    fn begin(&mut self, now: Instant) {
        // Recorded before `at` changes: only a search after a full period of silence may lengthen
        // the interval.
        self.overdue = now >= self.at;
        (self.wanted, self.is_awaited) = (false, false);
        self.earliest = now + PAUSE;
        self.begun = now;
    }

    /// Schedules the next request after a proof of the state at `then`. Bookmarks may be late, so a twentieth of the
    /// period is added. Another twentieth is jitter, so that informers that became silent at the same time do not send
    /// requests at the same time.
    fn proven(&mut self, then: Instant, period: Duration, random: &mut Random) {
        self.backoff.reset();
        self.behind = None;
        // A proof of a state before the break does not cover the time after the break (C10).
        self.broken = self.broken.filter(|broken| then < *broken);
        self.at = then + random.between(period + period / 20, period + period / 10);
    }

    /// Schedules the next request after a missing proof, with a growing delay.
    pub(super) fn again(&mut self, now: Instant, random: &mut Random) {
        self.at = now + self.backoff.fail(random).max(PAUSE / 5);
    }

    /// Schedules the next request after the delay that the server requested.
    pub(super) fn not_for(&mut self, now: Instant, asked: Duration, random: &mut Random) {
        self.again(now, random);
        self.at = self.at.max(now + asked.min(LONGEST_RETRY_AFTER));
        self.earliest = self.at;
    }
}

impl Reflector {
    /// Records a proof that the cache has all changes up to `then`, which is also a sign of health (R6).
    pub(super) fn proven(&mut self, now: Instant, then: Instant) {
        // Proofs may arrive out of order. The newest state counts.
        let then = self.evidence.proven.map_or(then, |before| before.max(then));
        self.evidence.proven = Some(then);
        self.delta_policy.age(now);
        self.evidence.bound = self.bookmark_interval.period() * 2;
        self.backoff.reset();
        self.evidence.attempts = self.attempts();
        self.search.proven(then, self.bookmark_interval.period(), &mut self.random);
        // A proof alone does not end `Resuming`: without an open stream, later changes would be
        // missed.
        let streams = matches!(self.phase, Phase::Watching { opened: Some(_), .. });
        match self.evidence.condition {
            Condition::Suspect => self.set_streaming(now),
            Condition::Resuming if streams => self.set_streaming(now),
            _ => {}
        }
    }

    /// Returns whether a stream broke and no proof has arrived since.
    pub(super) fn is_unproven_since_a_break(&self) -> bool {
        self.search.broken.is_some() && !self.settings.rules.faults.is_injected(InjectedFault::UnprovenResume)
    }

    /// Schedules an early request for a proof after a new stream replaced a broken one.
    pub(super) fn hasten_proof(&mut self, now: Instant) {
        let soon = now + self.random.between(Duration::ZERO, MAX_PROOF_DELAY);
        // A schedule within the window stays. Only overdue and later searches move.
        if self.search.at <= now || self.search.at > soon {
            self.search.at = soon;
        }
    }

    /// Returns whether `id` is the watch, its successor, or the short watch alongside it.
    pub(super) fn is_read_from(&self, id: RequestId) -> bool {
        matches!(self.phase, Phase::Watching { id: watching, .. } if watching == id)
            || matches!(self.side, ProbeState::Reaching { id: reaching, .. } if reaching == id)
            || self.is_successor(id)
    }

    pub(super) fn side_wake(&self) -> Option<Instant> {
        match &self.side {
            ProbeState::Quiet => {
                matches!(self.phase, Phase::Watching { opened: Some(_), .. }).then_some(self.search.due())
            }
            ProbeState::Probing { deadline, .. }
            | ProbeState::Reaching { deadline, .. }
            | ProbeState::Following { deadline, .. }
            | ProbeState::Replacing { deadline, .. } => Some(*deadline),
        }
    }

    pub(super) fn side_tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.side_wake().is_none_or(|wake| now < wake) {
            return;
        }
        match self.side {
            ProbeState::Quiet if self.settings.rules.faults.is_injected(InjectedFault::NoSilenceProbe) => {
                self.search.begin(now);
                self.search.at = now + self.bookmark_interval.period();
            }
            ProbeState::Quiet => self.seek_proof(now, out),
            ProbeState::Probing { id, .. } => {
                out.push(Output::Cancel(id));
                self.unproven(now, "no proof of freshness: no response to a probe in time", out);
            }
            ProbeState::Reaching { id, .. } => {
                out.push(Output::Cancel(id));
                self.judge_short_watch(now, out);
            }
            ProbeState::Following { .. } => self.judge_short_watch(now, out),
            ProbeState::Replacing { id, .. } => {
                out.push(Output::Cancel(id));
                self.side = ProbeState::Quiet;
                self.search.again(now, &mut self.random);
            }
        }
    }

    /// Sends the probe.
    fn seek_proof(&mut self, now: Instant, out: &mut Vec<Output>) {
        let (wanted, is_awaited) = (self.search.wanted, self.search.is_awaited);
        self.search.begin(now);
        let Some(held) = self.reached().cloned().filter(ResourceVersion::is_ordered) else {
            self.seek_in_list(now, out);
            return;
        };
        // Early searches for callers are routine; only a full period of silence deserves a log
        // line.
        if self.evidence.proven.is_none_or(|proven| now.since(proven) >= self.bookmark_interval.period()) {
            out.push(Output::Diagnostic(Diagnostic::SeekingProof));
        }
        // A write may be newer than the old probe, and an old probe proves little.
        let behind =
            self.search.behind.take().filter(|(_, sent)| !wanted && now.since(*sent) < self.bookmark_interval.period());
        if let Some(found) = behind {
            return self.prove(now, found, is_awaited, out);
        }
        let since = match self.search.broken {
            // For a caller that waits for a write, a probe from before this request is no help.
            _ if wanted => now,
            // After a broken connection, neither a probe from before the break helps nor one from long before the new
            // connection.
            Some(broken) => broken.max(now - MAX_PROOF_DELAY * 2),
            None => now - self.bookmark_interval.period() / SHARED_WITHIN,
        };
        let id = self.next_id();
        let deadline = now + self.settings.probe_deadline;
        self.side = ProbeState::Probing { id, held, since: self.held_since, is_awaited, deadline };
        out.push(Output::Send(id, Request::Probe { since }));
    }

    /// Processes the response to the probe that was sent at `sent`.
    pub(super) fn side_probed(
        &mut self,
        now: Instant,
        id: RequestId,
        version: Option<ResourceVersion>,
        sent: Instant,
        out: &mut Vec<Output>,
    ) {
        let ProbeState::Probing { id: probing, held, since, is_awaited, .. } = &self.side else { return };
        let is_awaited = *is_awaited;
        if *probing != id {
            return;
        }
        // A probe from before the cached version was reached may legitimately return a lower
        // version.
        let older = *since <= sent && version.as_ref().is_some_and(|version| version.is_older_than(held));
        self.side = ProbeState::Quiet;
        let Some(target) = version.filter(|version| version.is_ordered() && self.version.is_some()) else {
            self.unproven(now, "no proof of freshness: a probe gave no version that can be compared", out);
            return;
        };
        if older {
            self.leave_watch(out);
            self.begin_epoch(now, target, out);
        } else {
            self.prove(now, (target, sent), is_awaited, out);
        }
    }

    /// Takes a probe's version as a proof if the cache has all changes up to it. Otherwise opens the short watch.
    fn prove(
        &mut self,
        now: Instant,
        (target, sent): (ResourceVersion, Instant),
        is_awaited: bool,
        out: &mut Vec<Output>,
    ) {
        if self.has_shown(&target) {
            self.proof_found(now, sent, out);
        } else if let Some(from) = self.version.clone() {
            self.watch_shortly(now, from, (target, sent), is_awaited, out);
        }
    }

    /// Returns whether the cache has all changes up to `version`, as our own watch or a short watch has shown.
    fn has_shown(&self, version: &ResourceVersion) -> bool {
        !self.is_news(version) || self.reached().is_some_and(|reached| !version.is_newer_than(reached))
    }

    /// Returns the version of our own watch, or a higher version shown by a short watch.
    pub(super) fn reached(&self) -> Option<&ResourceVersion> {
        // A short watch may have proven more than our own watch has delivered. Resumes still start
        // from `version`.
        match (&self.version, &self.search.told) {
            (Some(version), Some(told)) if told.is_newer_than(version) => Some(told),
            (version, _) => version.as_ref(),
        }
    }

    /// Opens the short watch, a brief one if a caller waits (`is_awaited`) and its end is a proof.
    fn watch_shortly(
        &mut self,
        now: Instant,
        from: ResourceVersion,
        (target, sent): (ResourceVersion, Instant),
        is_awaited: bool,
        out: &mut Vec<Output>,
    ) {
        // Streams that were rejected or cut here would fail for an empty list as well.
        if self.search.reach == ProbeMethod::Streamed && !self.streaming.is_to_work(now) {
            self.search.reach = ProbeMethod::Listed;
        }
        let id = self.next_id();
        let (reach, deadline) = (self.search.reach, now + self.settings.short_watch_deadline);
        // A brief watch rarely receives a bookmark, so its regular end must be trustworthy.
        let brief = is_awaited && self.trusts_the_end();
        let seconds = if brief { BRIEF_WATCH_SECONDS } else { SHORT_WATCH_SECONDS };
        out.push(Output::Send(id, Request::ShortWatch { from, target: target.clone(), reach, seconds }));
        let (ahead, heard, complete, opened) = (None, false, false, None);
        self.side = ProbeState::Reaching { id, target, sent, ahead, heard, complete, brief, opened, deadline };
    }

    /// Returns true if the regular end of a short watch is a proof.
    fn trusts_the_end(&self) -> bool {
        self.search.reach == ProbeMethod::Streamed
            || self.search.reach == ProbeMethod::Listed && self.bookmark_interval.has_bookmarks()
    }

    /// Processes a record of a stream alongside the watch.
    pub(super) fn side_record(&mut self, now: Instant, id: RequestId, record: Record<'_>) -> Verdict {
        let ProbeState::Reaching { id: reaching, target, ahead, heard, complete, .. } = &mut self.side else {
            return Verdict::Skip;
        };
        if *reaching != id {
            return Verdict::Skip;
        }
        if let Record::Bookmark(_) = record {
            *heard = true;
            self.bookmark_interval.hear();
        }
        match record {
            // The event is not applied: our own watch must deliver all events in order.
            Record::Object(_, identity) => *ahead = Some((identity.version.clone(), now)),
            Record::Bookmark(bookmark) if !bookmark.version.is_older_than(target) => {
                *complete = true;
                // Our own watch may deliver this change shortly. The end of the short watch decides.
                if ahead.clone().is_none_or(|(ahead, _)| !self.is_news(&ahead)) {
                    // Nothing is missing up to the target, so the short watch is no longer needed.
                    let mut out = vec![Output::Cancel(id)];
                    if self.is_news(&bookmark.version) {
                        self.hold(now, bookmark.version.clone());
                        out.push(Output::Advance(bookmark.version.clone()));
                    }
                    self.judge_short_watch(now, &mut out);
                    return Verdict::Do(out);
                }
            }
            Record::Bookmark(_) | Record::Error(_) => {}
        }
        Verdict::Skip
    }

    /// Checks a short watch that has ended. A proof requires that it reached the probe's version, and that our own
    /// watch has delivered all its changes.
    fn judge_short_watch(&mut self, now: Instant, out: &mut Vec<Output>) {
        let (target, sent, ahead, complete) = match &self.side {
            ProbeState::Reaching { target, sent, ahead, complete, .. } => {
                (target.clone(), *sent, ahead.clone().map(|(ahead, _)| ahead), *complete)
            }
            ProbeState::Following { target, sent, ahead, complete, .. } => {
                (target.clone(), *sent, Some(ahead.clone()), *complete)
            }
            _ => return,
        };
        if ahead.is_some_and(|ahead| self.is_news(&ahead)) {
            self.unproven(now, "another watch has events that ours has not", out);
        } else if !complete {
            self.unproven(now, "no proof of freshness: a short watch did not show all there is", out);
        } else {
            // Our own watch stays at its version. The proven version is kept separately.
            if !self.has_shown(&target) {
                out.push(Output::Advance(target.clone()));
                self.search.told = Some(target);
                self.held_since = now;
                self.evidence.version = self.reached().cloned();
            }
            self.proof_found(now, sent, out);
        }
    }

    /// Handles the regular end of a short watch. Our own watch may take a short time to deliver the last changes that
    /// it showed.
    fn short_watch_ended(&mut self, now: Instant, out: &mut Vec<Output>) {
        let trusted = self.trusts_the_end();
        let ProbeState::Reaching { target, sent, ahead, heard, complete, brief, opened, .. } = &mut self.side else {
            return;
        };
        let quiet = ahead.as_ref().is_none_or(|(_, at)| now.since(*at) >= SHORT_WATCH_GRACE);
        // A slow server may end a brief watch before sending anything.
        let lasted = !*brief || opened.is_some_and(|opened| now.since(opened) >= SHORT_WATCH_GRACE / 2);
        // A bookmark below the probe's version means that this watch has not reached it, even if the server reported
        // the version as reached.
        *complete |= trusted && quiet && lasted && !*heard;
        if *brief && !*complete {
            // One second was too short, for example since events came: that decides nothing.
            let found = (target.clone(), *sent);
            self.side = ProbeState::Quiet;
            return self.prove(now, found, false, out);
        }
        let (complete, heard) = (*complete, *heard);
        let shown = ahead.clone().map(|(ahead, _)| (target.clone(), *sent, ahead));
        // Old events that are repeated prove nothing.
        if let Some((target, sent, ahead)) = shown.filter(|(.., ahead)| self.is_news(ahead)) {
            // Our own watch has a short time to deliver the same events.
            self.side = ProbeState::Following { target, sent, ahead, complete, deadline: now + SHORT_WATCH_GRACE };
            return;
        }
        if !complete
            && !heard
            && (!self.bookmark_interval.has_bookmarks()
                || self.may_compare(now) && self.evidence.condition == Condition::Suspect)
        {
            // The short watch received no bookmark. If the server never sent one, it sends none in general. Otherwise
            // the cache is in doubt, and a list may end the doubt if another watch has not.
            self.side = ProbeState::Quiet;
            if !self.bookmark_interval.has_bookmarks() {
                self.bookmark_interval.without_bookmarks();
            }
            return self.seek_in_list(now, out);
        }
        self.judge_short_watch(now, out);
    }

    pub(super) fn side_opened(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        match &mut self.side {
            ProbeState::Replacing { id: replacing, .. } if *replacing == id => {}
            ProbeState::Reaching { id: reaching, opened, .. } if *reaching == id => {
                *opened = Some(now);
                return;
            }
            _ => return,
        }
        self.side = ProbeState::Quiet;
        // The suspect watch stayed open until its replacement responded.
        self.leave_watch(out);
        // A new stream proves nothing at its start. Its records do, or the request that follows shortly.
        self.phase = Phase::Watching { id, sent: now, opened: Some(now), proven: false };
        self.bookmark_interval.begin();
        self.watch_replaced(now);
        self.search.again(now, &mut self.random);
    }

    pub(super) fn side_failed(&mut self, now: Instant, id: RequestId, failure: &Failure, out: &mut Vec<Output>) {
        match &self.side {
            ProbeState::Reaching { id: side, target, sent, brief, .. }
                if *side == id && self.search.reach != ProbeMethod::Unknown && is_refusal(failure) =>
            {
                // The server rejected this form. The working form, if any, is remembered as long as it leads to proofs.
                let (found, is_awaited) = ((target.clone(), *sent), *brief);
                if self.search.reach == ProbeMethod::Streamed {
                    self.streaming.does_not_work_of_nothing(now + self.settings.pages_for);
                }
                self.search.reach = match self.search.reach {
                    ProbeMethod::Streamed => ProbeMethod::Listed,
                    ProbeMethod::Listed | ProbeMethod::Unknown => ProbeMethod::Unknown,
                };
                self.side = ProbeState::Quiet;
                if let Some(from) = self.version.clone() {
                    self.watch_shortly(now, from, found, is_awaited, out);
                }
            }
            ProbeState::Reaching { id: side, target, sent, .. } if *side == id && self.may_lag(now, failure) => {
                // The responding replica may only lag. The next search checks the same target
                // without a probe (R5).
                self.search.behind = Some((target.clone(), *sent));
                self.side = ProbeState::Quiet;
                self.search.again(now, &mut self.random);
            }
            ProbeState::Probing { id: side, .. } | ProbeState::Reaching { id: side, .. } if *side == id => {
                if let (FailureKind::Busy, Some(asked)) = (failure.kind, failure.retry_after) {
                    // A requested delay decides nothing. The bound on the age still applies.
                    self.side = ProbeState::Quiet;
                    self.search.not_for(now, asked, &mut self.random);
                } else {
                    self.unproven(now, &format!("no proof of freshness: {}", failure.why), out);
                }
            }
            ProbeState::Replacing { id: side, .. } if *side == id => {
                self.side = ProbeState::Quiet;
                self.search.again(now, &mut self.random);
                // An expired version concerns our own watch as well, so both end.
                if failure.kind == FailureKind::Expired {
                    self.leave_watch(out);
                    self.watch_failed(now, failure, out);
                }
            }
            _ => {}
        }
    }

    /// Returns whether the responding server may only lag behind the server of the probe, for up to a further period.
    fn may_lag(&self, now: Instant, failure: &Failure) -> bool {
        let bound = self.bookmark_interval.period() * 2;
        failure.kind == FailureKind::TooLarge && self.evidence.proven.is_some_and(|proven| now.since(proven) < bound)
    }

    pub(super) fn side_ended(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        if matches!(self.side, ProbeState::Reaching { id: side, .. } if side == id) {
            self.short_watch_ended(now, out);
        } else {
            let failure = Failure::unreachable("the server ended the stream");
            self.side_failed(now, id, &failure, out);
        }
    }

    /// Cancels the activity alongside the watch.
    pub(super) fn quiet_side(&mut self, out: &mut Vec<Output>) {
        match std::mem::replace(&mut self.side, ProbeState::Quiet) {
            ProbeState::Quiet | ProbeState::Following { .. } => {}
            ProbeState::Probing { id, .. } | ProbeState::Reaching { id, .. } | ProbeState::Replacing { id, .. } => {
                out.push(Output::Cancel(id));
            }
        }
    }

    /// Handles a proof of the state at `then` from the activity alongside the watch.
    pub(super) fn proof_found(&mut self, now: Instant, then: Instant, out: &mut Vec<Output>) {
        let late = self.settings.rules.faults.is_injected(InjectedFault::LateProof);
        // No bookmark arrived during the search, so the silence before it was correct.
        if self.search.overdue && self.evidence.proven.is_none_or(|proven| proven < self.search.begun) {
            self.bookmark_interval.was_silent_rightly();
        }
        self.side = ProbeState::Quiet;
        self.polling.forget_failures();
        let doubted = self.evidence.condition == Condition::Suspect;
        self.proven(now, if late { now } else { then });
        // Routine proofs stay silent; the end of a doubt is logged.
        if doubted && self.evidence.condition != Condition::Suspect {
            out.push(Output::Diagnostic(Diagnostic::Proven));
        }
    }

    /// Handles a missing proof. Unless our own watch delivered one concurrently, it becomes suspect, and another watch
    /// is opened on another connection.
    pub(super) fn unproven(&mut self, now: Instant, why: &str, out: &mut Vec<Output>) {
        self.side = ProbeState::Quiet;
        // The server rejected every method. The next search starts with the preferred method again.
        if self.search.reach == ProbeMethod::Unknown {
            self.search.forget_refusals();
        }
        // A bookmark of our own watch delivered the proof during the search.
        if self.evidence.proven.is_some_and(|proven| proven > self.search.begun) {
            return;
        }
        self.doubt(now, why, out);
    }

    /// Processes [`super::Input::Answering`]. If the server does not respond on the connection of the watch, the watch
    /// is suspect at once. If it responds again, a proof is requested, since the watch may have missed changes in the
    /// meantime. A watch without a response head must receive the head first.
    pub(super) fn answering(&mut self, now: Instant, id: RequestId, answering: bool, out: &mut Vec<Output>) {
        if self.is_successor(id) && !answering {
            return self.successor_unanswered(now, out);
        }
        let opened = match &self.phase {
            Phase::Watching { id: watching, opened, .. } if *watching == id => opened.is_some(),
            _ => return,
        };
        if answering {
            if opened {
                self.search.want(now);
                self.side_tick(now, out);
            }
        } else {
            self.unanswered(now, opened, out);
        }
    }

    /// Handles a server that does not respond on the connection of a watch. `opened` is set if the head of the watch's
    /// response arrived.
    pub(super) fn unanswered(&mut self, now: Instant, opened: bool, out: &mut Vec<Output>) {
        // A replacement is already opening. Its deadline limits the number of connections.
        if matches!(self.side, ProbeState::Replacing { .. }) {
            return;
        }
        self.quiet_side(out);
        let streams = matches!(self.phase, Phase::Watching { opened: Some(_), .. });
        if streams || matches!(self.evidence.condition, Condition::Streaming | Condition::Suspect) {
            self.doubt(now, if opened { UNANSWERED } else { UNOPENED }, out);
        } else {
            // A doubt already exists, and this is its current cause. The watch is treated as failed, although its
            // response may still arrive.
            self.set_broken(now, &Failure::unreachable(UNOPENED));
            out.push(Output::Diagnostic(Diagnostic::Suspect { why: UNOPENED.into() }));
            self.replace(now, out);
        }
    }

    /// Marks the watch as suspect and opens another watch alongside it.
    pub(super) fn doubt(&mut self, now: Instant, why: &str, out: &mut Vec<Output>) {
        if self.version.is_none() {
            return;
        }
        // A repeated doubt updates the reason without another log line.
        let news = self.evidence.condition != Condition::Suspect;
        self.set_condition(now, Condition::Suspect, why);
        if news {
            out.push(Output::Diagnostic(Diagnostic::Suspect { why: why.into() }));
        }
        self.replace(now, out);
    }

    /// Opens another watch that will replace the watch.
    fn replace(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Some(from) = self.version.clone() else { return };
        let id = self.next_id();
        // The deadline is the next proof. A shorter one would open ever more connections to a silent server.
        self.side = ProbeState::Replacing { id, deadline: now + self.settings.period / 2 };
        let timeout_seconds = self.watch_seconds();
        out.push(Output::Send(id, Request::Watch { from, timeout_seconds, elsewhere: true }));
    }
}

/// Returns whether the server rejects the request in this form.
fn is_refusal(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Invalid | FailureKind::Denied | FailureKind::Unreadable)
}
