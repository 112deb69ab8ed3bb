//! Watches: selection and timing of the events of a stream.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, sleep_until};

use super::body::CHUNK_BYTES;
use super::exchange::Exchange;
use super::negotiate::Encoding;
use super::options::{ListOptions, invalid};
use super::read;
use super::rendering::{RenderedState, Rendering};
use super::response::ApiResponse;
use super::target::Target;
use crate::backend::{ChangeBatch, ChangesQuery, ListQuery, WatchPosition};
use crate::cluster::Cluster;
use crate::encode;
use crate::protobuf;
use crate::records::Transfer;
use crate::selector::Selector;
use crate::status::Status;
use crate::storage::{Change, ReadSource};
use crate::streams::StreamControl;

/// Time between a watch's last bookmark and its end.
const LAST_BOOKMARK_LEAD: Duration = Duration::from_secs(2);
/// Maximum number of changes read in one step.
const MAX_BATCH_CHANGES: usize = 256;

/// Start of a watch.
struct WatchStart {
    source: ReadSource,
    /// Events above this revision are sent.
    after_revision: u64,
    /// Objects sent first, as `ADDED`.
    initial_objects: VecDeque<Arc<Change>>,
    /// True if a bookmark with the revision `after_revision` follows the initial objects.
    announce_end: bool,
    /// Revision that bookmarks must exceed.
    bookmark_floor: u64,
}

/// Responds with a stream of events.
pub(super) async fn watch(
    exchange: &Exchange,
    target: &Target,
    options: &ListOptions,
    selector: Selector,
    rendering: Rendering,
) -> Result<ApiResponse, Status> {
    // The transfer starts before the first await, so that waiting transfers count as concurrent too.
    let transfer = exchange.recorded_verb.is_full_transfer().then(|| exchange.cluster.requests.start_transfer());
    let cluster = Arc::clone(&exchange.cluster);
    // The timeout counts from the request, including the wait for the initial state.
    let now = Instant::now();
    let start = match determine_start(exchange, target, options, &selector).await {
        Ok(start) => start,
        Err(WatchRejection::Plain(status)) => return Err(status),
        Err(WatchRejection::InStream(status)) => return Ok(error_event(&status, rendering.encoding)),
    };
    let content_type = rendering.encoding.event_content_type();
    let deadline = now + options.timeout.unwrap_or_else(|| cluster.draw_watch_timeout());
    let mut stream = WatchStream {
        control: cluster.replicas[exchange.replica].streams.open(exchange.entry.id()),
        changes: cluster.changed.subscribe(),
        // A restart of the cache increments the number of restarts, which ends this stream.
        restarts: exchange.backend().restarts(),
        replica: exchange.replica,
        request: exchange.entry.id(),
        namespace: target.namespace.clone(),
        selector,
        rendering,
        source: start.source,
        cursor: start.after_revision,
        last_sent: start.after_revision,
        bookmark_floor: start.bookmark_floor,
        initial_objects: start.initial_objects,
        announce_end: start.announce_end,
        transfer,
        allow_bookmarks: options.allow_bookmarks,
        deadline,
        next_bookmark: now,
        chunk_returned_at: None,
        read_delay: Duration::ZERO,
        is_finished: false,
        cluster,
    };
    stream.schedule_bookmark(now);
    let chunks = stream::unfold(stream, async |mut stream| {
        stream.record_read();
        let chunk = stream.next_chunk().await?;
        stream.chunk_returned_at = Some(Instant::now());
        Some((chunk, stream))
    });
    Ok(ApiResponse::stream(Box::pin(chunks)).with_content_type(content_type))
}

/// Rejection of a watch.
enum WatchRejection {
    Plain(Status),
    /// HTTP 200 with an `ERROR` event.
    InStream(Status),
}

/// Creates the response of a watch that fails after the HTTP status was decided.
pub(super) fn error_event(status: &Status, encoding: Encoding) -> ApiResponse {
    error_object(&status.to_value(), encoding)
}

