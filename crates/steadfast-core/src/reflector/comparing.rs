//! Comparisons of the cache with a list of the collection's identities. They provide the proof of freshness if the
//! server sends no bookmarks (R2), and the audit that detects changes lost by a server's watch (R12).
//!
//! A list of identities at version V contains the objects at V with their versions. A cached version above V is a later
//! change and is not compared. All other entries must be equal after our watch has reached V. Before that, a difference
//! may still arrive in the watch, and no decision is made. Equality shows at once that V is reached.
//!
//! Only a list repairs the cache, since it preserves C1 to C5. An object with equal UID and version but different
//! content appears equal. No list of identities can detect it.

use std::time::Duration;

use super::bookmark_interval::PERIODS_BETWEEN_LISTS;
use super::list_plan::ListPlan;
use super::{Diagnostic, Differences, Failure, FailureKind, Output, Phase, ProbeState, Reflector, Request, RequestId};
use crate::fault_injection::InjectedFault;
use crate::freshness::Condition;
use crate::record::ListMeta;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Number of identities in a page, unless the informer's own pages are smaller.
const IDENTITIES_A_PAGE: u32 = 500;

/// Cause of a doubt between two lists of a server without bookmarks.
pub(super) const WITHOUT_BOOKMARKS: &str =
    "the server sends no bookmarks, so only a list proves that nothing is missing, once in five periods at most";

/// Time for a watch without bookmarks to deliver the changes that a list has shown.
const DELIVERY_GRACE: Duration = Duration::from_secs(5);

/// Running comparison, and the schedule of the next.
#[derive(Debug, Default)]
pub(super) struct Comparing {
    /// Time of the last complete list.
    listed: Instant,
    /// Time of the last complete list of identities.
    compared: Option<Instant>,
    /// Time of the next audit.
    audit_at: Option<Instant>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    id: RequestId,
    /// Set for an audit, clear for a proof of freshness.
    audit: bool,
    /// Time at which the first page was requested. The list contains all earlier writes.
    sent: Instant,
    /// Version of the first page.
    version: Option<ResourceVersion>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Listing {
        deadline: Instant,
    },
    /// All pages are complete; the comparison follows at once.
    Complete,
    /// Differences exist that the watch may still deliver, perhaps a second watch that was opened for this purpose.
    Waiting {
        until: Instant,
        replaced: bool,
    },
}

impl Comparing {
    /// Returns when the running list last made progress; it is cancelled after `patience` without any.
    pub(super) fn heard(&self, patience: Duration) -> Option<Instant> {
        match self.running.as_ref()?.stage {
            Stage::Listing { deadline } => Some(deadline - patience),
            Stage::Complete | Stage::Waiting { .. } => None,
        }
    }
}

impl Reflector {
    /// Records a committed full list, which makes a comparison unnecessary.
    pub(super) fn listed_all(&mut self, now: Instant, out: &mut Vec<Output>) {
        self.drop_comparison(out);
        self.comparing.listed = now;
        self.audit_later(now, None);
    }

    /// Schedules the next audit within the audit interval, with jitter against simultaneous audits.
    pub(super) fn audit_later(&mut self, now: Instant, asked: Option<Duration>) {
        self.comparing.audit_at = self.settings.audit_every.map(|every| {
            // The upper bound below a full interval leaves time for the list itself.
            let wait = asked.unwrap_or_else(|| self.random.between(every * 3 / 4, every * 9 / 10));
            now + wait
        });
    }

    /// Returns whether `id` is the running comparison.
    pub(super) fn is_comparing(&self, id: RequestId) -> bool {
        self.comparing.running.as_ref().is_some_and(|running| running.id == id)
    }

    /// Requests a proof by a list, at limited intervals, if only a list can provide one (C12, R2).
    pub(super) fn seek_in_list(&mut self, now: Instant, out: &mut Vec<Output>) {
        // A cache without a version counts as opaque: nothing can be compared with it.
        let opaque = self.version.as_ref().is_none_or(|version| !version.is_ordered());
        let why = if opaque {
            "the server's versions cannot be ordered, so only a list proves that nothing is missing"
        } else {
            WITHOUT_BOOKMARKS
        };
        let pause = self.settings.period * PERIODS_BETWEEN_LISTS;
        let due = if opaque { self.comparing.listed + pause } else { self.compare_due() };
        if self.comparing.running.is_some() || now < due {
            // While bookmarks may still appear, the next search follows after a period. Otherwise
            // the search sleeps until the list.
            let soon = now + self.settings.period;
            self.search.at = if opaque || self.bookmark_interval.is_surely_without() { due.max(soon) } else { soon };
            // Only the reason changes here. An existing doubt keeps its own reason.
            if self.evidence.condition == Condition::Streaming {
                self.set_condition(now, Condition::Streaming, why);
            }
        } else if opaque {
            // Identities with opaque versions cannot be compared, so a full list replaces the
            // watch.
            self.leave_watch(out);
            self.relist(now, ListPlan::first(), why.into(), out);
        } else {
            self.search.at = now + self.bookmark_interval.period();
            self.begin_comparison(now, false, out);
        }
    }

