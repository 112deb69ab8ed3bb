//! Driver of one informer: passes arrivals to the reflector and executes its actions.

mod comparison;
mod deadline_timer;
mod decoding;
mod edits;
mod keeping;
mod log_throttle;
mod object_decoder;
mod ordering_detector;
mod records;
mod requests;
#[cfg(feature = "checkpoint")]
mod restoring;
mod resyncs;

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use steadfast_core::decode::{DecodeError, Encoding, Kept};
use steadfast_core::event::Event;
use steadfast_core::freshness::Condition;
use steadfast_core::record::RecordKind;
use steadfast_core::reflector::{
    Diagnostic, Failure, FailureKind, Input, ListHints, Output, Reflector, Request, RequestId, Severity,
};
use steadfast_core::store::{Staging, Store};
use steadfast_core::{Instant, ResourceVersion};
use tokio::sync::{mpsc, oneshot, watch};

#[cfg(feature = "checkpoint")]
use crate::cache_storage::CacheStorage;
use crate::connection::TransferSlot;
use crate::metrics::request_metrics::RequestMetrics;
use crate::probes::Probed;
use crate::responses::{Arrival, InflightResponses, RequestBuilder};
use crate::shared::Shared;
use crate::transport::ConnectionEvent;
use comparison::Comparison;
use deadline_timer::{DeadlineTimer, LATENESS};
use decoding::Decoding;
use edits::Edit;
use log_throttle::LogThrottle;
pub(crate) use object_decoder::{ObjectDecoder, Transform};
use ordering_detector::OrderingDetector;
use requests::{Parser, Requests};
use resyncs::Resyncs;

/// Commands from an informer's handles to its driver.
pub(crate) enum Command {
    /// Request a proof of freshness.
    SeekProof,
    /// Request the server's current version, unless a request was sent since the given time.
    Newest(Instant, oneshot::Sender<Option<ResourceVersion>>),
    /// Process newly added handlers.
    Handlers,
    /// Record that a cached object failed to decode on a read.
    Unread(DecodeError),
    /// Stop the watch. Handlers end immediately or after they have drained.
    Stop { handlers: bool },
}

/// Maximum number of body chunks processed before other informers on this thread run; a time limit applies too.
const ARRIVALS_IN_A_ROW: u32 = 16;
const TURN: Duration = Duration::from_millis(2);

/// Maximum time that processed changes wait for more buffered data, to be published together. A publication costs more
/// than a change. Without buffered data changes are published immediately.
const BATCH: Duration = Duration::from_micros(250);

/// Duration of JSON requests after a protobuf response failed to decode. Paged lists replace streamed ones for the same
/// period.
const JSON_FOR: Duration = Duration::from_secs(30 * 60);

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
    decoding: Decoding<K>,
    /// Length of the current body chunk, until an object in it is submitted for decoding.
    piece: usize,
    answers: InflightResponses,
    requests: Requests,
    staging: Option<Staging<K>>,
    transfer: Transfer,
    comparison: Option<Comparison>,
    /// Metadata page that replaces a page of a full list.
    skimmed: Option<RequestId>,
    commands: mpsc::UnboundedReceiver<Command>,
    reachable: watch::Receiver<u64>,
    timer: DeadlineTimer,
    resyncs: Resyncs<K>,
    /// Diagnostics to deliver at the next flush, in this order.
    diagnostics: Vec<Diagnostic>,
    /// Number of diagnostics that arrived later than their subject.
    late_diagnostics: usize,
    edits: Vec<Edit<K>>,
    log_throttle: LogThrottle,
    ordering: OrderingDetector,
    /// True after objects without a UID were reported.
    meets_by_name: bool,
    request_metrics: RequestMetrics,
    /// Time of the oldest unpublished change.
    unpublished: Option<Instant>,
    /// Decode errors of objects that are not in the cache yet, because a transform may read its input.
    early: Vec<DecodeError>,
    #[cfg(feature = "checkpoint")]
    keepsake: Option<Box<dyn CacheStorage<K>>>,
    _ending: Ending<K>,
}

/// Marks the informer as ended when the driver task exits, including on panic.
struct Ending<K: Send + Sync + 'static>(Arc<Shared<K>>);

