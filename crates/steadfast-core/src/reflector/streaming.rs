//! Decision whether lists are streamed, the evidence against streams, and how long it is remembered (R3).
//!
//! A server may reject streamed lists, treat them as plain watches, or be behind a proxy that cuts them. Pages replace
//! streams then. In JSON, streams are only tried if the settings require them, since they cost a server more than
//! pages. A stream counts as not working only after pages have succeeded. A selector that no server accepts, or a
//! missing resource, is no evidence against streams. The result is remembered for a limited time.

use std::sync::Arc;

use super::list_plan::{Form, ListPlan, PagesFallback};
use super::{Condition, Diagnostic, Failure, FailureKind, ListHints, Output, Phase, Reflector};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Number of consecutive failed streams before pages are tried, for failures specific to streams.
const FAILURES: u32 = 3;

/// Knowledge about streamed lists.
#[derive(Debug)]
pub(super) struct Streaming {
    /// The setting, if it forces or disables streams.
    wanted: Option<bool>,
    /// Set if streams are the cheaper method here.
    cheap: bool,
    /// End of the time during which pages replace streams.
    pages_until: Option<Instant>,
    /// Set if pages were rejected too, so neither form is requested at once.
    refused_both: bool,
    /// Number of consecutive failures while the server responds, or may respond.
    failures: u32,
    /// Highest version of the initial events so far.
    highest: Option<ResourceVersion>,
}

impl Streaming {
    pub(super) fn new(wanted: Option<bool>) -> Self {
        Self { wanted, cheap: false, pages_until: None, refused_both: false, failures: 0, highest: None }
    }

    /// Sets the hints for the next list.
    pub(super) fn expect(&mut self, hints: ListHints) {
        self.cheap = hints.protobuf;
    }

    /// Starts a list. Returns whether the list should be streamed.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        self.highest = None;
        self.is_chosen() && self.is_to_work(now)
    }

    /// Returns whether streams are the preferred method, if they work.
    fn is_chosen(&self) -> bool {
        self.wanted.unwrap_or(self.cheap)
    }

    /// Returns whether streamed lists are enabled and no evidence against them exists. A streamed list that matches
    /// nothing costs nothing in any encoding.
    pub(super) fn is_to_work(&self, now: Instant) -> bool {
        self.wanted != Some(false) && self.pages_until.is_none_or(|until| now >= until)
    }

    /// Returns whether an `ADDED` event is progress of a list. The objects of a list have their own order. Objects
    /// created later arrive in the order of versions, without an end on a server that treats the list as a plain watch.
    pub(super) fn is_progress(&mut self, version: &ResourceVersion) -> bool {
        // Changes arrive with rising versions, so a version that does not rise belongs to a list.
        // The first event always counts.
        match &self.highest {
            Some(highest) if !version.is_newer_than(highest) => true,
            before => {
                let first = before.is_none();
                self.highest = Some(version.clone());
                first
            }
        }
    }

    /// Records a complete streamed list.
    pub(super) fn works(&mut self) {
        (self.failures, self.pages_until, self.refused_both) = (0, None, false);
    }

    /// Records a rejected streamed list that matches nothing. If lists are not streamed, no other request shows the
    /// rejection, so it is remembered until `until`.
    pub(super) fn does_not_work_of_nothing(&mut self, until: Instant) {
        if !self.is_chosen() {
            self.pages_until = Some(until);
        }
    }

    /// Resets the evidence after the permission to watch was granted.
    pub(super) fn may_work(&mut self) {
        self.pages_until = None;
    }
}

impl Reflector {
    /// Requests pages until `until`, after another informer of the resource detected that streamed lists do not work.
    pub fn list_in_pages_until(&mut self, until: Instant) {
        self.streaming.pages_until = Some(until);
    }

