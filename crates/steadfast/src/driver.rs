//! Driver of one informer: passes arrivals to the reflector and executes its actions.

mod actions;
mod cache_writer;
mod command;
mod commands;
mod deadline_timer;
mod decoding;
mod diagnostic_queue;
mod edits;
mod log_throttle;
mod metadata_diff;
mod object_decoder;
mod ordering_detector;
mod publishing;
mod records;
mod requests;
#[cfg(feature = "checkpoint")]
mod restoring;
mod resyncs;
mod transfer;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use steadfast_core::Instant;
use steadfast_core::decode::{Cacheable, Encoding};
use steadfast_core::freshness::FreshnessState;
use steadfast_core::reflector::{Diagnostic, Failure, FailureKind, Input, ListHints, Reflector, RequestId};
use tokio::sync::{mpsc, watch};

#[cfg(feature = "checkpoint")]
use crate::cache_storage::CacheStorage;
use crate::connection::{Freezes, TransferSlot};
use crate::probes::Probed;
use crate::responses::{Arrival, RequestBuilder};
use crate::shared::Shared;
use crate::transport::ConnectionEvent;
use cache_writer::CacheWriter;
pub(crate) use command::Command;
use deadline_timer::DeadlineTimer;
use diagnostic_queue::DiagnosticQueue;
use metadata_diff::MetadataDiff;
pub(crate) use object_decoder::{ObjectDecoder, Transform};
use ordering_detector::OrderingDetector;
use requests::{Parser, Requests};
use resyncs::Resyncs;
use transfer::Transfer;

/// Maximum number of body chunks processed before other informers on this thread run; a time limit applies too.
const MAX_CONSECUTIVE_ARRIVALS: u32 = 16;
const MAX_STEP_DURATION: Duration = Duration::from_millis(2);

/// Maximum time that processed changes wait for more buffered data, to be published together. A publication costs more
/// than a change. Without buffered data changes are published immediately.
const MAX_PUBLICATION_DELAY: Duration = Duration::from_micros(250);

/// Duration of JSON requests after a protobuf response failed to decode. Paged lists replace streamed ones for the same
/// period.
const JSON_FALLBACK_DURATION: Duration = Duration::from_secs(30 * 60);

/// Size limits of a driver in bytes.
pub(crate) struct Limits {
    /// Maximum size of a record.
    pub(crate) object: usize,
    /// Maximum size of the cache.
    pub(crate) memory: Option<usize>,
}

pub(crate) struct Driver<K: Send + Sync + 'static> {
    shared: Arc<Shared<K>>,
    reflector: Reflector,
    request_builder: RequestBuilder,
    limits: Limits,
    requests: Requests,
    writer: CacheWriter<K>,
    diagnostics: DiagnosticQueue,
    transfer: Transfer,
    comparison: Option<MetadataDiff>,
    commands: mpsc::UnboundedReceiver<Command>,
    reachable: watch::Receiver<u64>,
    timer: DeadlineTimer,
    freezes: Freezes,
    resyncs: Resyncs<K>,
    ordering: OrderingDetector,
    /// Time of the oldest unpublished change.
    unpublished: Option<Instant>,
    #[cfg(feature = "checkpoint")]
    storage: Option<Box<dyn CacheStorage<K>>>,
    _ending: EndGuard<K>,
}

/// Marks the informer as ended when the driver task exits, including on panic.
struct EndGuard<K: Send + Sync + 'static>(Arc<Shared<K>>);

impl<K: Send + Sync + 'static> Drop for EndGuard<K> {
    fn drop(&mut self) {
        self.0.lifetime.end();
    }
}

enum Wakeup {
    Command(Option<Command>),
    Arrival(RequestId, Arrival),
    Granted(TransferSlot),
    Reachable,
    Freeze,
    Timer,
    /// No more buffered data.
    Quiet,
    /// Nothing to do except the drop of unused decoded objects.
    Idle,
}

