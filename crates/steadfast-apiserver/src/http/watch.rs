//! Watches: which events a stream is sent, and when.

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

use super::answer::Answer;
use super::body::CHUNK_BYTES;
use super::exchange::Exchange;
use super::negotiate::Encoding;
use super::options::{ListOptions, invalid};
use super::rendering::{Rendering, Shown};
use super::target::Target;
use super::{encode, read};
use crate::cluster::Cluster;
use crate::protobuf;
use crate::records::Transfer;
use crate::resources::GroupResource;
use crate::selector::Selector;
use crate::status::Status;
use crate::storage::{Change, Source};
use crate::streams::StreamControl;

/// How long before a watch's own end its last bookmark comes.
const BEFORE_THE_END: Duration = Duration::from_secs(2);
/// How many changes are looked at under one lock.
const BATCH: usize = 256;

/// Where a watch begins.
struct Start {
    source: Source,
    /// Events above this revision are sent.
    after: u64,
    /// The objects sent first, as `ADDED`.
    initial: VecDeque<Arc<Change>>,
    /// The end of the initial objects comes with this revision.
    announce_end: bool,
    /// No bookmark is sent that is not above this.
    told: u64,
}

/// Answers with a stream of events.
pub(super) async fn watch(
    exchange: &Exchange,
    target: &Target,
    options: &ListOptions,
    selector: Selector,
    rendering: Rendering,
) -> Result<Answer, Status> {
    let transfer = exchange.entry_verb.is_full_transfer().then(|| exchange.cluster.requests.begin_transfer());
    let cluster = Arc::clone(&exchange.cluster);
    let now = Instant::now();
    let start = match start(exchange, target, options, &selector).await {
        Ok(start) => start,
        Err(Refusal::Plain(status)) => return Err(status),
        Err(Refusal::InStream(status)) => return Ok(error_event(&status, rendering.encoding)),
    };
    let content_type = rendering.encoding.of_events();
    let deadline = now + options.timeout.unwrap_or_else(|| cluster.draw_watch_timeout());
    let mut stream = WatchStream {
        control: cluster.replicas[exchange.replica].streams.open(exchange.entry.id()),
        changes: cluster.changed.subscribe(),
        life: cluster.store.read(|state| state.caches[exchange.replica].life),
        replica: exchange.replica,
        request: exchange.entry.id(),
        resource: target.resource.store().clone(),
        namespace: target.namespace.clone(),
        selector,
        rendering,
        source: start.source,
        cursor: start.after,
        told: start.after,
        floor: start.told,
        initial: start.initial,
        announce_end: start.announce_end,
        transfer,
        bookmarks: options.bookmarks,
        deadline,
        next_bookmark: now,
        last_taken: now,
        over: false,
        cluster,
    };
    stream.schedule_bookmark(now);
    let chunks = stream::unfold(stream, async |mut stream| {
        let chunk = stream.next_chunk().await?;
        Some((chunk, stream))
    });
    Ok(Answer::stream(Box::pin(chunks)).of_type(content_type))
}

/// How a watch is refused.
enum Refusal {
    Plain(Status),
    /// With HTTP 200 and an `ERROR` event.
    InStream(Status),
}

/// The answer to a watch that fails where HTTP has already said yes.
pub(super) fn error_event(status: &Status, encoding: Encoding) -> Answer {
    error_object(&status.to_value(), encoding)
}

/// The response to a watch with one `ERROR` event whose object is `object`.
pub(super) fn error_object(object: &Value, encoding: Encoding) -> Answer {
    let message = if encoding == Encoding::Protobuf { protobuf::encode(object) } else { None };
    let event = message.map_or_else(
        || [&encode::json(&json!({"type": "ERROR", "object": object}))[..], b"\n"].concat(),
        |object| protobuf::event("ERROR", &object),
    );
    Answer::stream(Box::pin(stream::iter([Bytes::from(event)]))).of_type(encoding.of_events())
}

