//! Full transfer in progress: a streamed list, or pages (R3, R9).

use std::sync::Arc;

use super::effect::{Effect, Effects};
use super::failure::Failure;
use super::list_plan::ListPlan;
use super::paging::Paging;
use super::record_action::Record;
use super::request::{Request, RequestId};
use super::requester::Requester;
use super::settings::ReflectorSettings;
use crate::record::{ListMeta, RecordKind};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Full transfer in progress.
#[derive(Clone, Debug)]
pub(super) struct List {
    /// Request of the stream, or of the current page.
    pub(super) id: RequestId,
    pub(super) plan: ListPlan,
    pub(super) is_streamed: bool,
    /// Set after the head of the response.
    pub(super) has_head: bool,
    /// Time of the last progress, or of the request.
    pub(super) last_progress: Instant,
    /// Time of the request.
    requested_at: Instant,
    paging: Paging,
    /// Highest version of the initial events so far.
    highest_version: Option<ResourceVersion>,
}

/// Meaning of a streamed list's record.
#[derive(Debug)]
pub(super) enum ListRecord {
    /// State of an object.
    Object,
    /// The list is complete at this version.
    Complete(ResourceVersion),
    /// A bookmark before the end of the list. A server without streamed lists treats the request as a plain watch and
    /// sends ordinary bookmarks.
    PlainBookmark,
    /// No effect on the list.
    Ignored,
}

impl List {
    /// Requests the list `plan` at `now`.
    pub(super) fn start(
        now: Instant,
        plan: ListPlan,
        is_streamed: bool,
        settings: &ReflectorSettings,
        requester: &mut Requester,
    ) -> (Self, Request) {
        let id = requester.next_id();
        let request = if is_streamed {
            Request::StreamedList { from: plan.from.clone(), timeout_seconds: requester.watch_seconds() }
        } else {
            let limit = settings.page_size.filter(|_| !plan.is_unpaged);
            Request::Page { from: plan.from.clone(), limit, continue_token: None }
        };
        let (has_head, paging, highest_version) = (false, Paging::default(), None);
        (
            Self { id, plan, is_streamed, has_head, last_progress: now, requested_at: now, paging, highest_version },
            request,
        )
    }

    /// Records the head of a response, which counts as progress.
    pub(super) fn opened(&mut self, now: Instant) {
        (self.has_head, self.last_progress) = (true, now);
    }

    /// Records an entry of a page.
    pub(super) fn item(&mut self, now: Instant, version: &ResourceVersion) {
        self.last_progress = now;
        self.paging.add(version);
    }

    /// Returns whether the current page continues another one.
    pub(super) fn is_continued(&self) -> bool {
        self.paging.is_continued()
    }

    /// Processes a record of a streamed list.
    pub(super) fn record(&mut self, now: Instant, record: Record<'_>) -> ListRecord {
        match record {
            Record::Object(kind, identity) => {
                // Initial events are all `ADDED`. All other events are later changes. A server that does not mark the
                // end of a list sends later changes without end, so they do not count as progress (R3).
                if kind == RecordKind::Added && self.is_progress(&identity.version) {
                    self.last_progress = now;
                }
                ListRecord::Object
            }
            Record::Bookmark(bookmark) if bookmark.initial_events_end => ListRecord::Complete(bookmark.version.clone()),
            Record::Bookmark(_) => ListRecord::PlainBookmark,
            Record::Error(_) => ListRecord::Ignored,
        }
    }

    /// Returns whether an `ADDED` event is progress of a list. A server that treats the list as a plain watch sends
    /// created objects without end, and these must not count.
    fn is_progress(&mut self, version: &ResourceVersion) -> bool {
        // Created objects arrive with rising versions, and the objects of a list in any order. Only an event whose
        // version does not rise is certainly part of a list. The first event always counts.
        match &self.highest_version {
            Some(highest) if !version.is_newer_than(highest) => true,
            lower => {
                let is_first = lower.is_none();
                self.highest_version = Some(version.clone());
                is_first
            }
        }
    }

    /// Handles a complete page: requests the next one, or completes the list.
    pub(super) fn page_ended(
        &mut self,
        now: Instant,
        meta: ListMeta,
        settings: &ReflectorSettings,
        requester: &mut Requester,
    ) -> Effects {
        let Some(token) = meta.continue_token else {
            return Effect::ListComplete { version: self.paging.version(meta.version), fetched_count: None }.into();
        };
        if let Err(reason) = self.paging.next_page(&token) {
            return Effect::ListFailed(Failure::unreadable(reason)).into();
        }
        (self.id, self.is_streamed, self.has_head) = (requester.next_id(), false, false);
        (self.requested_at, self.last_progress) = (now, now);
        let (from, limit) = (self.plan.from.clone(), settings.page_size);
        let mut effects = Effects::default();
        effects.send(self.id, Request::Page { from, limit, continue_token: Some(token) });
        effects
    }

    /// Returns the deadline: the end of the allowed stall. For a streamed list, the end of the allowed total duration
    /// if that is earlier.
    pub(super) fn deadline(&self, settings: &ReflectorSettings) -> Instant {
        let stall = self.last_progress + settings.list_stall_timeout;
        // A plain watch delivers changes forever, so progress must not extend the list without a limit.
        if self.is_streamed { stall.min(self.requested_at + settings.initial_events_timeout) } else { stall }
    }

    /// Handles a list that stalls or exceeds its maximum duration (R3).
    pub(super) fn stalled(&self, now: Instant, settings: &ReflectorSettings) -> Effects {
        let mut effects = Effects::default();
        effects.cancel(self.id);
        let seconds = settings.list_stall_timeout.as_secs();
        if self.is_streamed && now < self.last_progress + settings.list_stall_timeout {
            // Events still arrive, so only the total duration was exceeded: probably a plain watch without an end.
            let seconds = settings.initial_events_timeout.as_secs();
            let reason = format!("the initial events did not end within {seconds} s");
            effects.push(Effect::FallBackToPages(reason.into()));
        } else if self.is_streamed && self.has_head {
            let reason = format!("the initial events made no progress for {seconds} s");
            effects.push(Effect::FallBackToPages(reason.into()));
        } else {
            let failure = Failure::unreachable(format!("the list made no progress for {seconds} s"));
            if self.is_streamed {
                // Silence before the response head is weak evidence against streaming, unless it repeats.
                effects.push(Effect::CountStreamedListFailure(failure.message.clone()));
            }
            effects.push(Effect::ListFailed(failure));
        }
        effects
    }

    /// Handles a response that ended regularly before the end of the list.
    pub(super) fn truncated(&self, now: Instant, settings: &ReflectorSettings) -> Effects {
        let reason: Arc<str> = Arc::from("the server ended the response before the list was complete");
        if self.is_streamed && now.since(self.requested_at) >= settings.list_stall_timeout {
            // The stream lasted long enough to indicate a plain watch instead of a list.
            Effect::FallBackToPages(reason).into()
        } else {
            Effect::ListFailed(Failure::unreadable(reason)).into()
        }
    }
}
