//! Short watch from the version of the cache up to the version of a probe.

use std::time::Duration;

use super::cache_state::CacheState;
use super::request::RequestId;
use crate::record::Bookmark;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Version that a probe returned.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Version of the collection.
    pub(super) version: ResourceVersion,
    /// Time at which the probe was sent.
    pub(super) sent: Instant,
}

/// Short watch in flight.
#[derive(Clone, Debug)]
pub(super) struct ShortWatch {
    pub(super) id: RequestId,
    pub(super) target: Target,
    /// True if the watch lasts only one second, for a waiting caller.
    pub(super) brief: bool,
    /// Newest event, and its time.
    ahead: Option<(ResourceVersion, Instant)>,
    /// Set after any bookmark.
    heard: bool,
    /// Set after a bookmark that reached the target.
    complete: bool,
    /// Arrival time of the response's head.
    opened: Option<Instant>,
}

/// Evidence of a short watch that has ended.
#[derive(Clone, Debug)]
pub(super) struct ShortWatchResult {
    pub(super) target: Target,
    /// Newest event.
    pub(super) ahead: Option<ResourceVersion>,
    /// Set if the watch has shown all changes up to the target.
    pub(super) complete: bool,
    /// Set after any bookmark.
    pub(super) heard: bool,
}

/// Time for our own watch to deliver the changes that a short watch has shown. Also the minimum silence of a short
/// watch at its end, since the server may end it between two changes.
pub(super) const SHORT_WATCH_GRACE: Duration = Duration::from_secs(1);

impl ShortWatch {
    /// Creates the watch of the request `id`.
    pub(super) fn new(id: RequestId, target: Target, brief: bool) -> Self {
        Self { id, target, brief, ahead: None, heard: false, complete: false, opened: None }
    }

    /// Records the head of the response.
    pub(super) fn opened(&mut self, now: Instant) {
        self.opened = Some(now);
    }

    /// Records an event. It is not applied: our own watch must deliver all events in order.
    pub(super) fn event(&mut self, now: Instant, version: &ResourceVersion) {
        self.ahead = Some((version.clone(), now));
    }

    /// Records a bookmark. Returns whether nothing is missing up to the target, so that the watch is no longer needed.
    pub(super) fn bookmark(&mut self, bookmark: &Bookmark, cache: &CacheState) -> bool {
        self.heard = true;
        if bookmark.version.is_older_than(&self.target.version) {
            return false;
        }
        self.complete = true;
        // If the short watch is ahead, our own watch may deliver the change shortly. The comparison then follows at the
        // end of the short watch.
        self.ahead.as_ref().is_none_or(|(ahead, _)| !cache.is_new_version(ahead))
    }

    /// Records the regular end. `trusted` is set if the end itself is a proof.
    pub(super) fn ended(&mut self, now: Instant, trusted: bool) {
        let quiet = self.ahead.as_ref().is_none_or(|(_, at)| now.since(*at) >= SHORT_WATCH_GRACE);
        // A slow server may end a brief watch before sending anything.
        let lasted = !self.brief || self.opened.is_some_and(|opened| now.since(opened) >= SHORT_WATCH_GRACE / 2);
        // A bookmark below the probe's version means that this watch has not reached it, even if the server reported
        // the version as reached.
        self.complete |= trusted && quiet && lasted && !self.heard;
    }

    /// Returns the evidence so far.
    pub(super) fn shown(&self) -> ShortWatchResult {
        ShortWatchResult {
            target: self.target.clone(),
            ahead: self.ahead.clone().map(|(ahead, _)| ahead),
            complete: self.complete,
            heard: self.heard,
        }
    }
}