/// Creates the response of a watch that consists of one `ERROR` event with `object`.
pub(super) fn error_object(object: &Value, encoding: Encoding) -> ApiResponse {
    let message = if encoding == Encoding::Protobuf { protobuf::encode(object) } else { None };
    let event = message.map_or_else(
        || [&encode::json(&json!({"type": "ERROR", "object": object}))[..], b"\n"].concat(),
        |object| protobuf::event("ERROR", &object),
    );
    ApiResponse::stream(Box::pin(stream::iter([Bytes::from(event)]))).with_content_type(encoding.event_content_type())
}

async fn determine_start(
    exchange: &Exchange,
    target: &Target,
    options: &ListOptions,
    selector: &Selector,
) -> Result<WatchStart, WatchRejection> {
    let backend = exchange.backend();
    let (rejects_streamed_lists, ignores_streamed_lists, repeat) = exchange
        .replica()
        .active_faults
        .read(|faults| (faults.refuse_streamed_lists, faults.ignore_streamed_lists, faults.repeat_events));
    if options.send_initial_events == Some(true) && rejects_streamed_lists {
        let detail = "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        return Err(WatchRejection::Plain(invalid("sendInitialEvents", detail)));
    }
    // A server without streamed lists ignores `sendInitialEvents`.
    let requested_initial_events = options.send_initial_events.filter(|_| !ignores_streamed_lists);
    // A server with streamed lists treats a watch without a version as a streamed list, and marks the end of its
    // initial events.
    let announces_end = !rejects_streamed_lists && !ignores_streamed_lists;
    if requested_initial_events == Some(true) {
        let version = match options.version {
            None => {
                backend.confirm_newest_revision().await.map_err(WatchRejection::Plain)?;
                backend.newest_revision()
            }
            Some(version) => version,
        };
        // A streamed list waits until the watch cache has reached the version.
        let reached = read::revision_not_older_than(exchange, version).await.map_err(WatchRejection::InStream)?;
        return from_objects(exchange, target, selector, ReadSource::Cache, reached, true).await;
    }
    match options.version {
        // An unset version is a consistent read, followed by the changes.
        None if requested_initial_events.is_none() => {
            backend.confirm_newest_revision().await.map_err(WatchRejection::Plain)?;
            from_objects(exchange, target, selector, ReadSource::Etcd, backend.newest_revision(), announces_end).await
        }
        // Version `0` accepts the state of the cache at any age.
        Some(0) if requested_initial_events.is_none() => {
            from_objects(exchange, target, selector, ReadSource::Cache, backend.cached_revision(), announces_end).await
        }
        // `sendInitialEvents=false` without a version starts at the current state of the cache.
        None | Some(0) => {
            let cached = backend.cached_revision();
            Ok(from_position(WatchPosition { after_revision: cached, bookmark_floor: cached }))
        }
        Some(version) => {
            // The real server accepts the request with HTTP 200 and reports the expired version in the stream.
            let position = backend.resume(&target.resource, version, repeat).map_err(WatchRejection::InStream)?;
            Ok(from_position(position))
        }
    }
}

fn from_position(WatchPosition { after_revision, bookmark_floor }: WatchPosition) -> WatchStart {
    WatchStart {
        source: ReadSource::Cache,
        after_revision,
        initial_objects: VecDeque::new(),
        announce_end: false,
        bookmark_floor,
    }
}

async fn from_objects(
    exchange: &Exchange,
    target: &Target,
    selector: &Selector,
    source: ReadSource,
    revision: u64,
    announce_end: bool,
) -> Result<WatchStart, WatchRejection> {
    let query = ListQuery {
        resource: &target.resource,
        namespace: target.namespace.as_deref(),
        start: Bound::Unbounded,
        revision,
        limit: 0,
        selector,
    };
    let page = exchange.backend().list(query).await.map_err(WatchRejection::Plain)?;
    Ok(WatchStart {
        source,
        after_revision: revision,
        initial_objects: page.objects.into(),
        announce_end,
        bookmark_floor: revision,
    })
}

