//! Proofs of freshness, sought beside the watch when it has been silent for a period (R2).
//!
//! A probe tells a version P that the server has reached. Either our watch reaches P, or a short watch from our
//! version shows that nothing lies between. If neither comes, the watch is suspect, and a second one is opened before
//! the first is dropped. Where the server sends no bookmarks, a short watch shows nothing: a list does (`comparing`).
//!
//! A real server often sends no bookmark in a short watch: it drops one that is not above the last event that it had when
//! the watch began, those among them that were not this watch's. So the server that answers is first seen to have
//! reached P ([`Reach`]), and a short watch that then comes to its end in good order has shown all up to P. Our own
//! stream has not said so: what it tells later is heard, though it be below P, and it is resumed from where it is.
//!
//! While a caller waits, the short watch lasts one second and not four. An end without an event is the same proof, if the
//! watch was open for half of that time: the server sends what it has as soon as a watch is open. Everything else decides
//! nothing, and is followed by a watch of four seconds.
//!
//! A probe may be another informer's, sent before this one sought a proof. So it proves what was true when it was sent,
//! and is no sign of another history to who came to hold a higher version since.

use std::time::Duration;

use super::request::{BRIEF_WATCH_SECONDS, SHORT_WATCH_SECONDS};
use super::{
    Failure, FailureKind, LONGEST_RETRY_AFTER, Note, Output, Phase, Reach, Record, Reflector, Request, RequestId,
    Verdict,
};
use crate::backoff::{Backoff, BackoffSettings};
use crate::breach::Breach;
use crate::freshness::Condition;
use crate::random::Random;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// What runs beside the watch.
#[derive(Clone, Debug)]
pub(super) enum Side {
    /// Nothing.
    Quiet,
    /// A probe.
    Probing {
        id: RequestId,
        /// What was held when it was requested: our watch may run ahead of its answer.
        held: ResourceVersion,
        /// Since when that was held.
        since: Instant,
        /// Whether a caller waits for the proof.
        is_awaited: bool,
        deadline: Instant,
    },
    /// A short watch, which has to show all up to the probe's version.
    Reaching {
        id: RequestId,
        target: ResourceVersion,
        /// When the probe was sent that gave the target.
        sent: Instant,
        /// The newest event it showed, and when.
        ahead: Option<(ResourceVersion, Instant)>,
        /// Whether any bookmark came.
        heard: bool,
        /// Whether one came that reached the target.
        complete: bool,
        /// Whether it lasts one second only, for a caller that waits.
        brief: bool,
        /// When the head of its response came.
        opened: Option<Instant>,
        deadline: Instant,
    },
    /// A short watch is over, and our own watch is about to bring what that has shown.
    Following { target: ResourceVersion, sent: Instant, ahead: ResourceVersion, complete: bool, deadline: Instant },
    /// A second watch, to take the place of the suspect one.
    Replacing { id: RequestId, deadline: Instant },
}

/// When a proof is to be sought.
#[derive(Debug)]
pub(super) struct Search {
    /// When the silence is too long.
    pub(super) at: Instant,
    /// Whether someone cannot wait for that.
    wanted: bool,
    /// Whether that is a caller, and not a comparison.
    is_awaited: bool,
    /// Not before this, whoever wants it.
    earliest: Instant,
    /// When the last one began.
    begun: Instant,
    /// Whether a period had passed in silence when it began.
    overdue: bool,
    /// Since when a proof is needed before anything is fresh again: a stream broke then (C10).
    broken: Option<Instant>,
    /// How it is found out that a server has reached a version.
    reach: Reach,
    /// What a probe found and the responding server has not reached: the version, and when the probe was sent.
    ///
    /// A server that lags is asked for the same version again, without another probe (R5).
    behind: Option<(ResourceVersion, Instant)>,
    /// The version up to which a short watch has shown all, where our own watch has not come as far.
    pub(super) told: Option<ResourceVersion>,
    /// How patiently it is done again after no proof came.
    backoff: Backoff,
}