    /// Returns the earliest time of the next list of identities as a proof.
    fn compare_due(&self) -> Instant {
        self.comparing.compared.map_or(Instant::ZERO, |then| then + self.settings.period * PERIODS_BETWEEN_LISTS)
    }

    /// Returns whether a list of identities may be requested now as a proof.
    pub(super) fn may_compare(&self, now: Instant) -> bool {
        self.comparing.running.is_none() && now >= self.compare_due()
    }

    fn begin_comparison(&mut self, now: Instant, audit: bool, out: &mut Vec<Output>) {
        out.push(Output::BeginComparison);
        let id = self.send_identities(None, out);
        let deadline = now + self.settings.list_patience;
        let stage = Stage::Listing { deadline };
        self.comparing.running = Some(Running { id, audit, sent: now, version: None, stage });
    }

    fn send_identities(&mut self, continue_token: Option<String>, out: &mut Vec<Output>) -> RequestId {
        let id = self.next_id();
        let limit = self.settings.page_size.map_or(IDENTITIES_A_PAGE, |own| own.min(IDENTITIES_A_PAGE));
        out.push(Output::Send(id, Request::Versions { limit, continue_token }));
        id
    }

    pub(super) fn comparison_wake(&self) -> Option<Instant> {
        let watching = matches!(self.phase, Phase::Watching { opened: Some(_), .. });
        match &self.comparing.running {
            // The page timeout applies even after the watch breaks.
            Some(Running { stage: Stage::Listing { deadline }, .. }) => Some(*deadline),
            // Differences can only be judged against an open watch.
            _ if !watching => None,
            // The watch has reached the list's version: judge at once, since this time lies in the
            // past.
            Some(running) if self.has_reached(running) => Some(self.held_since),
            Some(Running { stage: Stage::Waiting { until, .. }, .. }) => Some(*until),
            Some(Running { stage: Stage::Complete, .. }) => None,
            None => self.comparing.audit_at,
        }
    }

    fn has_reached(&self, running: &Running) -> bool {
        match (running.version.as_ref(), self.reached()) {
            (Some(listed), Some(held)) => listed == held || held.is_newer_than(listed),
            _ => false,
        }
    }

    pub(super) fn comparison_tick(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.comparison_wake().is_none_or(|wake| now < wake) {
            return;
        }
        match &self.comparing.running {
            None if self.version.as_ref().is_some_and(ResourceVersion::is_ordered) => {
                self.begin_comparison(now, true, out);
            }
            // Opaque versions are listed again periodically in any case.
            None => self.audit_later(now, None),
            Some(Running { id, stage: Stage::Listing { .. }, .. }) => {
                out.push(Output::Cancel(*id));
                let seconds = self.settings.list_patience.as_secs();
                let failure = Failure::unreachable(format!("no progress of a list of versions for {seconds} s"));
                self.comparison_failed(now, &failure, out);
            }
            Some(Running { stage: Stage::Waiting { .. } | Stage::Complete, .. }) => out.push(Output::JudgeComparison),
        }
    }

    /// Records progress of the list.
    pub(super) fn comparison_progress(&mut self, now: Instant) {
        let patience = self.settings.list_patience;
        if let Some(Running { stage: Stage::Listing { deadline }, .. }) = &mut self.comparing.running {
            *deadline = now + patience;
        }
    }

    /// Handles a complete page of identities.
    pub(super) fn compared_page(&mut self, now: Instant, id: RequestId, meta: ListMeta, out: &mut Vec<Output>) {
        if !self.is_comparing(id) {
            return;
        }
        self.comparison_progress(now);
        let Some(running) = &mut self.comparing.running else { return };
        // Only pages of one version can be compared.
        let same = match (&running.version, &meta.version) {
            (_, None) => false,
            (None, Some(version)) => version.is_ordered(),
            (Some(first), Some(version)) => first == version,
        };
        if !same {
            let failure = Failure::unreadable("a list of versions is not of one version that can be compared");
            return self.comparison_failed(now, &failure, out);
        }
        running.version = meta.version;
        if meta.continue_token.is_some() {
            let id = self.send_identities(meta.continue_token, out);
            // Every page uses its own request id. Late entries of an earlier page are ignored.
            if let Some(running) = &mut self.comparing.running {
                running.id = id;
            }
            return;
        }
        running.stage = Stage::Complete;
        // The interval between proofs counts from complete lists, independent of their result.
        self.comparing.compared = Some(now);
        out.push(Output::JudgeComparison);
    }

