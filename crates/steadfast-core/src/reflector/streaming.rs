//! Whether lists are streamed: what speaks against it on this server, and for how long that is remembered (R3).
//!
//! A server may refuse streamed lists, take them for plain watches, or stand behind something that cuts them: pages do
//! then. In JSON they are not even tried unless that is said, for they cost a server more than pages. Nothing is concluded
//! before pages have come where a stream did not: a selector that nobody takes, or a resource that is not there, says
//! nothing of streams. And nothing is concluded for ever.

use std::sync::Arc;

use super::full::{Form, Full, Instead};
use super::{Condition, Failure, FailureKind, Note, Outlook, Output, Phase, Reflector};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// So many streamed lists in a row may fail in a way that pages might not, before pages are tried.
const FAILURES: u32 = 3;

/// What is known of streamed lists.
#[derive(Debug)]
pub(super) struct Streaming {
    /// Whether they are wanted, whatever they cost.
    wanted: Option<bool>,
    /// Whether they are the cheapest way here.
    cheap: bool,
    /// Until when pages are requested in their place.
    pages_until: Option<Instant>,
    /// Whether pages were refused too, so that neither need be requested at once.
    refused_both: bool,
    /// How many failed in a row though the server answers, or may do so.
    failures: u32,
    /// The highest version of the initial events so far.
    highest: Option<ResourceVersion>,
}

impl Streaming {
    pub(super) fn new(wanted: Option<bool>) -> Self {
        Self { wanted, cheap: false, pages_until: None, refused_both: false, failures: 0, highest: None }
    }

    /// Takes in what the next list is chosen by.
    pub(super) fn expect(&mut self, outlook: Outlook) {
        self.cheap = outlook.protobuf;
    }

    /// Whether a list that begins now is to be streamed; no event of it has come.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        self.highest = None;
        self.is_chosen() && self.is_to_work(now)
    }

    /// Whether they are the way of lists here, if they work.
    fn is_chosen(&self) -> bool {
        self.wanted.unwrap_or(self.cheap)
    }

    /// Whether nothing is known to speak against streamed lists, and nobody has forbidden them: of nothing, one costs
    /// nothing in any encoding.
    pub(super) fn is_to_work(&self, now: Instant) -> bool {
        self.wanted != Some(false) && self.pages_until.is_none_or(|until| now >= until)
    }

    /// Whether an `ADDED` is progress of a list: its objects come in an order of their own, and what was created
    /// since then in that of versions, for ever on a server that takes the list for a plain watch.
    pub(super) fn is_progress(&mut self, version: &ResourceVersion) -> bool {
        match &self.highest {
            Some(highest) if !version.is_newer_than(highest) => true,
            before => {
                let first = before.is_none();
                self.highest = Some(version.clone());
                first
            }
        }
    }

    /// A streamed list is complete.
    pub(super) fn works(&mut self) {
        (self.failures, self.pages_until, self.refused_both) = (0, None, false);
    }

    /// A streamed list of nothing was not taken for what it is. Where lists are not streamed, nothing else finds that out,
    /// and it is remembered until then.
    pub(super) fn does_not_work_of_nothing(&mut self, until: Instant) {
        if !self.is_chosen() {
            self.pages_until = Some(until);
        }
    }

    /// A permission to watch is there after all.
    pub(super) fn may_work(&mut self) {
        self.pages_until = None;
    }
}

impl Reflector {
    /// Lists in pages until then, as another informer of the resource has found that streamed lists do not work.
    pub fn list_in_pages_until(&mut self, until: Instant) {
        self.streaming.pages_until = Some(until);
    }

    /// A streamed list failed: whether pages are to be requested at once, because it was refused. `full` says whether the
    /// next one is in pages.
    pub(super) fn stream_failed(&mut self, failure: &Failure, opened: bool, full: &mut Full) -> bool {
        let doubtful = match failure.kind {
            FailureKind::Unreachable => opened,
            FailureKind::Busy => !failure.asks_for_patience(),
            FailureKind::Unreadable => true,
            _ => false,
        };
        if failure.is_refusal() {
            full.form = Form::Instead(Instead { why: failure.why.clone(), general: failure.code != 403 });
            if failure.kind == FailureKind::Denied {
                self.polling.expect_refusal();
            }
            return !self.streaming.refused_both;
        }
        if doubtful {
            self.doubt_streams(failure.why.clone(), full);
        }
        false
    }

    /// A streamed list failed as it may have failed because it was streamed: after some, pages are tried.
    pub(super) fn doubt_streams(&mut self, why: Arc<str>, full: &mut Full) {
        self.streaming.failures += 1;
        if self.streaming.failures >= FAILURES {
            full.form = Form::Instead(Instead { why, general: true });
        }
    }

    /// Pages that were requested in place of a stream failed: neither is known to work, and the next is a stream.
    pub(super) fn pages_failed(&mut self, failure: &Failure, full: &mut Full) {
        if let Form::Instead(_) = full.form {
            full.form = Form::AsItWorks;
        }
        self.streaming.refused_both = failure.is_refusal();
        if failure.is_refusal() {
            self.streaming.may_work();
        }
    }

    /// The streamed list under way does not work: pages at once.
    pub(super) fn fall_back(&mut self, now: Instant, why: Arc<str>, out: &mut Vec<Output>) {
        let Phase::Listing { full, .. } = &self.phase else { return };
        let mut full = full.clone();
        full.form = Form::Instead(Instead { why: why.clone(), general: true });
        self.ask_for_pages(now, full, why, out);
    }

    /// Asks for pages at once. What was a failure before stays one until they are there.
    pub(super) fn ask_for_pages(&mut self, now: Instant, full: Full, why: Arc<str>, out: &mut Vec<Output>) {
        if self.evidence.condition != Condition::Failed {
            let condition = if self.synced { Condition::Resuming } else { Condition::Starting };
            self.set_condition(now, condition, why);
        }
        out.extend([Output::DropStaging, Output::ReleaseTransfer]);
        self.queue(full, out);
    }

    /// Pages have come where a stream did not: remembered, for a while.
    pub(super) fn pages_came(&mut self, now: Instant, instead: &Instead, out: &mut Vec<Output>) {
        let lasting = self.settings.pages_for;
        let until = now + self.random.between(lasting, lasting + lasting / 10);
        self.streaming.pages_until = Some(until);
        (self.streaming.failures, self.streaming.refused_both) = (0, false);
        if instead.general {
            out.push(Output::RememberPages { until });
        }
        out.push(Output::Note(Note::FellBackToPages { why: instead.why.clone() }));
    }

    /// When a list is given up: that stalls, or whose initial events come and come.
    pub(super) fn list_patience(&self, progress: Instant, streamed: bool, sent: Instant) -> Instant {
        let still = progress + self.settings.list_patience;
        if streamed { still.min(sent + self.settings.initial_events_within) } else { still }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_wins_over_what_is_cheap_and_what_does_not_work_over_both() {
        let later = Instant::ZERO + std::time::Duration::from_secs(1);
        let streams = |wanted: Option<bool>, protobuf: bool, until: Option<Instant>| {
            let mut streaming = Streaming { pages_until: until, ..Streaming::new(wanted) };
            streaming.expect(Outlook { protobuf, ..Outlook::default() });
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