/// A running watch.
struct WatchStream {
    cluster: Arc<Cluster>,
    control: Arc<StreamControl>,
    changes: Receiver<()>,
    /// Process lifetime of the replica in which the watch started.
    restarts: u64,
    replica: usize,
    request: u64,
    namespace: Option<String>,
    selector: Selector,
    rendering: Rendering,
    source: ReadSource,
    /// All events up to this revision were sent, or did not concern this watch.
    cursor: u64,
    /// Revision of the last change that was read, even if the watch did not select it. Starts at the start revision.
    last_sent: u64,
    /// Revision that bookmarks must exceed. A real server records the start version of the watch, and the last change
    /// in its cache at the start. It drops all bookmarks that are not above both. Changes that the watch did not
    /// receive count too.
    bookmark_floor: u64,
    initial_objects: VecDeque<Arc<Change>>,
    announce_end: bool,
    /// Full transfer until the initial objects are sent.
    transfer: Option<Transfer>,
    allow_bookmarks: bool,
    deadline: Instant,
    next_bookmark: Instant,
    /// Time at which the last chunk was returned, until the next chunk is requested.
    chunk_returned_at: Option<Instant>,
    /// Time from the return of the last chunk to the request of the next one. Zero once the pending changes have been
    /// compared with the limit.
    read_delay: Duration,
    is_finished: bool,
}