impl<K: Send + Sync + 'static> Drop for Ending<K> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Slot among the concurrent full transfers of a server.
enum Transfer {
    None,
    Awaited(BoxFuture<'static, TransferSlot>),
    Held(TransferSlot),
}

enum Wake {
    Command(Option<Command>),
    Arrival(RequestId, Arrival),
    Granted(TransferSlot),
    Reachable,
    Timer,
    /// No more buffered data.
    Quiet,
}

impl<K: Kept> Driver<K> {
    pub(crate) fn new(
        shared: Arc<Shared<K>>,
        reflector: Reflector,
        request_builder: RequestBuilder,
        object_decoder: ObjectDecoder<K>,
        limits: Limits,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let reachable = request_builder.connection.reachability();
        let request_metrics = RequestMetrics::new(shared.counted.clone());
        Self {
            timer: DeadlineTimer::new(shared.environment.clone()),
            early: Vec::new(),
            #[cfg(feature = "checkpoint")]
            keepsake: None,
            _ending: Ending(shared.clone()),
            decoding: Decoding::new(object_decoder, shared.environment.clone()),
            shared,
            reflector,
            request_builder,
            limits,
            piece: 0,
            answers: InflightResponses::default(),
            requests: Requests::default(),
            staging: None,
            transfer: Transfer::None,
            comparison: None,
            skimmed: None,
            commands,
            reachable,
            resyncs: Resyncs::default(),
            diagnostics: Vec::new(),
            late_diagnostics: 0,
            edits: Vec::new(),
            log_throttle: LogThrottle::default(),
            ordering: OrderingDetector::default(),
            meets_by_name: false,
            request_metrics,
            unpublished: None,
        }
    }

