//! The watch: resumed exactly at its end (R4, R6).

use super::list_plan::ListPlan;
use super::{Diagnostic, Failure, FailureKind, Next, Output, Phase, ProbeState, Record, Reflector, Request, Verdict};
use crate::fault_injection::InjectedFault;
use crate::freshness::Condition;
use crate::time::Instant;
use crate::version::ResourceVersion;

impl Reflector {
    /// Watches from the version of the cache; lists if no version exists.
    pub(super) fn watch(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Some(from) = self.version.clone() else {
            self.queue(ListPlan::first(), out);
            return;
        };
        let id = self.next_id();
        self.phase = Phase::Watching { id, sent: now, opened: None, proven: false };
        self.bookmark_interval.begin();
        self.search.forget_refusals();
        let timeout_seconds = self.watch_seconds();
        out.push(Output::Send(id, Request::Watch { from, timeout_seconds, elsewhere: false }));
    }

    /// Returns the timeout of a watch: a random value between once and twice the setting, so that watches do not all
    /// end at once.
    pub(super) fn watch_seconds(&mut self) -> u32 {
        let least = self.settings.watch_timeout;
        let seconds = self.random.between(least, least * 2).as_secs();
        u32::try_from(seconds.max(1)).unwrap_or(u32::MAX)
    }

    pub(super) fn watch_opened(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Phase::Watching { opened, .. } = &mut self.phase else { return };
        *opened = Some(now);
        if let Some(version) = self.version.clone() {
            out.push(Output::Diagnostic(Diagnostic::Resumed { version }));
        }
        if matches!(self.side, ProbeState::Replacing { .. }) {
            // A second watch was only opened because this one did not respond.
            self.quiet_side(out);
        }
        if self.evidence.condition == Condition::Suspect && self.unnamed.why.is_none() {
            // A doubt started before this response, or during the wait for it. An open stream proves nothing (C10).
            self.hasten_proof(now);
        } else {
            self.set_streaming(now);
        }
    }

    /// Processes a record of the watch. A record not above the cached version carries no news (C3, C4).
    pub(super) fn watched(&mut self, now: Instant, record: Record<'_>) -> Verdict {
        match record {
            Record::Object(_, identity) => {
                if !self.is_news(&identity.version) {
                    let unbroken = match &self.phase {
                        Phase::Watching { id, proven, .. } => *proven || self.listed_by == Some(*id),
                        _ => false,
                    };
                    return Verdict::Older { unbroken };
                }
                self.reach(now, identity.version.clone());
                // A useful watch ends the series of short watches.
                self.brief.reset();
                self.delta_policy.changed(1);
                self.records += 1;
                if self.settings.rules.faults.is_injected(InjectedFault::DroppedRecords)
                    && self.records.is_multiple_of(5)
                {
                    return Verdict::Skip;
                }
                Verdict::Apply
            }
            Record::Bookmark(bookmark) => {
                self.bookmark_interval.bookmark(now, &bookmark.version);
                if !self.is_news(&bookmark.version) {
                    if self.settings.rules.faults.is_injected(InjectedFault::EqualBookmarks) {
                        self.proven(now, now);
                    }
                    return Verdict::Skip;
                }
                if bookmark.version.is_ordered() {
                    self.reach(now, bookmark.version.clone());
                } else {
                    // The version differs from the previous one, but the order of opaque versions is unknown (C12).
                    self.hold(now, bookmark.version.clone());
                }
                Verdict::Do(vec![Output::Advance(bookmark.version.clone())])
            }
            Record::Error(_) => Verdict::Skip,
        }
    }

    /// Returns whether `version` is above the cached one. Opaque versions follow the order of delivery (C12).
    pub(super) fn is_news(&self, version: &ResourceVersion) -> bool {
        let Some(held) = &self.version else { return true };
        if self.settings.rules.faults.is_injected(InjectedFault::RepeatedRecords) {
            return true;
        }
        match version.order(held) {
            Some(order) => order.is_gt(),
            None => true,
        }
    }

    /// Handles a watch that the server ended. A healthy watch resumes at once, any other after a growing delay.
    pub(super) fn watch_ended(&mut self, now: Instant, out: &mut Vec<Output>) {
        let Phase::Watching { opened, proven, .. } = &self.phase else { return };
        let lived = opened.map(|opened| now.since(opened)).unwrap_or_default();
        if self.settings.rules.faults.is_injected(InjectedFault::ForgottenVersion) {
            self.watch_failed(now, &Failure::unreachable("the server ended a watch"), out);
        } else if lived >= self.settings.short_watch {
            // A long watch was healthy, so earlier short watches no longer count.
            self.brief.reset();
            self.settle(now);
            out.push(Output::Diagnostic(Diagnostic::Ended));
            self.watch(now, out);
        } else if *proven {
            // Its records are a proof, but do not allow a retry without a delay: the sequence of such watches may be
            // endless (R6).
            out.push(Output::Diagnostic(Diagnostic::Ended));
            let until = now + self.brief.fail(&mut self.random);
            self.phase = Phase::Waiting { until, then: Next::Watch, unreachable: false };
        } else {
            let failure = Failure::unreachable(format!("the server ended a watch after {} ms", lived.as_millis()));
            self.watch_failed(now, &failure, out);
        }
    }