/// Why a watch is suspect that is silent, while its connection is not.
const UNANSWERED: &str =
    "the server answers nothing on this connection, though something on the way may answer its pings";

/// The same of a watch that waits for the head of its answer.
const UNOPENED: &str = "the server answers nothing on this connection, not even the watch that was requested there, though \
                        something on the way may answer its pings";

/// The time from one search to the next, at the least.
const PAUSE: Duration = Duration::from_secs(1);

/// Within this time after a watch is open again that broke, a proof is sought: not by all informers at once, so that the
/// probe of the first serves the others of its resource.
const SOON: Duration = Duration::from_secs(2);

/// How long our own watch may take to bring what a short watch has shown; and how long a short watch has to have been
/// silent at its end, for it may end in the middle of what there is.
const MOMENT: Duration = Duration::from_secs(1);

/// The part of a period that an answer to another informer's probe may be old, to be taken for one of our own: more
/// than the jitter with which informers seek that fell silent together.
const SHARED_WITHIN: u32 = 12;

impl Search {
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
            reach: Reach::Streamed,
            behind: None,
            told: None,
            backoff: Backoff::new(patience),
        }
    }

    /// Someone needs to know, as soon as there is a stream to prove.
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

    /// What a server took in no form may have been refused by another one, or for a while: it is found out anew.
    pub(super) fn forget_refusals(&mut self) {
        self.reach = Reach::Streamed;
    }

    /// A stream broke: what was proven before says nothing of what is at its other end now.
    pub(super) fn broken(&mut self, now: Instant) {
        self.broken = Some(now);
        self.behind = None;
    }

    fn begin(&mut self, now: Instant) {
        self.overdue = now >= self.at;
        (self.wanted, self.is_awaited) = (false, false);
        self.earliest = now + PAUSE;
        self.begun = now;
    }

    /// A proof came, of what was true at `then`. Bookmarks are not sent to the second: a twentieth of the period is left
    /// for them to come late, and another is jitter, so that informers that fell silent together do not ask together.
    fn proven(&mut self, then: Instant, period: Duration, random: &mut Random) {
        self.backoff.reset();
        self.behind = None;
        self.broken = self.broken.filter(|broken| then < *broken);
        self.at = then + random.between(period + period / 20, period + period / 10);
    }

    /// None came: again, with growing patience.
    pub(super) fn again(&mut self, now: Instant, random: &mut Random) {
        self.at = now + self.backoff.fail(random).max(PAUSE / 5);
    }

    /// The server asks for patience.
    pub(super) fn not_for(&mut self, now: Instant, asked: Duration, random: &mut Random) {
        self.again(now, random);
        self.at = self.at.max(now + asked.min(LONGEST_RETRY_AFTER));
        self.earliest = self.at;
    }
}

impl Reflector {
    /// There is proof that the cache has everything up to `then`, and that the server is in health (R6).
    pub(super) fn proven(&mut self, now: Instant, then: Instant) {
        let then = self.evidence.proven.map_or(then, |before| before.max(then));
        self.evidence.proven = Some(then);
        self.sparing.age(now);
        self.evidence.bound = self.rhythm.period() * 2;
        self.backoff.reset();
        self.evidence.attempts = self.attempts();
        self.search.proven(then, self.rhythm.period(), &mut self.random);
        let streams = matches!(self.phase, Phase::Watching { opened: Some(_), .. });
        match self.evidence.condition {
            Condition::Suspect => self.set_streaming(now),
            Condition::Resuming if streams => self.set_streaming(now),
            _ => {}
        }
    }

    /// Whether a stream broke, and nothing has been proven since.
    pub(super) fn is_unproven_since_a_break(&self) -> bool {
        self.search.broken.is_some() && !self.settings.rules.breaches.commit(Breach::UnprovenResume)
    }

    /// There is a stream again, and nothing is proven since the one before broke: a proof is sought at once.
    pub(super) fn hasten_proof(&mut self, now: Instant) {
        let soon = now + self.random.between(Duration::ZERO, SOON);
        if self.search.at <= now || self.search.at > soon {
            self.search.at = soon;
        }
    }