async fn start(
    exchange: &Exchange,
    target: &Target,
    options: &ListOptions,
    selector: &Selector,
) -> Result<Start, Refusal> {
    let (cluster, replica) = (&exchange.cluster, exchange.replica);
    let (refuse, ignore, repeat) = cluster.replicas[replica]
        .conditions
        .look(|now| (now.refuse_streamed_lists, now.ignore_streamed_lists, now.repeat_events));
    if options.send_initial_events == Some(true) && refuse {
        let why = "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        return Err(Refusal::Plain(invalid("sendInitialEvents", why)));
    }
    let streamed = options.send_initial_events.filter(|_| !ignore);
    // A server that streams lists takes a watch from nowhere for one, and tells of the end of the initial events too.
    let streams = !refuse && !ignore;
    if streamed == Some(true) {
        let version = match options.version {
            None => {
                read::etcd_answers(cluster, replica).await.map_err(Refusal::Plain)?;
                cluster.store.read(crate::storage::State::revision)
            }
            Some(version) => version,
        };
        let reached = read::not_older_than(cluster, replica, version).await.map_err(Refusal::InStream)?;
        return Ok(from_objects(exchange, target, selector, Source::Cache, reached, true));
    }
    match options.version {
        None if streamed.is_none() => {
            read::etcd_answers(cluster, replica).await.map_err(Refusal::Plain)?;
            let newest = cluster.store.read(crate::storage::State::revision);
            Ok(from_objects(exchange, target, selector, Source::Etcd, newest, streams))
        }
        Some(0) if streamed.is_none() => {
            let applied = cluster.store.read(|state| state.caches[replica].applied);
            Ok(from_objects(exchange, target, selector, Source::Cache, applied, streams))
        }
        None | Some(0) => {
            let applied = cluster.store.read(|state| state.caches[replica].applied);
            Ok(from_version(applied))
        }
        Some(version) => {
            let window = cluster.store.read(|state| state.caches[replica].window);
            if version < window {
                return Err(Refusal::InStream(Status::too_old_resource_version(version, window)));
            }
            Ok(cluster.store.read(|state| {
                let resource = target.resource.store();
                let applied = state.caches[replica].applied;
                let mut start = from_version(version);
                start.after = state.before(resource, version, repeat);
                // The changes that there are already, those too that are not for this watch.
                start.told = state.last_change(resource, applied).max(version);
                start
            }))
        }
    }
}

fn from_version(version: u64) -> Start {
    Start { source: Source::Cache, after: version, initial: VecDeque::new(), announce_end: false, told: version }
}

fn from_objects(
    exchange: &Exchange,
    target: &Target,
    selector: &Selector,
    source: Source,
    revision: u64,
    announce_end: bool,
) -> Start {
    let initial = exchange.cluster.store.read(|state| {
        let all = state.objects_at(target.resource.store(), target.namespace.as_deref(), Bound::Unbounded, revision);
        all.map(|(_, change)| change)
            .filter(|change| change.object.as_deref().is_some_and(|object| selector.matches(object)))
            .cloned()
            .collect()
    });
    Start { source, after: revision, initial, announce_end, told: revision }
}

/// A watch under way.
struct WatchStream {
    cluster: Arc<Cluster>,
    control: Arc<StreamControl>,
    changes: Receiver<()>,
    /// The replica's life in which it began.
    life: u64,
    replica: usize,
    request: u64,
    resource: GroupResource,
    namespace: Option<String>,
    selector: Selector,
    rendering: Rendering,
    source: Source,
    /// Everything up to this revision was sent, or was not this watch's.
    cursor: u64,
    /// The revision of the last event sent, or where it began.
    told: u64,
    /// No bookmark is sent that is not above this: a real server drops one that is not above the version that the watch
    /// began at and the last change that its cache had then, whether that was sent or was not this watch's.
    floor: u64,
    initial: VecDeque<Arc<Change>>,
    announce_end: bool,
    /// The full transfer, until the initial objects are sent.
    transfer: Option<Transfer>,
    bookmarks: bool,
    deadline: Instant,
    next_bookmark: Instant,
    /// When the client last took something.
    last_taken: Instant,
    over: bool,
}

/// What the store has for a watch.
struct News {
    changes: Vec<Arc<Change>>,
    /// What `cursor` is when they are sent.
    cursor: u64,
    waiting: usize,
    gone: bool,
}

impl WatchStream {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if self.over || self.is_over() {
                return None;
            }
            self.changes.mark_unchanged();
            if self.is_blocked() {
                self.wait(false).await;
                continue;
            }
            if let Some(chunk) = self.initial_chunk() {
                return Some(chunk);
            }
            let news = self.news();
            // Whatever stopped the stream while it looked was meant for what it saw.
            if self.is_blocked() {
                continue;
            }
            if news.gone || self.is_too_slow(news.waiting) {
                return None;
            }
            self.cursor = self.cursor.max(news.cursor);
            self.last_taken = Instant::now();
            let mut buffer = BytesMut::new();
            self.rendering.spoiled =
                self.cluster.replicas[self.replica].conditions.look(|now| Arc::clone(&now.spoiled));
            for change in &news.changes {
                self.put_event(&mut buffer, change);
                self.told = change.revision;
            }
            if buffer.is_empty() && news.waiting == 0 && self.bookmark_is_due() {
                self.put_bookmark(&mut buffer, self.reached(), false);
            }
            if !buffer.is_empty() {
                return Some(buffer.freeze());
            }
            if news.waiting == 0 {
                self.wait(true).await;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.control.is_ended() || Instant::now() >= self.deadline
    }

    fn is_blocked(&self) -> bool {
        self.control.is_stalled() || self.cluster.replicas[self.replica].conditions.look(|now| now.frozen)
    }