    pub(super) fn watch_failed(&mut self, now: Instant, failure: &Failure, out: &mut Vec<Output>) {
        let answered = self.was_answered(now, failure);
        self.settle(now);
        self.quiet_side(out);
        let forgotten = self.settings.rules.faults.is_injected(InjectedFault::ForgottenVersion);
        match failure.kind {
            _ if forgotten => self.relist(now, ListPlan::again(self.reached()), failure.why.clone(), out),
            // The server has compacted this version. Few objects may have changed since.
            FailureKind::Expired => {
                let plan = ListPlan::after_expiry(self.reached(), now + self.settings.delta_within);
                self.relist(now, plan, failure.why.clone(), out);
            }
            // This replica has not reached our version, or the history was restored from a backup.
            FailureKind::TooLarge => {
                let plan = ListPlan::again(self.reached());
                self.lagging(now, plan, failure, out);
            }
            // The server may reject this specific version. A list provides another one.
            FailureKind::Invalid if self.polling.is_on() || self.has_rejected_new_version(now) => {
                self.poll_because(now, failure, out);
            }
            FailureKind::Invalid => {
                self.polling.count_failure(now);
                self.relist(now, ListPlan::first(), failure.why.clone(), out);
            }
            // The cache contains the records before the failure and none after it. A list shows later whether the
            // collection has become small enough.
            FailureKind::Full => {
                self.set_broken(now, failure);
                self.wait(now, failure, Next::List(ListPlan::again(self.reached())), out);
            }
            FailureKind::Unreachable | FailureKind::Busy | FailureKind::Denied | FailureKind::Unreadable => {
                if !self.list_instead(now, failure, answered, out) {
                    self.set_broken(now, failure);
                    self.wait(now, failure, Next::Watch, out);
                }
            }
        }
    }

    /// Returns whether the failure is evidence about watches. An unreachable server is none, unless the request timed
    /// out without a response head. The break of a watch that was open for some time is none either.
    fn was_answered(&self, now: Instant, failure: &Failure) -> bool {
        let Phase::Watching { sent, opened, .. } = &self.phase else { return false };
        match (failure.kind, opened) {
            (FailureKind::Unreachable, None) => now >= *sent + self.settings.list_patience,
            (FailureKind::Unreachable, Some(opened)) => now.since(*opened) < self.settings.short_watch,
            // Each request obtains credentials again, so expired credentials are no evidence about watches.
            _ => failure.code != 401,
        }
    }

    /// Records the health of a watch that was open for some time, independent of the cause of its end (R6).
    pub(super) fn settle(&mut self, now: Instant) {
        if let Phase::Watching { opened: Some(opened), .. } = &self.phase
            && now.since(*opened) >= self.settings.healthy_after
        {
            self.backoff.reset();
            self.relist_backoff.reset();
            if self.polling.is_on() {
                self.end_polling();
                self.set_streaming(now);
            }
        }
    }

    pub(super) fn watch_wake(&self, sent: Instant, opened: Option<Instant>) -> Option<Instant> {
        let judged = match opened {
            None => Some(sent + self.settings.list_patience),
            Some(opened) => (self.attempts() > 0 || self.polling.is_on()).then(|| opened + self.settings.healthy_after),
        };
        [judged, self.unnamed.due].into_iter().flatten().min()
    }

    pub(super) fn watch_tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        // Only the wait for the response head has a timeout. An open watch may be silent for long.
        if let Phase::Watching { id, sent, opened: None, .. } = &self.phase
            && now >= *sent + self.settings.list_patience
        {
            out.push(Output::Cancel(*id));
            let seconds = self.settings.list_patience.as_secs();
            self.watch_failed(now, &Failure::unreachable(format!("no response to a watch within {seconds} s")), out);
            return;
        }
        self.settle(now);
        self.list_unnamed(now, out);
    }

    /// Drops the watch and the activities alongside it.
    pub(super) fn leave_watch(&mut self, out: &mut Vec<Output>) {
        if let Phase::Watching { id, .. } = &self.phase {
            out.push(Output::Cancel(*id));
        }
        self.stay(out);
        self.quiet_side(out);
    }
}