    /// Whether `id` is the watch, its successor, or the short watch beside it.
    pub(super) fn is_read_from(&self, id: RequestId) -> bool {
        matches!(self.phase, Phase::Watching { id: watching, .. } if watching == id)
            || matches!(self.side, Side::Reaching { id: reaching, .. } if reaching == id)
            || self.is_successor(id)
    }

    pub(super) fn side_wake(&self) -> Option<Instant> {
        match &self.side {
            Side::Quiet => matches!(self.phase, Phase::Watching { opened: Some(_), .. }).then_some(self.search.due()),
            Side::Probing { deadline, .. }
            | Side::Reaching { deadline, .. }
            | Side::Following { deadline, .. }
            | Side::Replacing { deadline, .. } => Some(*deadline),
        }
    }

    pub(super) fn side_tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.side_wake().is_none_or(|wake| now < wake) {
            return;
        }
        match self.side {
            Side::Quiet if self.settings.rules.breaches.commit(Breach::NoSearch) => {
                self.search.begin(now);
                self.search.at = now + self.rhythm.period();
            }
            Side::Quiet => self.seek_proof(now, out),
            Side::Probing { id, .. } => {
                out.push(Output::Cancel(id));
                self.unproven(now, "no proof of freshness: a probe was not answered in time", out);
            }
            Side::Reaching { id, .. } => {
                out.push(Output::Cancel(id));
                self.judge_short_watch(now, out);
            }
            Side::Following { .. } => self.judge_short_watch(now, out),
            Side::Replacing { id, .. } => {
                out.push(Output::Cancel(id));
                self.side = Side::Quiet;
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
        if self.evidence.proven.is_none_or(|proven| now.since(proven) >= self.rhythm.period()) {
            out.push(Output::Note(Note::SeekingProof));
        }
        // A write may be newer than the probe, and an old probe proves little.
        let behind = self.search.behind.take().filter(|(_, sent)| !wanted && now.since(*sent) < self.rhythm.period());
        if let Some(((target, sent), from)) = behind.zip(self.version.clone()) {
            if self.has_shown(&target) {
                self.proof_found(now, sent, out);
            } else {
                self.watch_shortly(now, from, (target, sent), is_awaited, out);
            }
            return;
        }
        let since = match self.search.broken {
            // Who waits for a write is not helped by a probe from before it.
            _ if wanted => now,
            // Nor who lost a connection by one from before that, or from long before another was there.
            Some(broken) => broken.max(now - SOON * 2),
            None => now - self.rhythm.period() / SHARED_WITHIN,
        };
        let id = self.next_id();
        let deadline = now + self.settings.probe_deadline;
        self.side = Side::Probing { id, held, since: self.held_since, is_awaited, deadline };
        out.push(Output::Send(id, Request::Probe { since }));
    }

    /// The probe that was sent at `sent` was answered.
    pub(super) fn side_probed(
        &mut self,
        now: Instant,
        id: RequestId,
        version: Option<ResourceVersion>,
        sent: Instant,
        out: &mut Vec<Output>,
    ) {
        let Side::Probing { id: probing, held, since, is_awaited, .. } = &self.side else { return };
        let is_awaited = *is_awaited;
        if *probing != id {
            return;
        }
        let older = *since <= sent && version.as_ref().is_some_and(|version| version.is_older_than(held));
        self.side = Side::Quiet;
        let (Some(from), Some(target)) = (self.version.clone(), version.filter(ResourceVersion::is_ordered)) else {
            self.unproven(now, "no proof of freshness: a probe gave no version that can be compared", out);
            return;
        };
        if older {
            self.leave_watch(out);
            self.begin_epoch(now, target, out);
        } else if self.has_shown(&target) {
            self.proof_found(now, sent, out);
        } else {
            self.watch_shortly(now, from, (target, sent), is_awaited, out);
        }
    }

    /// Whether all up to `version` is held, as our own watch or a short one has shown.
    fn has_shown(&self, version: &ResourceVersion) -> bool {
        !self.is_news(version) || self.reached().is_some_and(|reached| !version.is_newer_than(reached))
    }

    /// The version that our own watch has reached, or a short one that has shown more.
    pub(super) fn reached(&self) -> Option<&ResourceVersion> {
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
        if self.search.reach == Reach::Streamed && !self.streaming.is_to_work(now) {
            self.search.reach = Reach::Listed;
        }
        let id = self.next_id();
        let (reach, deadline) = (self.search.reach, now + self.settings.short_watch_deadline);
        let brief = is_awaited && self.trusts_the_end();
        let seconds = if brief { BRIEF_WATCH_SECONDS } else { SHORT_WATCH_SECONDS };
        out.push(Output::Send(id, Request::ShortWatch { from, target: target.clone(), reach, seconds }));
        let (ahead, heard, complete, opened) = (None, false, false, None);
        self.side = Side::Reaching { id, target, sent, ahead, heard, complete, brief, opened, deadline };
    }

    /// Whether the end of a short watch in good order is a proof.
    fn trusts_the_end(&self) -> bool {
        self.search.reach == Reach::Streamed || self.search.reach == Reach::Listed && self.rhythm.has_bookmarks()
    }

    /// A record of a stream beside the watch.
    pub(super) fn side_record(&mut self, now: Instant, id: RequestId, record: Record<'_>) -> Verdict {
        let Side::Reaching { id: reaching, target, ahead, heard, complete, .. } = &mut self.side else {
            return Verdict::Skip;
        };
        if *reaching != id {
            return Verdict::Skip;
        }
        if let Record::Bookmark(_) = record {
            *heard = true;
            self.rhythm.hear();
        }
        match record {
            Record::Object(_, identity) => *ahead = Some((identity.version.clone(), now)),
            Record::Bookmark(bookmark) if !bookmark.version.is_older_than(target) => {
                *complete = true;
                // Our own watch may bring in the next moment what this one has shown: that is judged at its end.
                if ahead.clone().is_none_or(|(ahead, _)| !self.is_news(&ahead)) {
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

    /// A short watch is over: a proof, if it came as far as the probe and our own watch has all that it showed.
    fn judge_short_watch(&mut self, now: Instant, out: &mut Vec<Output>) {
        let (target, sent, ahead, complete) = match &self.side {
            Side::Reaching { target, sent, ahead, complete, .. } => {
                (target.clone(), *sent, ahead.clone().map(|(ahead, _)| ahead), *complete)
            }
            Side::Following { target, sent, ahead, complete, .. } => {
                (target.clone(), *sent, Some(ahead.clone()), *complete)
            }
            _ => return,
        };
        if ahead.is_some_and(|ahead| self.is_news(&ahead)) {
            self.unproven(now, "another watch has events that ours has not", out);
        } else if !complete {
            self.unproven(now, "no proof of freshness: a short watch did not show all there is", out);
        } else {
            if !self.has_shown(&target) {
                out.push(Output::Advance(target.clone()));
                self.search.told = Some(target);
                self.held_since = now;
                self.evidence.version = self.reached().cloned();
            }
            self.proof_found(now, sent, out);
        }
    }

    /// A short watch came to its end in good order. Our own watch has a moment to bring what it has shown last.
    fn short_watch_ended(&mut self, now: Instant, out: &mut Vec<Output>) {
        let trusted = self.trusts_the_end();
        let Side::Reaching { target, sent, ahead, heard, complete, brief, opened, .. } = &mut self.side else { return };
        let quiet = ahead.as_ref().is_none_or(|(_, at)| now.since(*at) >= MOMENT);
        // A server that is slow to open a brief watch may end it before it has sent anything.
        let lasted = !*brief || opened.is_some_and(|opened| now.since(opened) >= MOMENT / 2);
        // A bookmark below the probe's version says that this watch is not there, whatever the server has said.
        *complete |= trusted && quiet && lasted && !*heard;
        if *brief && !*complete {
            // One second was too short, for example since events came: that decides nothing.
            let found = (target.clone(), *sent);
            self.side = Side::Quiet;
            return match self.version.clone() {
                Some(_) if self.has_shown(&found.0) => self.proof_found(now, found.1, out),
                Some(from) => self.watch_shortly(now, from, found, false, out),
                None => {}
            };
        }
        let (complete, heard) = (*complete, *heard);
        let shown = ahead.clone().map(|(ahead, _)| (target.clone(), *sent, ahead));
        // Old events that come again show nothing.
        if let Some((target, sent, ahead)) = shown.filter(|(.., ahead)| self.is_news(ahead)) {
            self.side = Side::Following { target, sent, ahead, complete, deadline: now + MOMENT };
            return;
        }
        if !complete
            && !heard
            && (!self.rhythm.has_bookmarks() || self.may_compare(now) && self.evidence.condition == Condition::Suspect)
        {
            // It was sent no bookmark. Where none ever was, there are none; else it is a doubt, and a list may end it if
            // another watch has not.
            self.side = Side::Quiet;
            if !self.rhythm.has_bookmarks() {
                self.rhythm.without_bookmarks();
            }
            return self.seek_in_list(now, out);
        }
        self.judge_short_watch(now, out);
    }

    pub(super) fn side_opened(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        match &mut self.side {
            Side::Replacing { id: replacing, .. } if *replacing == id => {}
            Side::Reaching { id: reaching, opened, .. } if *reaching == id => {
                *opened = Some(now);
                return;
            }
            _ => return,
        }
        self.side = Side::Quiet;
        self.leave_watch(out);
        // A new stream proves nothing by itself: what it brings does, or the search that begins soon.
        self.phase = Phase::Watching { id, sent: now, opened: Some(now), proven: false };
        self.rhythm.begin();
        self.watch_replaced(now);
        self.search.again(now, &mut self.random);
    }

    pub(super) fn side_failed(&mut self, now: Instant, id: RequestId, failure: &Failure, out: &mut Vec<Output>) {
        match &self.side {
            Side::Reaching { id: side, target, sent, brief, .. }
                if *side == id && self.search.reach != Reach::Unknown && is_refusal(failure) =>
            {
                // Not taken in this form. In which one it is, if in any, is remembered for as long as that brings proofs.
                let (found, is_awaited) = ((target.clone(), *sent), *brief);
                if self.search.reach == Reach::Streamed {
                    self.streaming.does_not_work_of_nothing(now + self.settings.pages_for);
                }
                self.search.reach = match self.search.reach {
                    Reach::Streamed => Reach::Listed,
                    Reach::Listed | Reach::Unknown => Reach::Unknown,
                };
                self.side = Side::Quiet;
                if let Some(from) = self.version.clone() {
                    self.watch_shortly(now, from, found, is_awaited, out);
                }
            }
            Side::Reaching { id: side, target, sent, .. } if *side == id && self.may_lag(now, failure) => {
                self.search.behind = Some((target.clone(), *sent));
                self.side = Side::Quiet;
                self.search.again(now, &mut self.random);
            }
            Side::Probing { id: side, .. } | Side::Reaching { id: side, .. } if *side == id => {
                if let (FailureKind::Busy, Some(asked)) = (failure.kind, failure.retry_after) {
                    // It asks for patience and so decides nothing; the bound on the age holds meanwhile.
                    self.side = Side::Quiet;
                    self.search.not_for(now, asked, &mut self.random);
                } else {
                    self.unproven(now, &format!("no proof of freshness: {}", failure.why), out);
                }
            }
            Side::Replacing { id: side, .. } if *side == id => {
                self.side = Side::Quiet;
                self.search.again(now, &mut self.random);
                if failure.kind == FailureKind::Expired {
                    self.leave_watch(out);
                    self.watch_failed(now, failure, out);
                }
            }
            _ => {}
        }
    }

    /// Whether the server that answers is only not as far as the one that answered the probe, within a further period.
    fn may_lag(&self, now: Instant, failure: &Failure) -> bool {
        let bound = self.rhythm.period() * 2;
        failure.kind == FailureKind::TooLarge && self.evidence.proven.is_some_and(|proven| now.since(proven) < bound)
    }

    pub(super) fn side_ended(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        if matches!(self.side, Side::Reaching { id: side, .. } if side == id) {
            self.short_watch_ended(now, out);
        } else {
            let failure = Failure::unreachable("the server ended the stream");
            self.side_failed(now, id, &failure, out);
        }
    }

    /// Ends what runs beside the watch.
    pub(super) fn quiet_side(&mut self, out: &mut Vec<Output>) {
        match std::mem::replace(&mut self.side, Side::Quiet) {
            Side::Quiet | Side::Following { .. } => {}
            Side::Probing { id, .. } | Side::Reaching { id, .. } | Side::Replacing { id, .. } => {
                out.push(Output::Cancel(id));
            }
        }
    }

    /// The search brought a proof of what was true at `then`.
    pub(super) fn proof_found(&mut self, now: Instant, then: Instant, out: &mut Vec<Output>) {
        let late = self.settings.rules.breaches.commit(Breach::LateProof);
        if self.search.overdue && self.evidence.proven.is_none_or(|proven| proven < self.search.begun) {
            self.rhythm.was_silent_rightly();
        }
        self.side = Side::Quiet;
        self.polling.forget_failures();
        let doubted = self.evidence.condition == Condition::Suspect;
        self.proven(now, if late { now } else { then });
        if doubted && self.evidence.condition != Condition::Suspect {
            out.push(Output::Note(Note::Proven));
        }
    }

    /// The search brought no proof. Unless our own watch did meanwhile, it is suspect, and another one is opened beside
    /// it, on another connection.
    pub(super) fn unproven(&mut self, now: Instant, why: &str, out: &mut Vec<Output>) {
        self.side = Side::Quiet;
        if self.search.reach == Reach::Unknown {
            self.search.forget_refusals();
        }
        if self.evidence.proven.is_some_and(|proven| proven > self.search.begun) {
            return;
        }
        self.doubt(now, why, out);
    }

    /// Takes in [`super::Input::Answering`]: where the server does not answer beside the watch, that is suspect at once;
    /// where it does again, a proof is sought, since the watch may have missed something meanwhile. One that waits for its
    /// head has that to come before.
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

    /// The server answers nothing where a watch is `opened`, or is to be.
    pub(super) fn unanswered(&mut self, now: Instant, opened: bool, out: &mut Vec<Output>) {
        if matches!(self.side, Side::Replacing { .. }) {
            return;
        }
        self.quiet_side(out);
        let streams = matches!(self.phase, Phase::Watching { opened: Some(_), .. });
        if streams || matches!(self.evidence.condition, Condition::Streaming | Condition::Suspect) {
            self.doubt(now, if opened { UNANSWERED } else { UNOPENED }, out);
        } else {
            // There is a doubt already, of which this is the cause now: as if the watch had failed, though it may come yet.
            self.set_broken(now, &Failure::unreachable(UNOPENED));
            out.push(Output::Note(Note::Suspect { why: UNOPENED.into() }));
            self.replace(now, out);
        }
    }

    /// The watch is suspect: another one is opened beside it.
    pub(super) fn doubt(&mut self, now: Instant, why: &str, out: &mut Vec<Output>) {
        if self.version.is_none() {
            return;
        }
        let news = self.evidence.condition != Condition::Suspect;
        self.set_condition(now, Condition::Suspect, why);
        if news {
            out.push(Output::Note(Note::Suspect { why: why.into() }));
        }
        self.replace(now, out);
    }

    /// Opens another watch beside the watch, to take its place.
    fn replace(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Some(from) = self.version.clone() else { return };
        let id = self.next_id();
        // Given up only when the next proof is due, or the silence would be met with ever more connections.
        self.side = Side::Replacing { id, deadline: now + self.settings.period / 2 };
        let timeout_seconds = self.watch_seconds();
        out.push(Output::Send(id, Request::Watch { from, timeout_seconds, elsewhere: true }));
    }
}

/// Whether the server does not take what it was asked in this form.
fn is_refusal(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Invalid | FailureKind::Denied | FailureKind::Unreadable)
}