    /// The server gives up a client that takes nothing while events pile up.
    fn is_too_slow(&self, waiting: usize) -> bool {
        let settings = &self.cluster.settings;
        waiting > settings.watch_backlog && self.last_taken.elapsed() > settings.watch_patience
    }

    /// Waits for a change, for the next bookmark, or for the end.
    async fn wait(&mut self, for_bookmark: bool) {
        let until = if for_bookmark && self.bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline };
        tokio::select! {
            biased;
            changed = self.changes.changed() => self.over |= changed.is_err(),
            () = sleep_until(until) => {}
        }
    }

    fn initial_chunk(&mut self) -> Option<Bytes> {
        let mut buffer = BytesMut::new();
        while buffer.len() < CHUNK_BYTES
            && let Some(change) = self.initial.pop_front()
        {
            self.put_line(&mut buffer, "ADDED", &change, Shown::Now);
        }
        if self.initial.is_empty() {
            self.transfer = None;
            if std::mem::take(&mut self.announce_end) {
                let conditions = &self.cluster.replicas[self.replica].conditions;
                let (silent, unannotated) =
                    conditions.look(|now| (now.no_initial_events_end, now.unannotated_initial_events_end));
                if self.bookmarks && !silent {
                    self.put_bookmark(&mut buffer, self.cursor, !unannotated);
                }
            }
        }
        (!buffer.is_empty()).then(|| buffer.freeze())
    }

    fn news(&self) -> News {
        self.cluster.store.read(|state| {
            let cache = &state.caches[self.replica];
            let upto = match self.source {
                Source::Cache => cache.applied,
                Source::Etcd => cache.frozen_at.unwrap_or(state.revision()),
            };
            // A definition that changes is served anew, and its streams are those of what it was.
            let served = state.registry.get(&self.resource);
            let same = served.is_some_and(|now| !now.custom || Arc::ptr_eq(now, &self.rendering.resource));
            let gone = cache.life != self.life || !same;
            let (mut changes, waiting) = state.changes(&self.resource, self.cursor, upto, BATCH);
            let cursor = if waiting == 0 { upto } else { changes.last().map_or(upto, |last| last.revision) };
            changes.retain(|change| !cache.has_lost(change.revision));
            // What is gone takes its streams along once they have told of its last objects.
            News { gone: gone && changes.is_empty(), changes, cursor, waiting }
        })
    }

    fn put_event(&mut self, buffer: &mut BytesMut, change: &Change) {
        if self.namespace.is_some() && change.namespace != self.namespace {
            return;
        }
        let selected = |object: Option<&Arc<serde_json::Value>>| {
            object.is_some_and(|object| self.selector.is_everything() || self.selector.matches(object))
        };
        match (selected(change.previous.as_ref()), selected(change.object.as_ref())) {
            (false, true) => self.put_line(buffer, "ADDED", change, Shown::Now),
            (true, true) => self.put_line(buffer, "MODIFIED", change, Shown::Now),
            (true, false) => self.put_line(buffer, "DELETED", change, Shown::Deleted),
            (false, false) => {}
        }
    }

    fn put_line(&mut self, buffer: &mut BytesMut, kind: &str, change: &Change, shown: Shown) {
        self.rendering.put_event(buffer, kind, |rendering, buffer| rendering.put_object(buffer, change, shown));
        self.rendering.with_columns = false;
    }

    fn bookmark_is_due(&mut self) -> bool {
        let now = Instant::now();
        if !self.bookmarks || now < self.next_bookmark {
            return false;
        }
        self.schedule_bookmark(now);
        let silent = self.cluster.replicas[self.replica].conditions.look(|now| now.no_bookmarks);
        !silent && self.reached() > self.floor
    }

    /// The revision that a bookmark tells.
    fn reached(&self) -> u64 {
        let replica = &self.cluster.replicas[self.replica];
        if replica.conditions.look(|now| now.rare_progress) {
            return self.told.max(self.cursor.min(replica.asked_for.load(Ordering::Relaxed)));
        }
        self.cursor
    }

    /// One period from now, or shortly before the end where that comes earlier.
    fn schedule_bookmark(&mut self, now: Instant) {
        let heartbeat = now + self.cluster.settings.bookmark_period;
        let last = self.deadline.checked_sub(BEFORE_THE_END).filter(|&last| last > now && last < heartbeat);
        self.next_bookmark = last.unwrap_or(heartbeat);
    }

    fn put_bookmark(&mut self, buffer: &mut BytesMut, reached: u64, initial_events_end: bool) {
        let bookmark = |rendering: &Rendering, buffer: &mut BytesMut| {
            rendering.put_bookmark(buffer, reached, initial_events_end);
        };
        self.rendering.put_event(buffer, "BOOKMARK", bookmark);
        self.rendering.with_columns = false;
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.cluster.replicas[self.replica].streams.close(self.request);
    }
}
