//! Proofs of freshness, sought beside the watch when it has been silent for a period (R2).
//!
//! A probe tells a version P that the server has reached. Either our watch reaches P, or a short watch from our
//! version shows that nothing lies between. If neither comes, the watch is suspect, and a second one is opened before
//! the first is dropped.

use std::time::Duration;

use super::{Failure, FailureKind, Note, Output, Phase, Record, Reflector, Request, RequestId, Verdict};
use crate::backoff::BackoffSettings;
use crate::freshness::Condition;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// What runs beside the watch.
#[derive(Clone, Debug)]
pub(super) enum Side {
    /// Nothing.
    Quiet,
    /// A probe.
    Probing { id: RequestId, deadline: Instant },
    /// A short watch, whose bookmark has to reach the probe's version; `ahead` is the newest event it showed.
    Reaching { id: RequestId, target: ResourceVersion, ahead: Option<ResourceVersion>, deadline: Instant },
    /// A second watch, to take the place of the suspect one.
    Replacing { id: RequestId, deadline: Instant },
}

/// The patience between two searches for a proof.
pub(super) fn seek_backoff(period: Duration) -> BackoffSettings {
    BackoffSettings { first: Duration::from_secs(1), second: Duration::from_secs(2), ceiling: period / 2 }
}

impl Reflector {
    /// There is proof that the cache has everything up to now.
    pub(super) fn proven(&mut self, now: Instant) {
        self.standing.proven = Some(now);
        self.seek_backoff.reset();
        // A tenth of jitter, so that informers that fell silent together do not ask together.
        let period = self.settings.period;
        self.seek_at = now + self.random.between(period, period + period / 10);
        if self.standing.condition == Condition::Suspect {
            self.set_streaming(now);
        }
    }

    pub(super) fn side_wake(&self) -> Option<Instant> {
        match &self.side {
            Side::Quiet => matches!(self.phase, Phase::Watching { opened: Some(_), .. }).then_some(self.seek_at),
            Side::Probing { deadline, .. } | Side::Reaching { deadline, .. } | Side::Replacing { deadline, .. } => {
                Some(*deadline)
            }
        }
    }