impl<K: Cacheable> Driver<K> {
    pub(crate) fn new(
        shared: Arc<Shared<K>>,
        reflector: Reflector,
        request_builder: RequestBuilder,
        object_decoder: ObjectDecoder<K>,
        limits: Limits,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let reachable = request_builder.connection.reachability();
        let faults = reflector.evidence().faults;
        Self {
            timer: DeadlineTimer::new(shared.environment.clone()),
            freezes: request_builder.connection.freezes(),
            requests: Requests::new(shared.counted.clone()),
            writer: CacheWriter::new(shared.clone(), object_decoder, limits.memory, faults),
            diagnostics: DiagnosticQueue::default(),
            #[cfg(feature = "checkpoint")]
            storage: None,
            _ending: EndGuard(shared.clone()),
            shared,
            reflector,
            request_builder,
            limits,
            transfer: Transfer::None,
            comparison: None,
            commands,
            reachable,
            resyncs: Resyncs::default(),
            ordering: OrderingDetector::default(),
            unpublished: None,
        }
    }

    /// Runs until the informer is stopped or its last handle is dropped.
    pub(crate) async fn run(mut self) {
        // The `Drop` of an object is user code, and runs within `work`. Panics of other user code are caught closer to
        // the call.
        let handlers = if let Ok(handlers) = AssertUnwindSafe(self.work()).catch_unwind().await {
            self.step(Input::Stop);
            handlers
        } else {
            self.mark_broken();
            true
        };
        // `add_handler` rejects new handlers after the stop, so `close_handlers` misses none.
        self.shared.stop();
        if handlers {
            self.shared.close_handlers();
        }
        self.shared.drop_diagnostic_callbacks();
    }

    /// Returns the driver unchanged, since no cache is stored.
    #[cfg(not(feature = "checkpoint"))]
    pub(crate) fn with_storage(self, _storage: crate::cache_storage::RequestedStorage<K>) -> Self {
        self
    }

    /// Starts with the first list.
    #[cfg(not(feature = "checkpoint"))]
    fn begin(&mut self) -> std::future::Ready<Option<bool>> {
        self.step(Input::Start);
        std::future::ready(None)
    }

