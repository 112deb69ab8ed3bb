//! A watch: streams the changes after a version, with bookmarks, until its timeout.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::collection::{Change, Collection, Following};
use super::encoding::Encoding;

/// Approximate number of bytes per write.
pub(super) const PIECE: usize = 128 << 10;

/// Maximum number of changes that are read from the log at once.
const CHANGES: usize = 64;

/// Interval of bookmarks without changes.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);

/// Time between the last bookmark and the end of a watch.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Settings of a watch.
pub(super) struct Follower {
    pub(super) of: Arc<Collection>,
    pub(super) encoding: Encoding,
    /// Indexes of the selected objects.
    pub(super) chosen: Range<usize>,
    /// End of the watch.
    pub(super) end: Option<Instant>,
    /// The client requested bookmarks.
    pub(super) bookmarks: bool,
}

impl Follower {
    /// Streams the changes after `version`.
    pub(super) fn follow(self, version: u64) -> BoxStream<'static, Bytes> {
        let end = self.end;
        let pieces = self.pieces(version);
        match end {
            // Each piece consists of whole events, so that the timeout never cuts one.
            Some(end) => pieces.take_until(sleep_until(end)).boxed(),
            None => pieces,
        }
    }

    /// Streams all objects as events, the bookmark at their end, and the later changes.
    pub(super) fn initial(self) -> BoxStream<'static, Bytes> {
        let (version, known) = self.of.snapshot();
        let (of, encoding, to) = (self.of.clone(), self.encoding, self.chosen.end);
        let objects = stream::unfold(self.chosen.start, move |mut index| {
            let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
            while index < to && piece.len() < PIECE {
                if known[index].exists {
                    encoding.event(&mut piece, &of, "ADDED", index, known[index].stamp());
                }
                index += 1;
            }
            // An empty piece ends the stream, and the caller continues with the bookmark.
            std::future::ready((!piece.is_empty()).then(|| (Bytes::from(piece), index)))
        });
        let end = Bytes::from(encoding.bookmark(version, true));
        // Changes since the snapshot follow, so that none is lost between list and watch.
        objects.chain(stream::iter([end])).chain(self.follow(version)).boxed()
    }

    fn pieces(self, version: u64) -> BoxStream<'static, Bytes> {
        let (moved, bookmark) = (self.of.moved(), self.next_bookmark());
        stream::unfold(Some((self, version, moved, bookmark)), move |state| async move {
            let (follower, mut version, mut moved, mut bookmark) = state?;
            loop {
                // The version is marked as seen before the log is read, so that a later change wakes the wait below.
                moved.mark_unchanged();
                if bookmark.is_some_and(|due| Instant::now() >= due) {
                    bookmark = follower.next_bookmark();
                    let piece = follower.encoding.bookmark(version, false);
                    return Some((Bytes::from(piece), Some((follower, version, moved, bookmark))));
                }
                let changes = match follower.of.after(version, CHANGES) {
                    // An error event ends the watch, as on a real server.
                    Following::Forgotten => return Some((Bytes::from(follower.encoding.expired()), None)),
                    Following::Changes(changes) => changes,
                };
                if changes.is_empty() {
                    // The sender belongs to the collection, which is kept alive here, so the channel cannot be closed.
                    match bookmark {
                        Some(due) => timeout_at(due, moved.changed()).await.unwrap_or(Ok(())).ok()?,
                        None => moved.changed().await.ok()?,
                    }
                    continue;
                }
                let piece = follower.events_since(&changes, &mut version);
                if !piece.is_empty() {
                    return Some((Bytes::from(piece), Some((follower, version, moved, bookmark))));
                }
            }
        })
        .boxed()
    }

    /// Returns the first of `changes` as events, and advances the version.
    fn events_since(&self, changes: &[Change], version: &mut u64) -> Vec<u8> {
        let mut piece = Vec::with_capacity(PIECE);
        for change in changes {
            if self.chosen.contains(&change.index) {
                self.encoding.event(&mut piece, &self.of, change.event_type, change.index, change.stamp);
            }
            // The version also advances with objects that are not selected, so that bookmarks stay current.
            *version = change.stamp.version;
            if piece.len() >= PIECE {
                break;
            }
        }
        piece
    }

    /// Returns the time of the next bookmark.
    fn next_bookmark(&self) -> Option<Instant> {
        let now = Instant::now();
        // A bookmark shortly before the timeout makes the next watch start at a recent version (KEP-956).
        let last = self.end.and_then(|end| end.checked_sub(LAST_BOOKMARK)).filter(|last| *last > now);
        self.bookmarks.then(|| last.map_or(now + BOOKMARK_INTERVAL, |last| last.min(now + BOOKMARK_INTERVAL)))
    }
}