    pub(super) fn side_tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        match self.side.clone() {
            Side::Quiet if now >= self.seek_at && matches!(self.phase, Phase::Watching { opened: Some(_), .. }) => {
                out.push(Output::Note(Note::SeekingProof));
                self.seek_proof(now, out);
            }
            Side::Probing { id, deadline } if now >= deadline => {
                out.push(Output::Cancel(id));
                self.side = Side::Quiet;
                self.suspect(now, "a probe was not answered in time", out);
            }
            Side::Reaching { id, deadline, .. } if now >= deadline => {
                out.push(Output::Cancel(id));
                self.side = Side::Quiet;
                self.suspect(now, "a short watch brought no bookmark in time", out);
            }
            Side::Replacing { id, deadline } if now >= deadline => {
                out.push(Output::Cancel(id));
                self.side = Side::Quiet;
                self.seek_later(now);
            }
            _ => {}
        }
    }

    /// Sends the probe, if none is under way.
    pub(super) fn seek_proof(&mut self, now: Instant, out: &mut Vec<Output>) {
        if !matches!(self.side, Side::Quiet) || !self.version.as_ref().is_some_and(ResourceVersion::is_ordered) {
            self.seek_later(now);
            return;
        }
        let id = self.next_id();
        self.side = Side::Probing { id, deadline: now + self.settings.probe_deadline };
        out.push(Output::Send(id, Request::Probe));
    }

    /// The probe was answered.
    pub(super) fn side_probed(
        &mut self,
        now: Instant,
        id: RequestId,
        version: Option<ResourceVersion>,
        out: &mut Vec<Output>,
    ) {
        if !matches!(self.side, Side::Probing { id: probing, .. } if probing == id) {
            return;
        }
        self.side = Side::Quiet;
        let (Some(held), Some(target)) = (self.version.clone(), version.filter(ResourceVersion::is_ordered)) else {
            self.suspect(now, "a probe told no version that can be compared", out);
            return;
        };
        if target.is_older_than(&held) {
            if let Phase::Watching { id, .. } = &self.phase {
                out.push(Output::Cancel(*id));
            }
            self.begin_epoch(now, target, out);
        } else if target == held {
            self.proof_found(now, out);
        } else {
            let id = self.next_id();
            let deadline = now + self.settings.short_watch_deadline;
            self.side = Side::Reaching { id, target, ahead: None, deadline };
            out.push(Output::Send(id, Request::ShortWatch { from: held }));
        }
    }

    /// A record of a stream beside the watch.
    pub(super) fn side_record(&mut self, now: Instant, id: RequestId, record: Record<'_>) -> Verdict {
        match &mut self.side {
            Side::Reaching { id: reaching, target, ahead, .. } if *reaching == id => match record {
                // Our own watch may bring it in the next moment: an event that it lacks is judged at the end.
                Record::Object(_, identity) => {
                    *ahead = Some(identity.version.clone());
                    Verdict::Skip
                }
                Record::Bookmark(bookmark) if !bookmark.version.is_older_than(target) => {
                    let mut out = vec![Output::Cancel(id)];
                    let ahead = ahead.clone();
                    self.side = Side::Quiet;
                    if ahead.is_some_and(|ahead| self.is_news(&ahead)) {
                        self.suspect(now, "another watch has events that ours has not", &mut out);
                    } else {
                        if self.is_news(&bookmark.version) {
                            self.reach(now, bookmark.version.clone());
                            out.push(Output::Advance(bookmark.version.clone()));
                        }
                        self.proof_found(now, &mut out);
                    }
                    Verdict::Do(out)
                }
                Record::Bookmark(_) | Record::Error(_) => Verdict::Skip,
            },
            _ => Verdict::Skip,
        }
    }

    pub(super) fn side_opened(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        if !matches!(self.side, Side::Replacing { id: replacing, .. } if replacing == id) {
            return;
        }
        self.side = Side::Quiet;
        if let Phase::Watching { id: suspect, .. } = &self.phase {
            out.push(Output::Cancel(*suspect));
        }
        // A new stream proves nothing by itself: what it brings does, or the search that begins soon.
        self.phase = Phase::Watching { id, sent: now, opened: Some(now), proven: false };
        self.seek_later(now);
    }

    pub(super) fn side_failed(&mut self, now: Instant, id: RequestId, failure: &Failure, out: &mut Vec<Output>) {
        match &self.side {
            Side::Probing { id: side, .. } | Side::Reaching { id: side, .. } if *side == id => {
                self.side = Side::Quiet;
                if failure.kind == FailureKind::Busy && failure.retry_after.is_some() {
                    // It asks for patience and so decides nothing; the bound on the age holds meanwhile.
                    self.seek_at = now + failure.retry_after.unwrap_or_default();
                } else {
                    let why = format!("no proof of freshness: {}", failure.why);
                    self.suspect(now, &why, out);
                }
            }
            Side::Replacing { id: side, .. } if *side == id => {
                self.side = Side::Quiet;
                self.seek_later(now);
                if failure.kind == FailureKind::Expired
                    && let Phase::Watching { id, .. } = &self.phase
                {
                    out.push(Output::Cancel(*id));
                    self.watch_failed(now, failure, out);
                }
            }
            _ => {}
        }
    }

    pub(super) fn side_ended(&mut self, now: Instant, id: RequestId, out: &mut Vec<Output>) {
        if matches!(self.side, Side::Reaching { id: side, .. } if side == id) {
            self.side = Side::Quiet;
            self.suspect(now, "a short watch ended without a bookmark", out);
        } else {
            let failure = Failure::unreachable("the server ended the stream");
            self.side_failed(now, id, &failure, out);
        }
    }

    /// Ends what runs beside the watch.
    pub(super) fn quiet_side(&mut self, out: &mut Vec<Output>) {
        match std::mem::replace(&mut self.side, Side::Quiet) {
            Side::Quiet => {}
            Side::Probing { id, .. } | Side::Reaching { id, .. } | Side::Replacing { id, .. } => {
                out.push(Output::Cancel(id));
            }
        }
    }

    fn proof_found(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.standing.condition == Condition::Suspect {
            out.push(Output::Note(Note::Proven));
        }
        self.proven(now);
    }

    /// No proof came: the watch is suspect, and another one is opened beside it, on another connection.
    fn suspect(&mut self, now: Instant, why: &str, out: &mut Vec<Output>) {
        let Some(from) = self.version.clone() else { return };
        if self.standing.condition != Condition::Suspect {
            out.push(Output::Note(Note::Suspect { why: why.into() }));
        }
        self.set_condition(now, Condition::Suspect, why);
        let id = self.next_id();
        // Given up only when the next proof is due, or the silence would be met with ever more connections.
        self.side = Side::Replacing { id, deadline: now + self.settings.period / 2 };
        let timeout_seconds = self.watch_seconds();
        out.push(Output::Send(id, Request::Watch { from, timeout_seconds, elsewhere: true }));
    }

    fn seek_later(&mut self, now: Instant) {
        self.seek_at = now + self.seek_backoff.fail(&mut self.random).max(Duration::from_millis(200));
    }
}