    /// Runs until the informer is stopped or its last handle is dropped.
    pub(crate) async fn run(mut self) {
        // The `Drop` of an object is user code and runs in here. Other user code is caught closer to its call.
        let handlers = if let Ok(handlers) = AssertUnwindSafe(self.work()).catch_unwind().await {
            self.step(Input::Stop);
            handlers
        } else {
            self.broke();
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

    /// Executes a command. Returns `Some` if the driver must end; the value is true if the handlers must end too.
    fn obey(&mut self, command: Option<Command>) -> Option<bool> {
        match command {
            None => {
                self.shared.warn_of_handlers_left();
                return Some(true);
            }
            Some(Command::Stop { handlers }) => return Some(handlers),
            Some(Command::SeekProof) => self.step(Input::SeekProof),
            Some(Command::Newest(since, asks)) => self.find_newest(since, asks),
            Some(Command::Handlers) => self.look_after_newcomers(),
            Some(Command::Unread(error)) => self.unread(&error),
        }
        None
    }

    /// Runs until the end, and returns true if the handlers must end too.
    async fn work(&mut self) -> bool {
        if let Some(handlers) = self.begin().await {
            return handlers;
        }
        let (mut arrivals, mut took) = (0, Duration::ZERO);
        loop {
            match self.next().await {
                Wake::Command(command) => {
                    if let Some(handlers) = self.obey(command) {
                        return handlers;
                    }
                }
                Wake::Granted(place) => {
                    self.transfer = Transfer::Held(place);
                    // The wait may have been long: the cache and the knowledge about the server may have changed.
                    self.reflector.expect(self.outlook());
                    self.step(Input::TransferGranted);
                }
                Wake::Reachable => self.step(Input::Reachable),
                Wake::Timer => self.timer_fired(),
                Wake::Quiet => {
                    let begun = self.shared.environment.now();
                    self.flush();
                    took += self.shared.environment.now().since(begun);
                }
                Wake::Arrival(id, arrival) => {
                    let begun = self.shared.environment.now();
                    self.arrived(id, arrival);
                    arrivals += 1;
                    let now = self.shared.environment.now();
                    let rests = arrivals == ARRIVALS_IN_A_ROW || took + now.since(begun) > TURN;
                    if self.unpublished.is_some_and(|since| rests || now.since(since) > BATCH) {
                        self.flush();
                    }
                    took += self.shared.environment.now().since(begun);
                    if rests || took > TURN {
                        // All informers of an environment share its threads. A large list must not starve their pings
                        // and deadlines.
                        (arrivals, took) = (0, Duration::ZERO);
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }

    /// Requests the server's current version. The sender is dropped if no response is available.
    fn find_newest(&self, since: Instant, asks: oneshot::Sender<Option<ResourceVersion>>) {
        // A task of its own: the driver must continue to read the watch while the caller waits for the version.
        let newest = self.request_builder.newest(since);
        self.shared.environment.spawn(Box::pin(async move {
            if let Ok(version) = newest.await {
                drop(asks.send(version));
            }
        }));
    }

    /// Processes a timer event.
    fn timer_fired(&mut self) {
        if self.timer.is_due() {
            self.step(Input::Tick);
            self.resync();
        }
    }

    /// Marks the informer as broken: it ended without being stopped.
    fn broke(&mut self) {
        let why = "the informer broke: dropping an object panicked";
        tracing::error!(informer = %self.shared.name, "{why}");
        self.shared.broken.store(true, Ordering::Release);
        let mut evidence = self.reflector.evidence().clone();
        evidence.turn(self.shared.environment.now(), Condition::Stopped, why);
        self.shared.stand(&evidence);
    }

    async fn next(&mut self) -> Wake {
        // The next deadline.
        self.timer.set([self.reflector.wake_at(), self.resyncs.next()].into_iter().flatten().min());
        let Self { commands, answers, transfer, reachable, timer, unpublished, .. } = self;
        let granted = async {
            match transfer {
                Transfer::Awaited(place) => place.await,
                Transfer::None | Transfer::Held(_) => std::future::pending().await,
            }
        };
        // The order matters. Commands and places come first, because a busy watch must not delay them. The timer comes
        // before arrivals, because a deadline must fire under a steady stream of data. `Quiet` comes last, because it
        // reports that no other input is ready.
        tokio::select! {
            biased;
            command = commands.recv() => Wake::Command(command),
            place = granted => Wake::Granted(place),
            Ok(()) = reachable.changed() => Wake::Reachable,
            () = timer.fired() => Wake::Timer,
            (id, arrival) = poll_fn(|context| answers.poll_next(context)) => Wake::Arrival(id, arrival),
            () = std::future::ready(()), if unpublished.is_some() => Wake::Quiet,
        }
    }

    /// Returns the hints for the choice of the next list.
    fn outlook(&self) -> ListHints {
        ListHints {
            protobuf: self.request_builder.asks_for_protobuf(),
            doubted: !self.request_builder.protobuf_works(),
            held: self.shared.snapshot().len(),
            metadata_only: self.request_builder.metadata_only,
        }
    }

    fn step(&mut self, input: Input) {
        let now = self.shared.environment.now();
        let outputs = self.reflector.step(now, input);
        self.perform(outputs);
        self.flush();
    }

    fn arrived(&mut self, id: RequestId, arrival: Arrival) {
        match arrival {
            Arrival::Opened(encoding) => {
                self.requests.opened(id, encoding, self.limits.object);
                self.request_metrics.opened(id);
                self.step(Input::Opened(id));
            }
            Arrival::Chunk(chunk) => {
                // Without a parser the request was cancelled, and the rest of its body is ignored.
                if let Some(parser) = self.requests.take(id) {
                    self.chunk(id, chunk, parser);
                }
            }
            Arrival::ConnectionEvent(ConnectionEvent::Leave(true)) => self.step(Input::Unsettled(id)),
            Arrival::ConnectionEvent(ConnectionEvent::Leave(false)) => self.step(Input::Settled(id)),
            Arrival::ConnectionEvent(ConnectionEvent::Answering(answering)) => {
                self.step(Input::Answering(id, answering))
            }
            Arrival::Probed(Probed { version, sent }) => {
                self.requests.over(id);
                self.request_metrics.ended(id);
                self.step(Input::Probed(id, version, sent));
            }
            Arrival::Ended => {
                self.request_metrics.ended(id);
                match self.requests.over(id) {
                    Some(Parser::Stream(framer)) => {
                        let encoding = framer.encoding();
                        match framer.finish() {
                            // A clean end is normal: API servers end each watch at its `timeoutSeconds`.
                            Ok(()) => self.step(Input::Ended(id)),
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
                            // Any object could pass for an empty list, and an empty list would delete everything.
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
                self.requests.over(id);
                // `406` or `415`: a server or proxy rejects this kind of request. A rejection of a metadata request
                // does not affect requests for full objects, which follow.
                if matches!(failure.code, 406 | 415) && self.skimmed != Some(id) {
                    self.doubt_protobuf(&failure);
                }
                self.request_metrics.failed(id, failure.kind);
                self.step(Input::Failed(id, failure));
            }
        }
    }

    /// Processes a response that ended regularly with incomplete contents. In protobuf, a corrupted length is a likely
    /// cause.
    fn ended_early(&mut self, id: RequestId, encoding: Encoding, failure: Failure) {
        if encoding == Encoding::Protobuf && self.skimmed != Some(id) {
            self.doubt_protobuf(&failure);
        }
        self.step(Input::Failed(id, failure));
    }

    /// Processes a body chunk: parses all complete records, to be published with the next buffered chunks.
    fn chunk(&mut self, id: RequestId, chunk: Bytes, mut parser: Parser) {
        let now = self.shared.environment.now();
        self.piece = chunk.len();
        let read = self.within_memory().and_then(|()| match &mut parser {
            Parser::Stream(framer) => {
                framer.feed(chunk);
                self.read_stream(now, id, framer)
            }
            Parser::List(framer, meta) => {
                framer.feed(chunk);
                self.read_list(now, id, framer, meta)
            }
        });
        self.settle();
        match read {
            Ok(()) => self.requests.give_back(id, parser),
            Err(failure) => {
                self.request_metrics.failed(id, failure.kind);
                let unreadable = failure.kind == FailureKind::Unreadable && self.skimmed != Some(id);
                if unreadable && parser.encoding() == Encoding::Protobuf {
                    self.doubt_protobuf(&failure);
                }
                // The rest of the body is useless. The reflector decides about the retry.
                self.drop_request(id);
                let outputs = self.reflector.step(now, Input::Failed(id, failure));
                self.perform(outputs);
            }
        }
        // Later records are compared with the list's contents, so the list is committed first.
        if self.edits.iter().any(|edit| matches!(edit, Edit::Commit { .. })) {
            self.flush();
        } else {
            self.unpublished.get_or_insert(now);
        }
    }

    /// Returns an error if the cache, or the list so far, exceeds the memory limit.
    ///
    /// A cache above the limit does not abort a list, because the list may be smaller.
    pub(super) fn within_memory(&self) -> Result<(), Failure> {
        let Some(limit) = self.limits.memory else { return Ok(()) };
        let (what, bytes) = match &self.staging {
            // The base objects of delta compression are shared with the cache and count for both.
            Some(staging) => ("the list", staging.held_bytes() + self.shared.beside_bytes()),
            None => ("the cache", self.shared.held_bytes()),
        };
        if bytes <= limit {
            return Ok(());
        }
        let (bytes, limit) = (bytes as f64 / 1e6, limit as f64 / 1e6);
        Err(Failure::full(format!(
            "{what} comes to {bytes:.1} MB, more than the {limit:.1} MB that memory_limit grants: narrow its scope, keep less \
             of each object, or raise the limit"
        )))
    }

    /// Requests JSON for a while after protobuf failed to decode: a proxy may corrupt protobuf.
    fn doubt_protobuf(&mut self, failure: &Failure) {
        if self.request_builder.asks_for_protobuf() {
            // Remembered by the connection as well, so that a new informer of this resource does not fail first.
            let until = self.shared.environment.now() + JSON_FOR;
            self.request_builder.json_until = Some(until);
            self.request_builder.connection.remember_json(&self.request_builder.everywhere, until);
            self.diagnostics.push(Diagnostic::FellBackToJson { why: failure.why.clone() });
        }
    }

    fn perform(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(id, request) => self.send(id, &request),
                Output::Cancel(id) => self.drop_request(id),
                Output::AwaitTransfer => {
                    self.transfer =
                        Transfer::Awaited(self.request_builder.connection.transfer(&self.request_builder.path));
                }
                Output::ReleaseTransfer => self.transfer = Transfer::None,
                Output::BeginStaging { anew } => {
                    let begun = |store: &mut Store<K>| if anew { store.begin_anew() } else { store.begin_relist() };
                    // Objects of an abandoned list may still be in decoding, with places in the old staging.
                    self.decoding.forget_listed();
                    self.staging = Some(self.shared.edit(begun));
                }
                Output::DropStaging => {
                    self.decoding.forget_listed();
                    self.staging = None;
                    self.log_throttle.listed();
                }
                Output::Commit { version, initial, new_epoch } => {
                    // The commit replaces the cache: every listed object must be decoded and in its place before.
                    self.finish_decoding();
                    let Some(staging) = self.staging.take() else { continue };
                    self.diagnostics.extend(self.log_throttle.listed());
                    self.edits.push(Edit::Commit { staging, version, initial, new_epoch });
                }
                Output::Advance(version) => self.edits.push(Edit::Advance(version)),
                Output::BeginComparison => self.comparison = Some(Comparison::default()),
                Output::JudgeComparison => {
                    self.comparison.iter_mut().for_each(|comparison| comparison.is_due = true);
                }
                Output::NameLost => {
                    self.diagnostics.extend(self.comparison.iter_mut().flat_map(Comparison::take_lost));
                }
                Output::EndComparison => self.comparison = None,
                Output::RememberPages { until } => {
                    self.request_builder.connection.remember_pages(&self.request_builder.everywhere, until);
                }
                Output::RememberFull { until } => {
                    self.request_builder.connection.remember_full(&self.request_builder.everywhere, until);
                }
                Output::Diagnostic(diagnostic) => self.diagnostics.push(diagnostic),
            }
        }
    }

    fn send(&mut self, id: RequestId, request: &Request) {
        self.requests.sent(id, request.is_stream());
        if let Request::Metadata { .. } = request {
            self.skimmed = Some(id);
        }
        if let Request::Versions { continue_token, .. } = request
            && let Some(comparison) = &mut self.comparison
        {
            comparison.id = Some(id);
            // A comparison only verifies the cache, so it never waits for a place that a real list could use. All its
            // pages keep the place of the first page.
            if continue_token.is_none() {
                comparison.place = self.request_builder.connection.spare_transfer(&self.request_builder.path);
            }
            if comparison.place.is_none() {
                let why = "lists that are needed more have taken the places of a list of versions".into();
                let retry_after = Some(LATENESS);
                self.answers.refuse(id, Failure { kind: FailureKind::Busy, why, retry_after, code: 0, reason: None });
                return;
            }
        }
        self.request_metrics.sent(id, request);
        let doubted = self.reflector.evidence().condition == Condition::Suspect;
        self.answers.send(id, request, doubted, &self.request_builder);
    }

    fn drop_request(&mut self, id: RequestId) {
        // Dropping the response resets its HTTP/2 stream, so that the server stops sending.
        self.answers.cancel(id);
        self.request_metrics.cancelled(id);
        self.requests.over(id);
    }

    /// Keeps the slot of a full transfer while the transfer makes progress (R7).
    fn keep_place(&mut self) {
        if let (Transfer::Held(place), Some(heard)) = (&mut self.transfer, self.reflector.list_progress()) {
            place.heard(heard);
        }
        let comparison = self.comparison.as_mut().and_then(|comparison| comparison.place.as_mut());
        if let (Some(place), Some(heard)) = (comparison, self.reflector.comparison_heard()) {
            place.heard(heard);
        }
    }

    /// Delivers diagnostics, applies edits, publishes the result, and notifies handlers and waiters.
    fn flush(&mut self) {
        self.unpublished = None;
        // An edit must have its decoded object before it is applied. Objects of an unfinished list can wait.
        if self.decoding.has_edits() {
            self.finish_decoding();
        }
        self.keep_place();
        self.late_diagnostics = 0;
        // Callbacks run before the lock is taken, because they may call this informer.
        for diagnostic in std::mem::take(&mut self.diagnostics) {
            self.report(&diagnostic);
        }
        if let Some(more) = self.log_throttle.sum(self.shared.environment.now()) {
            let informer = &self.shared.name;
            tracing::warn!(%informer, "{more} more objects that cannot be decoded; each is named at debug, and by diagnostics");
        }
        let edited = !self.edits.is_empty();
        let disordered = edited && self.edit();
        if edited && !self.early.is_empty() {
            self.look_again();
        }
        // After the publication, so that a woken waiter finds the new state.
        if self.shared.stand(self.reflector.evidence()) || edited {
            self.shared.notify_changed();
        }
        if disordered {
            self.ordering.is_known = true;
            self.step(Input::Disordered);
        }
        if let Some(comparison) = &mut self.comparison
            && std::mem::take(&mut comparison.is_due)
        {
            // The list is complete. The evaluation uses no bandwidth, so another transfer can start.
            comparison.place = None;
            let found = comparison.judge(&self.shared.snapshot());
            self.step(Input::Judged(found));
        }
    }

    fn report(&mut self, diagnostic: &Diagnostic) {
        self.request_metrics.diagnostic(diagnostic);
        let informer = &self.shared.name;
        let spared = matches!(diagnostic, Diagnostic::Undecodable { .. })
            && !self.log_throttle.names(self.shared.environment.now());
        match diagnostic.severity() {
            Severity::Fault if let Diagnostic::Failed { code, reason, .. } = diagnostic => {
                // Fields without a value are absent from the log line.
                tracing::warn!(%informer, code, reason = reason.as_deref(), "{diagnostic}");
            }
            Severity::Fault if !spared => tracing::warn!(%informer, "{diagnostic}"),
            Severity::Fault | Severity::Routine => tracing::debug!(%informer, "{diagnostic}"),
        }
        self.shared.report(diagnostic);
    }

    /// Applies all edits under one lock, with one publication. Returns true if a list has proven that versions are
    /// unordered.
    fn edit(&mut self) -> bool {
        let mut changes = Vec::new();
        let (mut viewed, mut disordered) = (false, false);
        let shared = self.shared.clone();
        // Objects held only by the old snapshot are dropped after the lock is released: this can take long, and their
        // `Drop` is user code.
        let _before = shared.snapshot();
        shared.edit(|store| {
            // Removals are recorded before the edits, so that the comparison does not count them as lost.
            if let Some(comparison) = &mut self.comparison {
                for edit in &self.edits {
                    if let Edit::Apply(RecordKind::Deleted, identity, _) = edit {
                        comparison.removed(&identity.uid);
                    }
                }
            }
            for edit in self.edits.drain(..) {
                let before = changes.len();
                let committed = if let Edit::Commit { new_epoch, .. } = &edit { Some(*new_epoch) } else { None };
                let relisted = matches!(edit, Edit::Commit { initial: false, new_epoch: false, .. });
                viewed |= edit.carry_out(store, &mut changes, &shared.name);
                if relisted {
                    self.reflector.found(changes.len() - before);
                }
                shared.counted.changes(&changes[before..], committed.is_some());
                let proven = committed.map(|new_epoch| self.ordering.is_proven(store.working(), new_epoch));
                disordered |= proven.unwrap_or_default();
            }
            for change in &changes {
                if let Event::Deleted { .. } = change.event {
                    self.ordering.ended(change.uid());
                }
            }
            // Before the publication, because the evidence published with it contains the tainted objects.
            self.reflector.set_tainted(store.working().tainted().clone());
            shared.publish(store, &changes, viewed, self.reflector.evidence());
        });
        disordered
    }

    /// Sends handlers with a filter their initial objects, and schedules resyncs.
    fn look_after_newcomers(&mut self) {
        let now = self.shared.environment.now();
        for handler in self.shared.take_newcomers() {
            self.shared.join(&handler);
            if let Some(period) = handler.resync {
                self.resyncs.add(now, period, &handler);
            }
        }
    }

    fn resync(&mut self) {
        for handler in self.resyncs.take_due(self.shared.environment.now()) {
            self.shared.resync(&handler);
        }
    }
}
