//! Short watch from the version of the cache up to the version of a probe.

use std::time::Duration;

use super::cache_state::CacheState;
use super::request::RequestId;
use crate::record::Bookmark;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Version that a probe returned.
#[derive(Clone, Debug)]
pub(super) struct ProbeTarget {
    /// Version of the collection.
    pub(super) version: ResourceVersion,
    /// Time at which the probe was sent.
    pub(super) sent: Instant,
}

/// Short watch in flight.
#[derive(Clone, Debug)]
pub(super) struct ShortWatch {
    pub(super) id: RequestId,
    pub(super) target: ProbeTarget,
    /// True if the watch lasts only one second, for a waiting caller.
    pub(super) is_brief: bool,
    /// Newest event, and its time.
    newest_event: Option<(ResourceVersion, Instant)>,
    /// Set after any bookmark.
    received_bookmark: bool,
    /// Set once the watch has shown all changes up to the target, by a bookmark or by its end.
    reached_target: bool,
    /// Arrival time of the response's head.
    opened_at: Option<Instant>,
}

/// Evidence of a short watch that has ended.
#[derive(Clone, Debug)]
pub(super) struct ShortWatchResult {
    pub(super) target: ProbeTarget,
    /// Newest event.
    pub(super) newest_event: Option<ResourceVersion>,
    /// Set if the watch has shown all changes up to the target.
    pub(super) reached_target: bool,
    /// Set after any bookmark.
    pub(super) received_bookmark: bool,
}

/// Time for our own watch to deliver the changes that a short watch has shown.
///
/// A short watch that ends less than this time after its last event proves nothing: the server may have ended it between
/// two changes.
pub(super) const SHORT_WATCH_GRACE: Duration = Duration::from_secs(1);

impl ShortWatch {
    /// Creates the watch of the request `id`.
    pub(super) fn new(id: RequestId, target: ProbeTarget, is_brief: bool) -> Self {
        Self {
            id,
            target,
            is_brief,
            newest_event: None,
            received_bookmark: false,
            reached_target: false,
            opened_at: None,
        }
    }

    /// Records the head of the response.
    pub(super) fn opened(&mut self, now: Instant) {
        self.opened_at = Some(now);
    }

    /// Records an event. It is not applied: our own watch must deliver all events in order.
    pub(super) fn event(&mut self, now: Instant, version: &ResourceVersion) {
        self.newest_event = Some((version.clone(), now));
    }

    /// Records a bookmark. Returns whether nothing is missing up to the target, so that the watch is no longer needed.
    pub(super) fn bookmark(&mut self, bookmark: &Bookmark, cache: &CacheState) -> bool {
        self.received_bookmark = true;
        if bookmark.version.is_older_than(&self.target.version) {
            return false;
        }
        self.reached_target = true;
        // If the short watch is ahead, our own watch may deliver the change shortly. The evidence is then checked at
        // the end of the short watch.
        self.newest_event.as_ref().is_none_or(|(newest_event, _)| !cache.is_new_version(newest_event))
    }

    /// Records the regular end. `server_reached_target` is set if the server was known to have reached the target
    /// before this watch was opened.
    pub(super) fn ended(&mut self, now: Instant, server_reached_target: bool) {
        let is_quiet = self.newest_event.as_ref().is_none_or(|(_, at)| now.since(*at) >= SHORT_WATCH_GRACE);
        // A slow server may end a brief watch before sending anything.
        let lasted_long_enough =
            !self.is_brief || self.opened_at.is_some_and(|opened_at| now.since(opened_at) >= SHORT_WATCH_GRACE / 2);
        // After a bookmark below the target, the end is no proof. The bookmark shows that this watch lags behind, even
        // though another request has shown that the server is at the target.
        self.reached_target |= server_reached_target && is_quiet && lasted_long_enough && !self.received_bookmark;
    }

    /// Returns the evidence so far.
    pub(super) fn result(&self) -> ShortWatchResult {
        ShortWatchResult {
            target: self.target.clone(),
            newest_event: self.newest_event.clone().map(|(newest_event, _)| newest_event),
            reached_target: self.reached_target,
            received_bookmark: self.received_bookmark,
        }
    }
}
