//! A watch: streams the changes after a version, with bookmarks, until its timeout.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::collection::{Change, ChangesAfter, Collection};
use super::encoding::Encoding;

/// Approximate number of bytes per write.
pub(super) const CHUNK_BYTES: usize = 128 << 10;

/// Maximum number of changes that are read from the log in one step.
const MAX_CHANGES_PER_READ: usize = 64;

/// Interval of bookmarks without changes.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);

/// Time between the last bookmark and the end of a watch.
const LAST_BOOKMARK_LEAD: Duration = Duration::from_secs(2);

/// Settings of a watch.
pub(super) struct Follower {
    pub(super) collection: Arc<Collection>,
    pub(super) encoding: Encoding,
    /// Indexes of the selected objects.
    pub(super) selected: Range<usize>,
    /// End of the watch.
    pub(super) end: Option<Instant>,
    /// The client requested bookmarks.
    pub(super) bookmarks: bool,
}

impl Follower {
    /// Streams the changes after `version`.
    pub(super) fn follow(self, version: u64) -> BoxStream<'static, Bytes> {
        let end = self.end;
        let chunks = self.chunks(version);
        match end {
            // Each piece consists of whole events, so that the timeout never cuts one.
            Some(end) => chunks.take_until(sleep_until(end)).boxed(),
            None => chunks,
        }
    }

    /// Streams all objects as events, the bookmark at their end, and the later changes.
    pub(super) fn list_and_follow(self) -> BoxStream<'static, Bytes> {
        let (version, listed) = self.collection.snapshot();
        let (collection, encoding, end_index) = (self.collection.clone(), self.encoding, self.selected.end);
        let objects = stream::unfold(self.selected.start, move |mut index| {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
            while index < end_index && chunk.len() < CHUNK_BYTES {
                if listed[index].exists {
                    encoding.append_event(&mut chunk, &collection, "ADDED", index, listed[index].values());
                }
                index += 1;
            }
            // An empty piece ends the stream, and the caller continues with the bookmark.
            std::future::ready((!chunk.is_empty()).then(|| (Bytes::from(chunk), index)))
        });
        let end = Bytes::from(encoding.bookmark(version, true));
        // Changes since the snapshot follow, so that none is lost between list and watch.
        objects.chain(stream::iter([end])).chain(self.follow(version)).boxed()
    }

    fn chunks(self, version: u64) -> BoxStream<'static, Bytes> {
        let (version_changes, bookmark) = (self.collection.versions(), self.next_bookmark());
        stream::unfold(Some((self, version, version_changes, bookmark)), move |state| async move {
            let (follower, mut version, mut version_changes, mut bookmark) = state?;
            loop {
                // The version is marked as seen before the log is read, so that a later change wakes the wait below.
                version_changes.mark_unchanged();
                if bookmark.is_some_and(|bookmark_at| Instant::now() >= bookmark_at) {
                    bookmark = follower.next_bookmark();
                    let chunk = follower.encoding.bookmark(version, false);
                    return Some((Bytes::from(chunk), Some((follower, version, version_changes, bookmark))));
                }
                let changes = match follower.collection.changes_after(version, MAX_CHANGES_PER_READ) {
                    // An error event ends the watch, as on a real server.
                    ChangesAfter::Expired => return Some((Bytes::from(follower.encoding.expired_event()), None)),
                    ChangesAfter::Changes(changes) => changes,
                };
                if changes.is_empty() {
                    // The sender belongs to the collection, which is kept alive here, so the channel cannot be closed.
                    match bookmark {
                        Some(bookmark_at) => {
                            timeout_at(bookmark_at, version_changes.changed()).await.unwrap_or(Ok(())).ok()?;
                        }
                        None => version_changes.changed().await.ok()?,
                    }
                    continue;
                }
                let chunk = follower.events_of(&changes, &mut version);
                if !chunk.is_empty() {
                    return Some((Bytes::from(chunk), Some((follower, version, version_changes, bookmark))));
                }
            }
        })
        .boxed()
    }

    /// Returns the first of `changes` as events, and advances the version.
    fn events_of(&self, changes: &[Change], version: &mut u64) -> Vec<u8> {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        for change in changes {
            if self.selected.contains(&change.index) {
                self.encoding.append_event(
                    &mut chunk,
                    &self.collection,
                    change.event_type,
                    change.index,
                    change.values,
                );
            }
            // The version also advances with objects that are not selected, so that bookmarks stay current.
            *version = change.values.version;
            if chunk.len() >= CHUNK_BYTES {
                break;
            }
        }
        chunk
    }

    /// Returns the time of the next bookmark.
    fn next_bookmark(&self) -> Option<Instant> {
        let now = Instant::now();
        // A bookmark shortly before the timeout makes the next watch start at a recent version (KEP-956).
        let last = self.end.and_then(|end| end.checked_sub(LAST_BOOKMARK_LEAD)).filter(|last| *last > now);
        self.bookmarks.then(|| last.map_or(now + BOOKMARK_INTERVAL, |last| last.min(now + BOOKMARK_INTERVAL)))
    }
}