impl WatchStream {
    /// Records that the client has read the last chunk. Only the time before counts as slowness of the client: idle
    /// time, a freeze and a stalled stream pass after the request of the next chunk.
    fn record_read(&mut self) {
        self.read_delay = self.chunk_returned_at.take().map_or(Duration::ZERO, |returned_at| returned_at.elapsed());
    }

    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if self.is_finished || self.is_expired() {
                return None;
            }
            // The signal is reset before the read: a change that arrives during the read then wakes the next wait.
            self.changes.mark_unchanged();
            if self.is_blocked() {
                // The bookmark timer is off, since it would fire repeatedly while the stream is blocked. A change or
                // the deadline still ends the wait: an unblocked or expired stream must react.
                self.wait(false).await;
                continue;
            }
            if let Some(chunk) = self.initial_chunk() {
                return Some(chunk);
            }
            let pending = self.pending_changes();
            // A fault during the read applies to the changes that were read.
            if self.is_blocked() {
                continue;
            }
            // The real watch cache also ends a watch whose client reads too slowly.
            if pending.has_ended || self.is_too_slow(pending.remaining) {
                return None;
            }
            self.cursor = self.cursor.max(pending.cursor);
            // The client waits for the next chunk from here on, so further changes are not pending due to the client.
            self.read_delay = Duration::ZERO;
            let mut buffer = BytesMut::new();
            self.rendering.corrupted_objects =
                self.cluster.replicas[self.replica].active_faults.read(|faults| Arc::clone(&faults.corrupted_objects));
            for change in &pending.changes {
                self.put_event(&mut buffer, change);
                self.last_sent = change.revision;
            }
            // A bookmark's version covers all earlier events, so no event may be pending.
            if buffer.is_empty() && pending.remaining == 0 && self.is_bookmark_due() {
                self.put_bookmark(&mut buffer, self.bookmark_revision(), false);
            }
            if !buffer.is_empty() {
                return Some(buffer.freeze());
            }
            if pending.remaining == 0 {
                self.wait(true).await;
            }
        }
    }

    fn is_expired(&self) -> bool {
        // The deadline is checked between chunks, so that it never truncates an event.
        self.control.is_ended() || Instant::now() >= self.deadline
    }

    fn is_blocked(&self) -> bool {
        self.control.is_stalled() || self.cluster.replicas[self.replica].active_faults.read(|faults| faults.is_frozen)
    }

    /// Returns whether the client reads nothing while events accumulate. The server closes such a watch.
    fn is_too_slow(&self, remaining: usize) -> bool {
        let settings = &self.cluster.settings;
        remaining > settings.watch_backlog && self.read_delay > settings.slow_watch_timeout
    }

    /// Waits for a change, for the next bookmark, or for the end.
    async fn wait(&mut self, for_bookmark: bool) {
        let until =
            if for_bookmark && self.allow_bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline };
        tokio::select! {
            // A change takes precedence over a deadline of the same instant, so that runs in virtual time are
            // reproducible.
            biased;
            changed = self.changes.changed() => self.is_finished |= changed.is_err(),
            () = sleep_until(until) => {}
        }
    }

    fn initial_chunk(&mut self) -> Option<Bytes> {
        let mut buffer = BytesMut::new();
        while buffer.len() < CHUNK_BYTES
            && let Some(change) = self.initial_objects.pop_front()
        {
            self.put_line(&mut buffer, "ADDED", &change, RenderedState::Current);
        }
        if self.initial_objects.is_empty() {
            // All initial objects are sent, which ends the full transfer.
            self.transfer = None;
            if std::mem::take(&mut self.announce_end) {
                let active_faults = &self.cluster.replicas[self.replica].active_faults;
                let (is_silent, unannotated) =
                    active_faults.read(|faults| (faults.no_initial_events_end, faults.unannotated_initial_events_end));
                if self.allow_bookmarks && !is_silent {
                    self.put_bookmark(&mut buffer, self.cursor, !unannotated);
                }
            }
        }
        (!buffer.is_empty()).then(|| buffer.freeze())
    }

    fn pending_changes(&self) -> ChangeBatch {
        self.cluster.replicas[self.replica].backend.changes(&ChangesQuery {
            resource: &self.rendering.resource,
            source: self.source,
            after_revision: self.cursor,
            restarts: self.restarts,
            limit: MAX_BATCH_CHANGES,
        })
    }

    fn put_event(&mut self, buffer: &mut BytesMut, change: &Change) {
        // One log serves all namespaces of a resource. Other namespaces still advance the cursor.
        if self.namespace.is_some() && change.namespace != self.namespace {
            return;
        }
        let is_selected = |object: Option<&Arc<serde_json::Value>>| {
            object.is_some_and(|object| self.selector.is_everything() || self.selector.matches(object))
        };
        // The event depends on the selector before and after the change: for a client, an object that leaves the
        // selector is deleted.
        match (is_selected(change.previous.as_ref()), is_selected(change.object.as_ref())) {
            (false, true) => self.put_line(buffer, "ADDED", change, RenderedState::Current),
            (true, true) => self.put_line(buffer, "MODIFIED", change, RenderedState::Current),
            (true, false) => self.put_line(buffer, "DELETED", change, RenderedState::Deleted),
            (false, false) => {}
        }
    }

    fn put_line(&mut self, buffer: &mut BytesMut, kind: &str, change: &Change, state: RenderedState) {
        // Every event is written as a whole, so that chunks contain complete events only.
        self.rendering.put_event(buffer, kind, |rendering, buffer| rendering.put_object(buffer, change, state));
        self.rendering.includes_columns = false;
    }

    fn is_bookmark_due(&mut self) -> bool {
        let now = Instant::now();
        if !self.allow_bookmarks || now < self.next_bookmark {
            return false;
        }
        self.schedule_bookmark(now);
        // The schedule also advances if the bookmark is not sent.
        let is_silent = self.cluster.replicas[self.replica].active_faults.read(|faults| faults.no_bookmarks);
        !is_silent && self.bookmark_revision() > self.bookmark_floor
    }

    /// Returns the revision for a bookmark.
    fn bookmark_revision(&self) -> u64 {
        let replica = &self.cluster.replicas[self.replica];
        if replica.active_faults.read(|faults| faults.rare_progress) {
            return self.last_sent.max(self.cursor.min(replica.requested_revision.load(Ordering::Relaxed)));
        }
        self.cursor
    }

    /// Schedules the next bookmark after one period, or shortly before the end if that is earlier.
    fn schedule_bookmark(&mut self, now: Instant) {
        let heartbeat = now + self.cluster.settings.bookmark_period;
        // kube-apiserver sends a last bookmark about two seconds before the timeout, so that
        // clients resume from a recent version.
        let last_bookmark = self
            .deadline
            .checked_sub(LAST_BOOKMARK_LEAD)
            .filter(|&last_bookmark| last_bookmark > now && last_bookmark < heartbeat);
        self.next_bookmark = last_bookmark.unwrap_or(heartbeat);
    }

    fn put_bookmark(&mut self, buffer: &mut BytesMut, reached: u64, initial_events_end: bool) {
        let bookmark = |rendering: &Rendering, buffer: &mut BytesMut| {
            rendering.put_bookmark(buffer, reached, initial_events_end);
        };
        self.rendering.put_event(buffer, "BOOKMARK", bookmark);
        self.rendering.includes_columns = false;
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.cluster.replicas[self.replica].streams.close(self.request);
    }
}