    /// Handles a failed streamed list. Returns whether pages should be requested at once because the stream was
    /// rejected. `plan` receives the form of the next list.
    pub(super) fn stream_failed(&mut self, failure: &Failure, opened: bool, plan: &mut ListPlan) -> bool {
        let doubtful = match failure.kind {
            // Without a response head, an unreachable server is no evidence against streams.
            FailureKind::Unreachable => opened,
            FailureKind::Busy => !failure.asks_for_patience(),
            FailureKind::Unreadable => true,
            _ => false,
        };
        // A rejection is certain evidence. Other failures must repeat.
        if failure.is_refusal() {
            // A missing permission (`403`) concerns only this client.
            plan.form = Form::PagesFallback(PagesFallback { why: failure.why.clone(), general: failure.code != 403 });
            if failure.kind == FailureKind::Denied {
                self.polling.expect_refusal();
            }
            // After a rejection of both forms, an immediate request for pages would be rejected
            // again.
            return !self.streaming.refused_both;
        }
        if doubtful {
            self.doubt_streams(failure.why.clone(), plan);
        }
        false
    }

    /// Counts a failure that streaming may have caused. After several, pages are tried.
    pub(super) fn doubt_streams(&mut self, why: Arc<str>, plan: &mut ListPlan) {
        self.streaming.failures += 1;
        if self.streaming.failures >= FAILURES {
            plan.form = Form::PagesFallback(PagesFallback { why, general: true });
        }
    }

    /// Handles failed pages that replaced a stream. Neither form works for certain, so the next list is a stream.
    pub(super) fn pages_failed(&mut self, failure: &Failure, plan: &mut ListPlan) {
        if let Form::PagesFallback(_) = plan.form {
            plan.form = Form::AsItWorks;
        }
        self.streaming.refused_both = failure.is_refusal();
        if failure.is_refusal() {
            self.streaming.may_work();
        }
    }

    /// Replaces the running streamed list, which does not work, by pages at once.
    pub(super) fn fall_back(&mut self, now: Instant, why: Arc<str>, out: &mut Vec<Output>) {
        let Phase::Listing { plan, .. } = &self.phase else { return };
        let mut plan = plan.clone();
        plan.form = Form::PagesFallback(PagesFallback { why: why.clone(), general: true });
        self.ask_for_pages(now, plan, why, out);
    }

    /// Requests pages at once. An earlier failure remains the cause until they arrive.
    pub(super) fn ask_for_pages(&mut self, now: Instant, plan: ListPlan, why: Arc<str>, out: &mut Vec<Output>) {
        // A permanent failure stays visible until a list succeeds.
        if self.evidence.condition != Condition::Failed {
            let condition = if self.synced { Condition::Resuming } else { Condition::Starting };
            self.set_condition(now, condition, why);
        }
        out.extend([Output::DropStaging, Output::ReleaseTransfer]);
        self.queue(plan, out);
    }

    /// Remembers for a limited time that pages succeeded after a stream had failed.
    pub(super) fn pages_came(&mut self, now: Instant, instead: &PagesFallback, out: &mut Vec<Output>) {
        let lasting = self.settings.pages_for;
        // The jitter spreads the next attempts of all informers.
        let until = now + self.random.between(lasting, lasting + lasting / 10);
        self.streaming.pages_until = Some(until);
        (self.streaming.failures, self.streaming.refused_both) = (0, false);
        if instead.general {
            out.push(Output::RememberPages { until });
        }
        out.push(Output::Diagnostic(Diagnostic::FellBackToPages { why: instead.why.clone() }));
    }

    /// Returns the deadline of a list: the end of the allowed stall, or of the allowed duration of initial events.
    pub(super) fn list_patience(&self, progress: Instant, streamed: bool, sent: Instant) -> Instant {
        let still = progress + self.settings.list_patience;
        // A plain watch delivers changes forever, so progress must not extend the list without a
        // limit.
        if streamed { still.min(sent + self.settings.initial_events_within) } else { still }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_overrides_cost_and_failure_overrides_both() {
        let later = Instant::ZERO + std::time::Duration::from_secs(1);
        let streams = |wanted: Option<bool>, protobuf: bool, until: Option<Instant>| {
            let mut streaming = Streaming { pages_until: until, ..Streaming::new(wanted) };
            streaming.expect(ListHints { protobuf, ..ListHints::default() });
            (streaming.begin(Instant::ZERO), streaming.is_to_work(Instant::ZERO))
        };
        assert_eq!((streams(None, true, None), streams(None, false, None)), ((true, true), (false, true)));
        assert_eq!(
            (streams(Some(true), false, None), streams(Some(false), true, None)),
            ((true, true), (false, false))
        );
        assert_eq!(streams(Some(true), true, Some(later)), (false, false));
    }
}
