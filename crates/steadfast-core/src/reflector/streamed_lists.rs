//! Decision between streamed and paged lists, by the remembered evidence against streams (R3).
//!
//! A server may reject streamed lists, treat streamed lists as plain watches, or be behind a proxy that ends long
//! streams early. In these cases, pages replace streams. In JSON, streams are only tried if the settings require
//! streams, since a stream costs a server more than pages. A stream counts as not working only after pages have
//! succeeded. A selector that no server accepts, or a missing resource, does not show that streams fail. The result is
//! remembered for a limited time.

use std::sync::Arc;

use super::failure::{Failure, FailureKind};
use super::list_hints::ListHints;
use super::list_plan::{ListForm, ListPlan, PagesFallback};
use crate::time::Instant;

/// Number of consecutive failed streams before pages are tried, for failures specific to streams.
const MAX_STREAM_FAILURES: u32 = 3;

/// Knowledge about streamed lists.
#[derive(Debug)]
pub(super) struct StreamedLists {
    /// The setting, if it forces or disables streams.
    setting: Option<bool>,
    /// Set if streams are the cheaper method here.
    is_cheaper: bool,
    /// End of the time during which pages replace streams.
    pages_until: Option<Instant>,
    /// Set if pages were rejected too, so that neither form is requested without a delay.
    both_rejected: bool,
    /// Number of consecutive failures that streaming may have caused.
    failures: u32,
}

impl StreamedLists {
    pub(super) fn new(setting: Option<bool>) -> Self {
        Self { setting, is_cheaper: false, pages_until: None, both_rejected: false, failures: 0 }
    }

    /// Sets the hints for the next list.
    pub(super) fn set_list_hints(&mut self, hints: ListHints) {
        self.is_cheaper = hints.protobuf;
    }

    /// Returns whether the next list should be streamed.
    pub(super) fn should_be_streamed(&self, now: Instant) -> bool {
        self.is_preferred() && self.is_expected_to_work(now)
    }

    /// Returns whether streams are the preferred method, if they work.
    fn is_preferred(&self) -> bool {
        self.setting.unwrap_or(self.is_cheaper)
    }

    /// Returns whether streamed lists are enabled and no evidence against them exists. A streamed list that matches
    /// nothing costs nothing in any encoding.
    pub(super) fn is_expected_to_work(&self, now: Instant) -> bool {
        self.setting != Some(false) && self.pages_until.is_none_or(|until| now >= until)
    }

    /// Records a complete streamed list.
    pub(super) fn succeeded(&mut self) {
        (self.failures, self.pages_until, self.both_rejected) = (0, None, false);
    }

    /// Records a rejected streamed list that matches nothing. If lists are not streamed, no other request shows the
    /// rejection, so it is remembered until `until`.
    pub(super) fn empty_list_rejected(&mut self, until: Instant) {
        if !self.is_preferred() {
            self.pages_until = Some(until);
        }
    }

    /// Resets the evidence after the permission to watch was granted.
    pub(super) fn reset_after_permission(&mut self) {
        self.pages_until = None;
    }

    /// Requests pages until `until`.
    pub(super) fn list_in_pages_until(&mut self, until: Instant) {
        self.pages_until = Some(until);
    }

    /// Handles a failed streamed list. Returns whether pages should be requested immediately because the stream was
    /// rejected. `plan` receives the form of the next list.
    pub(super) fn failed(&mut self, failure: &Failure, opened: bool, plan: &mut ListPlan) -> bool {
        let is_evidence = match failure.kind {
            // Without a response head, an unreachable server does not show that streams fail.
            FailureKind::Unreachable => opened,
            FailureKind::Busy => !failure.requests_delay(),
            FailureKind::Unreadable => true,
            _ => false,
        };
        // A rejection is certain evidence. Other failures must repeat.
        if failure.is_rejection() {
            // A missing permission (`403`) concerns only this client.
            plan.form = ListForm::PagesFallback(PagesFallback {
                reason: failure.message.clone(),
                applies_to_all_clients: failure.code != 403,
            });
            // After a rejection of both forms, an immediate request for pages would be rejected
            // again.
            return !self.both_rejected;
        }
        if is_evidence {
            self.count_failure(failure.message.clone(), plan);
        }
        false
    }

    /// Counts a failure that streaming may have caused. After several failures, pages are tried.
    pub(super) fn count_failure(&mut self, reason: Arc<str>, plan: &mut ListPlan) {
        self.failures += 1;
        if self.failures >= MAX_STREAM_FAILURES {
            plan.form = ListForm::PagesFallback(PagesFallback { reason, applies_to_all_clients: true });
        }
    }

    /// Handles failed pages that replaced a stream. Neither form is known to work, so the next list is a stream.
    pub(super) fn pages_failed(&mut self, failure: &Failure, plan: &mut ListPlan) {
        if let ListForm::PagesFallback(_) = plan.form {
            plan.form = ListForm::StreamedIfSupported;
        }
        self.both_rejected = failure.is_rejection();
        if failure.is_rejection() {
            self.reset_after_permission();
        }
    }

    /// Remembers until `until` that pages succeeded after a stream had failed.
    pub(super) fn pages_complete(&mut self, until: Instant) {
        self.pages_until = Some(until);
        (self.failures, self.both_rejected) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_overrides_cost_and_failure_overrides_both() {
        let later = Instant::ZERO + std::time::Duration::from_secs(1);
        let streams = |setting: Option<bool>, protobuf: bool, until: Option<Instant>| {
            let mut streamed_lists = StreamedLists { pages_until: until, ..StreamedLists::new(setting) };
            streamed_lists.set_list_hints(ListHints { protobuf, ..ListHints::default() });
            (streamed_lists.should_be_streamed(Instant::ZERO), streamed_lists.is_expected_to_work(Instant::ZERO))
        };
        assert_eq!((streams(None, true, None), streams(None, false, None)), ((true, true), (false, true)));
        assert_eq!(
            (streams(Some(true), false, None), streams(Some(false), true, None)),
            ((true, true), (false, false))
        );
        assert_eq!(streams(Some(true), true, Some(later)), (false, false));
    }
}