    /// Runs until the end, and returns true if the handlers must end too.
    async fn work(&mut self) -> bool {
        if let Some(handlers) = self.begin().await {
            return handlers;
        }
        let (mut arrivals, mut took) = (0, Duration::ZERO);
        loop {
            match self.next().await {
                Wakeup::Command(command) => {
                    if let Some(handlers) = self.execute(command) {
                        return handlers;
                    }
                }
                Wakeup::Granted(place) => {
                    self.transfer = Transfer::Held(place);
                    // The wait for the slot may have been long. The cache and the knowledge about the server may have
                    // changed since.
                    self.reflector.set_list_hints(self.list_hints());
                    self.step(Input::TransferGranted);
                }
                Wakeup::Reachable => self.step(Input::Reachable),
                Wakeup::Freeze => self.check_for_freeze(self.shared.environment.now()),
                Wakeup::Timer => self.timer_fired(),
                Wakeup::Quiet => {
                    let begun = self.shared.environment.now();
                    self.flush();
                    took += self.shared.environment.now().since(begun);
                }
                Wakeup::Idle => {
                    self.writer.sweep();
                    tokio::task::yield_now().await;
                }
                Wakeup::Arrival(id, arrival) => {
                    let begun = self.shared.environment.now();
                    self.check_for_freeze(begun);
                    self.arrived(begun, id, arrival);
                    arrivals += 1;
                    let now = self.shared.environment.now();
                    let rests = arrivals == MAX_CONSECUTIVE_ARRIVALS || took + now.since(begun) > MAX_STEP_DURATION;
                    if self.unpublished.is_some_and(|since| rests || now.since(since) > MAX_PUBLICATION_DELAY) {
                        self.flush();
                    }
                    took += self.shared.environment.now().since(begun);
                    if rests || took > MAX_STEP_DURATION {
                        // All informers of an environment share its threads. A large list must not starve their pings
                        // and deadlines.
                        (arrivals, took) = (0, Duration::ZERO);
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    /// Handles a freeze of the process since the last call: data that was not read until `now` may be old.
    fn check_for_freeze(&mut self, now: Instant) {
        if self.freezes.take(now) {
            self.timer.restart();
            self.step_at(now, Input::Frozen);
        }
    }

    /// Processes a timer event.
    fn timer_fired(&mut self) {
        if self.timer.is_due() {
            self.step(Input::Tick);
            self.resync();
            // A busy watch must not postpone the drop of unused objects.
            if self.writer.next_sweep().is_some_and(|next| next <= self.shared.environment.now()) {
                self.writer.sweep();
            }
        }
    }

    /// Marks the informer as broken: it ended without being stopped.
    fn mark_broken(&mut self) {
        let reason = "the informer failed: dropping an object panicked";
        tracing::error!(informer = %self.shared.name, "{reason}");
        self.shared.lifetime.mark_broken();
        let mut evidence = self.reflector.evidence().clone();
        evidence.set_state(self.shared.environment.now(), FreshnessState::Stopped, reason);
        self.shared.publish_state(&evidence);
    }

    async fn next(&mut self) -> Wakeup {
        // The next deadline.
        let deadlines = [self.reflector.wake_at(), self.resyncs.next(), self.writer.next_sweep()];
        self.timer.set(deadlines.into_iter().flatten().min());
        let Self { commands, requests, transfer, reachable, freezes, timer, unpublished, writer, .. } = self;
        let granted = async {
            match transfer {
                Transfer::Awaited(place) => place.await,
                Transfer::None | Transfer::Held(_) => std::future::pending().await,
            }
        };
        // The order matters. Commands and granted slots come first, because a busy watch must not delay them. The timer
        // comes before arrivals, because a deadline must fire under a steady stream of data. `Quiet` follows, because it
        // reports that no other input is ready. `Idle` comes last, because its work can wait for a publication.
        tokio::select! {
            biased;
            command = commands.recv() => Wakeup::Command(command),
            place = granted => Wakeup::Granted(place),
            Ok(()) = reachable.changed() => Wakeup::Reachable,
            () = freezes.detected() => Wakeup::Freeze,
            () = timer.fired() => Wakeup::Timer,
            (id, arrival) = poll_fn(|context| requests.poll_next(context)) => Wakeup::Arrival(id, arrival),
            () = std::future::ready(()), if unpublished.is_some() => Wakeup::Quiet,
            () = std::future::ready(()), if writer.is_sweeping() => Wakeup::Idle,
        }
    }

    /// Returns the hints for the choice of the next list.
    fn list_hints(&self) -> ListHints {
        ListHints {
            protobuf: self.request_builder.requests_protobuf(),
            protobuf_failed: !self.request_builder.protobuf_works(),
            cached_objects: self.shared.snapshot().len(),
            metadata_only: self.request_builder.metadata_only,
        }
    }

    /// Processes an arrival that was read before `now`. Its records have this time: a later time could follow another
    /// freeze of the process.
    fn arrived(&mut self, now: Instant, id: RequestId, arrival: Arrival) {
        match arrival {
            // After a freeze, the request may have been cancelled when its head had already arrived.
            Arrival::Opened(_) if !self.requests.is_in_flight(id) => {}
            Arrival::Opened(encoding) => {
                self.requests.opened(id, encoding, self.limits.object);
                self.step(Input::Opened(id));
            }
            Arrival::Chunk(chunk) => {
                // Without a parser the request was cancelled, and the rest of its body is ignored.
                if let Some(parser) = self.requests.take(id) {
                    self.chunk(now, id, chunk, parser);
                }
            }
            Arrival::ConnectionEvent(ConnectionEvent::Leave(true)) => self.step(Input::ConnectionEnding(id)),
            Arrival::ConnectionEvent(ConnectionEvent::Leave(false)) => self.step(Input::ConnectionHealthy(id)),
            Arrival::ConnectionEvent(ConnectionEvent::Responsive(responsive)) => {
                self.step(Input::ResponsivenessChanged(id, responsive));
            }
            Arrival::Probed(Probed { version, sent }) => {
                self.requests.ended(id);
                self.step(Input::Probed(id, version, sent));
            }
            Arrival::Ended => {
                match self.requests.ended(id) {
                    Some(Parser::Stream(framer)) => {
                        let encoding = framer.encoding();
                        match framer.finish() {
                            // A clean end is normal: API servers end each watch at its `timeoutSeconds`.
                            Ok(()) => self.step_at(now, Input::Ended(id)),
                            Err(error) => self.ended_early(id, encoding, Failure::unreachable(error.to_string())),
                        }
                    }
                    Some(Parser::List(framer, meta)) => {
                        let encoding = framer.encoding();
                        match (framer.finish(), meta) {
                            (Ok(()), Some(mut meta)) => {
                                meta.version.iter_mut().for_each(|version| self.ordering.count(version));
                                if let Some(comparison) = self.comparison.as_mut().filter(|of| of.id == Some(id)) {
                                    comparison.version.clone_from(&meta.version);
                                }
                                self.step(Input::ListEnded(id, meta));
                            }
                            // Any JSON object could be mistaken for an empty list, and an empty list would delete the
                            // whole cache.
                            (Ok(()), None) => {
                                self.ended_early(id, encoding, Failure::unreadable("the response is not a list"));
                            }
                            (Err(error), _) => {
                                self.ended_early(id, encoding, Failure::unreachable(error.to_string()));
                            }
                        }
                    }
                    None => {}
                }
            }
            Arrival::Failed(failure) => {
                self.requests.failed(id, failure.kind);
                // `406` or `415`: a server or proxy rejects this kind of request. A rejection of a metadata request
                // does not affect requests for full objects, which follow.
                if matches!(failure.code, 406 | 415) && !self.requests.is_metadata_page(id) {
                    self.doubt_protobuf(&failure);
                }
                self.step(Input::Failed(id, failure));
            }
        }
    }

    /// Processes a response that ended regularly with incomplete contents. In protobuf, a corrupted length is a likely
    /// cause.
    fn ended_early(&mut self, id: RequestId, encoding: Encoding, failure: Failure) {
        if encoding == Encoding::Protobuf && !self.requests.is_metadata_page(id) {
            self.doubt_protobuf(&failure);
        }
        self.step(Input::Failed(id, failure));
    }

    /// Processes a body chunk: parses all complete records, to be published with the next buffered chunks.
    fn chunk(&mut self, now: Instant, id: RequestId, chunk: Bytes, mut parser: Parser) {
        self.writer.begin_chunk(chunk.len());
        let read = self.writer.check_memory().and_then(|()| match &mut parser {
            Parser::Stream(framer) => {
                framer.feed(chunk);
                self.read_stream(now, id, framer)
            }
            Parser::List(framer, meta) => {
                framer.feed(chunk);
                self.read_list(now, id, framer, meta)
            }
        });
        self.writer.settle(&mut self.diagnostics);
        match read {
            Ok(()) => self.requests.give_back(id, parser),
            Err(failure) => {
                // The rest of the body cannot be parsed. The reflector decides about the retry.
                self.requests.failed(id, failure.kind);
                let unreadable = failure.kind == FailureKind::Unreadable && !self.requests.is_metadata_page(id);
                if unreadable && parser.encoding() == Encoding::Protobuf {
                    self.doubt_protobuf(&failure);
                }
                let outputs = self.reflector.step(now, Input::Failed(id, failure));
                self.perform(outputs);
            }
        }
        // Later records are compared with the list's contents, so the list is committed first.
        if self.writer.has_commit() {
            self.flush();
        } else {
            self.unpublished.get_or_insert(now);
        }
    }

    /// Requests JSON for a while after protobuf failed to decode: a proxy may corrupt protobuf.
    fn doubt_protobuf(&mut self, failure: &Failure) {
        if self.request_builder.requests_protobuf() {
            // Remembered by the connection as well, so that a new informer of this resource does not fail first.
            let until = self.shared.environment.now() + JSON_FALLBACK_DURATION;
            self.request_builder.json_until = Some(until);
            self.request_builder.connection.remember_json(&self.request_builder.all_namespaces_path, until);
            self.diagnostics.push(Diagnostic::FellBackToJson { reason: failure.message.clone() });
        }
    }

    fn resync(&mut self) {
        for handler in self.resyncs.take_due(self.shared.environment.now()) {
            self.shared.resync(&handler);
        }
    }
}