    /// Handles a failed list of identities. It is retried later, and a requested proof counts as missing.
    pub(super) fn comparison_failed(&mut self, now: Instant, failure: &Failure, out: &mut Vec<Output>) {
        let Some(running) = self.comparing.running.take() else { return };
        out.push(Output::EndComparison);
        // Only a busy server's `Retry-After` applies. Other failures follow the schedule of audits.
        let asked = failure.retry_after.filter(|_| failure.kind == FailureKind::Busy);
        if running.audit {
            let later = self.settings.audit_every.unwrap_or_default() / 8;
            self.audit_later(now, Some(asked.unwrap_or(later).max(Duration::from_secs(1))));
        } else if let Some(asked) = asked {
            self.search.not_for(now, asked, &mut self.random);
        } else if matches!(self.side, ProbeState::Quiet) && matches!(self.phase, Phase::Watching { .. }) {
            // A running probe or replacement reports a missing proof later; only a quiet side needs
            // this report.
            self.unproven(now, &format!("no proof of freshness: {}", failure.why), out);
        }
    }

    /// Handles the result of the comparison.
    pub(super) fn comparison_judged(&mut self, now: Instant, found: &Differences, out: &mut Vec<Output>) {
        let Some(running) = &self.comparing.running else { return };
        let (sent, version) = (running.sent, running.version.clone());
        let (reached, stage) = (self.has_reached(running), running.stage);
        let watching = matches!(self.phase, Phase::Watching { .. });
        if found.count == 0 || self.settings.rules.faults.is_injected(InjectedFault::BlindAudit) {
            return self.found_equal(now, sent, version, out);
        }
        let late = |until: Instant| now >= until;
        match stage {
            // The watch delivered everything up to the list's version, so the difference is final.
            _ if watching && reached => self.repair(now, found, out),
            Stage::Listing { .. } | Stage::Complete => self.await_differences(now, out),
            // Either the grace period still runs, or no watch exists to deliver the changes.
            Stage::Waiting { until, .. } if !late(until) || !watching => {}
            // The second watch lacked the changes as well: the server has lost them.
            Stage::Waiting { replaced: true, .. } => self.repair(now, found, out),
            // Without bookmarks, a stuck watch looks like a quiet collection. A second watch on
            // another connection decides.
            Stage::Waiting { .. } if self.bookmark_interval.is_without_bookmarks() => {
                if matches!(self.side, ProbeState::Quiet) {
                    self.doubt(now, "a list has what our watch has not", out);
                }
                self.wait_to_judge(now + self.settings.period / 2 + DELIVERY_GRACE, true);
            }
            // With bookmarks, the search for a proof decides about the watch. The audit only
            // repeats earlier.
            Stage::Waiting { .. } => {
                self.drop_comparison(out);
                self.audit_later(now, self.settings.audit_every.map(|every| every / 8));
            }
        }
    }

    /// Requests a proof that our watch has reached the list's version, since the watch may still deliver the
    /// differences.
    fn await_differences(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.bookmark_interval.is_without_bookmarks() {
            self.wait_to_judge(now + DELIVERY_GRACE, false);
        } else {
            self.wait_to_judge(now + self.settings.period * 2, false);
            self.search.want(now);
            self.side_tick(now, out);
        }
    }

    fn wait_to_judge(&mut self, until: Instant, replaced: bool) {
        if let Some(running) = &mut self.comparing.running {
            running.stage = Stage::Waiting { until, replaced };
        }
    }

    /// Gives the replacement of a suspect watch a short time to deliver the listed changes.
    pub(super) fn watch_replaced(&mut self, now: Instant) {
        if let Some(Running { stage: Stage::Waiting { replaced: true, .. }, .. }) = &self.comparing.running {
            self.wait_to_judge(now + DELIVERY_GRACE, true);
        }
    }

    fn found_equal(&mut self, now: Instant, sent: Instant, version: Option<ResourceVersion>, out: &mut Vec<Output>) {
        self.drop_comparison(out);
        out.push(Output::Diagnostic(Diagnostic::Audited { version: version.clone() }));
        // Equal content at the list's version moves the resume position without any event.
        if let Some(version) = version.filter(|version| self.is_news(version)) {
            self.hold(now, version.clone());
            out.push(Output::Advance(version));
        }
        self.audit_later(now, None);
        // A running probe continues; the proof counts without cancelling the probe.
        if matches!(self.side, ProbeState::Quiet) {
            self.proof_found(now, sent, out);
        } else {
            self.proven(now, sent);
        }
    }

    /// Lists again to repair objects whose changes our watch should have reported.
    fn repair(&mut self, now: Instant, found: &Differences, out: &mut Vec<Output>) {
        out.push(Output::NameLost);
        self.drop_comparison(out);
        self.leave_watch(out);
        if let Some((held, proof)) = found.backwards.clone() {
            self.epoch_proven(now, held, proof, ListPlan::repair(true), out);
        } else {
            let why = format!("the server's watch has lost changes of {} objects", found.count);
            self.relist(now, ListPlan::repair(false), why.into(), out);
        }
    }

    /// Cancels the running comparison.
    pub(super) fn drop_comparison(&mut self, out: &mut Vec<Output>) {
        if let Some(running) = self.comparing.running.take() {
            if let Stage::Listing { .. } = running.stage {
                out.push(Output::Cancel(running.id));
            }
            out.push(Output::EndComparison);
        }
    }
}
