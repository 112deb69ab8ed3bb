//! Watch of the changes after a version, as a stream.

use std::cmp::Ordering;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::stream::{BoxStream, StreamExt};
use futures::{Stream, stream};
use http_body::Body as _;
use steadfast_core::decode::{self, Cacheable, Encoding, WatchRecord};
use steadfast_core::fault_injection::FaultInjection;
use steadfast_core::frame::{StreamFramer, StreamRecord};
use steadfast_core::freshness::{Evidence, FreshnessState};
use steadfast_core::record::RecordKind;
use steadfast_core::reflector::{Failure, FailureKind, Request};
use steadfast_core::{Freshness, KeySet, ResourceVersion};

use super::arrival_clock::ArrivalClock;
use super::source::{StreamError, StreamRequests};
use crate::environment::SharedEnvironment;
use crate::responses::OBJECT_LIMIT;
use crate::transport::{ConnectionEvent, ResponseBody};

/// Bookmark interval of an API server (R2).
const PERIOD: Duration = Duration::from_secs(60);

/// Maximum time without an open watch before the stream is stale.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// Minimum watch timeout. Each watch requests a random timeout between one and two times this value.
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(300);

/// A watch that stays open for this duration resets the backoff (R6).
const HEALTHY_AFTER: Duration = Duration::from_secs(5);

/// One change of an object, as reported by the server.
#[derive(Clone, PartialEq, Eq)]
pub enum WatchEvent<K> {
    /// The object was created, or started to match the scope.
    Added(K),
    /// The object changed within the scope.
    Modified(K),
    /// The object was deleted, or no longer matches the scope; contains its last state.
    Deleted(K),
    /// Version up to which all changes were returned. It arrives about once a minute, so that the caller can store a
    /// recent version.
    Bookmark(ResourceVersion),
}

// The object is left out: it may be a Secret.
impl<K> fmt::Debug for WatchEvent<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(_) => f.write_str("Added"),
            Self::Modified(_) => f.write_str("Modified"),
            Self::Deleted(_) => f.write_str("Deleted"),
            Self::Bookmark(version) => write!(f, "Bookmark({version})"),
        }
    }
}

/// Stream of the changes of a resource after a version. The version comes from a list, or was stored by an earlier run.
/// The stream resumes after a lost connection. Each change is returned once, in the server's order. The stream ends
/// after an error other than [`StreamError::Unreadable`]. If the server no longer has the changes, the error is
/// [`StreamError::Expired`], and the caller must list again. [`freshness`](Self::freshness) reports whether the stream
/// is up to date.
///
/// Without a cache, the stream cannot detect changes that the server lost. For a cache use an
/// [`Informer`](crate::Informer), or [`watch`](crate::watch) for its events as a stream.
///
/// ```no_run
/// # use futures::StreamExt;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use kube::ResourceExt;
/// # use steadfast::{Connection, ResourceVersion, Scope, StreamError, WatchEvent, watch_from};
/// # async fn example(connection: &Connection, kept: &str) -> Result<(), StreamError> {
/// let mut changes = watch_from::<Pod>(connection, Scope::all(), &ResourceVersion::from(kept));
/// while let Some(change) = changes.next().await {
///     match change? {
///         WatchEvent::Added(pod) | WatchEvent::Modified(pod) => println!("{} exists", pod.name_any()),
///         WatchEvent::Deleted(pod) => println!("{} was deleted", pod.name_any()),
///         WatchEvent::Bookmark(_) => {}
///     }
///     println!("resume at {}", changes.version());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Changes<K> {
    items: BoxStream<'static, Result<WatchEvent<K>, StreamError>>,
    evidence: Arc<ArcSwap<Evidence>>,
    environment: SharedEnvironment,
    resource: String,
    start_version: ResourceVersion,
}

impl<K: Cacheable> Changes<K> {
    pub(super) fn new(source: StreamRequests, version: &ResourceVersion) -> Self {
        let environment = source.environment.clone();
        let evidence = Arc::new(ArcSwap::from_pointee(Evidence {
            state: FreshnessState::Starting,
            since: environment.now(),
            reason: "no watch is open yet".into(),
            version: Some(version.clone()),
            attempts: 0,
            next_attempt: None,
            proven: None,
            polled: None,
            max_fresh_age: PERIOD * 2,
            stale_after: STALE_AFTER,
            tainted: KeySet::default(),
            needs_list: false,
            faults: FaultInjection::NONE,
        }));
        let resource = source.name();
        let reading = WatchReader {
            source,
            evidence: evidence.clone(),
            position: version.clone(),
            open_watch: None,
            needs_new_connection: false,
            needs_position_check: true,
            is_ended: false,
        };
        let items = stream::unfold(reading, |mut reading| async move { Some((reading.next::<K>().await?, reading)) });
        Self { items: items.boxed(), evidence, environment, resource, start_version: version.clone() }
    }

    /// Returns the version up to which all changes were returned. A later stream can resume there.
    pub fn version(&self) -> ResourceVersion {
        self.evidence.load().version.clone().unwrap_or_else(|| self.start_version.clone())
    }

    /// Returns the freshness of the returned changes. The stream reads only while it is polled. Changes that may have
    /// waited for a poll are no proof of the present.
    pub fn freshness(&self) -> Freshness {
        self.evidence.load().at(self.environment.now())
    }
}

impl<K> Stream for Changes<K> {
    type Item = Result<WatchEvent<K>, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.items.poll_next_unpin(context)
    }
}

impl<K> fmt::Debug for Changes<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Changes({})", self.resource)
    }
}

/// A sequence of watches, each of which resumes at the end of the previous one.
struct WatchReader {
    source: StreamRequests,
    evidence: Arc<ArcSwap<Evidence>>,
    /// Version up to which all changes were returned.
    position: ResourceVersion,
    open_watch: Option<OpenWatch>,
    /// True if the next watch must use a new connection.
    needs_new_connection: bool,
    /// True until a response proves that the server has reached this version. The server may have been replaced, or
    /// restored from a backup.
    needs_position_check: bool,
    is_ended: bool,
}

/// A watch with its response body in progress.
struct OpenWatch {
    body: Pin<Box<ResponseBody>>,
    connection_events: BoxStream<'static, ConnectionEvent>,
    framer: StreamFramer,
    opened: steadfast_core::Instant,
    last_received: steadfast_core::Instant,
    arrival_clock: ArrivalClock,
    /// Time at which the last received data was current.
    current_at: steadfast_core::Instant,
}

/// Next event of a watch.
enum WatchStep {
    Line(StreamRecord),
    /// Resume on another connection.
    NeedsNewConnection(&'static str),
    Ended,
    Failed(Failure),
}

impl OpenWatch {
    async fn next(&mut self, environment: &SharedEnvironment) -> WatchStep {
        loop {
            if let Some(line) = self.framer.next() {
                return WatchStep::Line(line);
            }
            // Bookmarks arrive about once a minute even without changes (KEP-956), so silence means a broken stream.
            let silent_at = self.last_received + PERIOD * 2;
            let next_poll = environment.sleep_until(self.arrival_clock.next_poll(environment.now()).min(silent_at));
            let (body, arrival_clock) = (&mut self.body, &mut self.arrival_clock);
            let frame = poll_fn(|context| {
                let polled = body.as_mut().poll_frame(context);
                if polled.is_pending() {
                    arrival_clock.record_empty(environment.now());
                }
                polled
            });
            tokio::select! {
                biased;
                frame = frame => match frame {
                    None => return WatchStep::Ended,
                    Some(Err(error)) => return WatchStep::Failed(Failure::unreachable(error.cause())),
                    Some(Ok(frame)) => {
                        self.last_received = environment.now();
                        self.current_at = self.arrival_clock.arrived_at(self.last_received);
                        if let Ok(chunk) = frame.into_data() {
                            self.framer.feed(chunk);
                        }
                    }
                },
                Some(event) = self.connection_events.next() => match event {
                    ConnectionEvent::Leave(true) => return WatchStep::NeedsNewConnection("the connection ends, or does not respond"),
                    ConnectionEvent::Responsive(false) => return WatchStep::NeedsNewConnection("the server does not respond on the connection of the watch"),
                    ConnectionEvent::Leave(false) | ConnectionEvent::Responsive(true) => {}
                },
                () = next_poll => if environment.now() >= silent_at {
                    return WatchStep::NeedsNewConnection("no change and no bookmark for two minutes");
                },
            }
        }
    }
}

impl WatchReader {
    async fn next<K: Cacheable>(&mut self) -> Option<Result<WatchEvent<K>, StreamError>> {
        while !self.is_ended {
            let Some(open) = &mut self.open_watch else {
                if let Err(error) = self.open().await {
                    return Some(Err(self.end(error)));
                }
                continue;
            };
            match open.next(&self.source.environment).await {
                WatchStep::Line(line) => {
                    let encoding = open.framer.encoding();
                    if let Some(item) = self.line(encoding, &line).await {
                        return Some(item);
                    }
                }
                WatchStep::NeedsNewConnection(reason) => {
                    // The next connection may lead to another API server, whose cache may be behind.
                    self.needs_new_connection = true;
                    self.needs_position_check = true;
                    self.set_state(FreshnessState::Resuming, reason.into());
                    self.ended().await;
                }
                WatchStep::Ended => self.ended().await,
                WatchStep::Failed(failure) => {
                    self.open_watch = None;
                    self.failed(&failure).await;
                }
            }
        }
        None
    }

    /// Processes the regular end of a watch, or a change of connection. A watch that ends immediately does not reset
    /// the backoff.
    async fn ended(&mut self) {
        let Some(open) = self.open_watch.take() else { return };
        if self.source.environment.now().since(open.opened) < HEALTHY_AFTER {
            self.failed(&Failure::unreachable("the watch ended as soon as it was opened")).await;
        } else {
            self.source.backoff.reset();
        }
    }

    /// Opens a watch at the current version, or returns the error that ends the stream.
    async fn open(&mut self) -> Result<(), StreamError> {
        if matches!(self.position.as_str(), "" | "0") {
            let reason = format!(
                "{:?} is not a version that a watch can start from; use the version of a list or of an object",
                self.position.as_str()
            );
            return Err(StreamError::Rejected { resource: self.source.name(), reason: reason.into() });
        }
        if self.needs_position_check {
            // A server that has not reached the version would hold the watch open silently, so the server's version is
            // checked first.
            let now = self.source.request_builder.connection.environment().now();
            match self.source.request_builder.newest(now).await {
                Ok(Some(newest)) if newest.is_older_than(&self.position) => {
                    let reason = format!("the server is at version {newest}, which belongs to another history");
                    return Err(self.expired(reason.into()));
                }
                Ok(_) => self.needs_position_check = false,
                Err(failure) => return self.not_opened(failure).await,
            }
        }
        // Random, so that the watches of a process do not all end at the same time.
        let timeout = self.source.random.between(MIN_WATCH_TIMEOUT, MIN_WATCH_TIMEOUT * 2);
        let request = Request::Watch {
            from: self.position.clone(),
            timeout_seconds: u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX),
            new_connection: std::mem::take(&mut self.needs_new_connection),
        };
        let now = self.source.environment.now();
        match self.source.request_builder.request_for_caller(&request, None).await {
            Ok((encoding, body)) => {
                let framer = StreamFramer::new(encoding, OBJECT_LIMIT);
                let connection_events = body.connection_events(true);
                self.open_watch = Some(OpenWatch {
                    body: Box::pin(body),
                    connection_events,
                    framer,
                    opened: now,
                    last_received: now,
                    arrival_clock: ArrivalClock::new(now),
                    current_at: now,
                });
                // A watch that follows a regular end leaves the stream fresh.
                if self.evidence.load().state != FreshnessState::Streaming {
                    self.set_state(FreshnessState::Suspect, "a watch is open, but has received no data yet".into());
                }
                Ok(())
            }
            Err(error_response) => self.not_opened(error_response.failure).await,
        }
    }

    async fn not_opened(&mut self, failure: Failure) -> Result<(), StreamError> {
        if failure.kind == FailureKind::Expired {
            return Err(self.expired(failure.message));
        }
        if let Some(rejection) = self.source.permanent_error(&failure) {
            return Err(rejection);
        }
        self.failed(&failure).await;
        Ok(())
    }

    /// Records a failure and waits before the next attempt.
    async fn failed(&mut self, failure: &Failure) {
        self.needs_position_check = true;
        self.set_state(FreshnessState::Resuming, failure.message.clone());
        self.source.wait(failure).await;
    }

    /// Processes one line of a watch.
    async fn line<K: Cacheable>(
        &mut self,
        encoding: Encoding,
        line: &StreamRecord,
    ) -> Option<Result<WatchEvent<K>, StreamError>> {
        let wanted = Some(&self.source.request_builder.expected_kind);
        let record = match line {
            StreamRecord::Complete(record) => decode::watch_record(encoding, record, wanted),
            StreamRecord::Overlong(record) => decode::overlong_record(record, wanted),
        };
        match record {
            Ok(WatchRecord::Object { object, .. }) if !self.is_new_state(&object.identity.version) => None,
            Ok(WatchRecord::Object { kind, object }) => {
                self.reach(&object.identity.version);
                let kept = self.source.decode(&object);
                Some(kept.map(|object| match kind {
                    RecordKind::Added => WatchEvent::Added(object),
                    RecordKind::Modified => WatchEvent::Modified(object),
                    RecordKind::Deleted => WatchEvent::Deleted(object),
                }))
            }
            Ok(WatchRecord::Bookmark(bookmark)) if bookmark.version.is_older_than(&self.position) => None,
            Ok(WatchRecord::Bookmark(bookmark)) => {
                self.reach(&bookmark.version);
                Some(Ok(WatchEvent::Bookmark(bookmark.version)))
            }
            Ok(WatchRecord::Error(status)) => {
                self.open_watch = None;
                let failure = Failure::from_status(&status, None);
                self.not_opened(failure).await.err().map(|error| Err(self.end(error)))
            }
            // Only a record of a known kind has a version of this stream. A record of another kind may have an
            // unrelated version.
            Err(error) => match error.identity.version.as_ref().filter(|_| error.kind.is_some()) {
                Some(version) if !self.is_new_state(version) => None,
                version => {
                    if let Some(version) = version {
                        self.reach(version);
                    }
                    Some(Err(self.source.unreadable(&error)))
                }
            },
        }
    }

    /// Returns true if a change at `version` is newer than the position of the stream.
    ///
    /// A server or a proxy may repeat events. Versions that cannot be compared follow the order of the wire.
    fn is_new_state(&self, version: &ResourceVersion) -> bool {
        !version.is_from_server() || version.order(&self.position).is_none_or(Ordering::is_gt)
    }

    /// Records that everything up to `version` was returned, which is a proof of freshness at the arrival.
    fn reach(&mut self, version: &ResourceVersion) {
        // An event out of order must not move the position back, or a resumed watch would repeat changes.
        if version.is_from_server() && !version.is_older_than(&self.position) {
            self.position = version.clone();
        }
        self.source.backoff.reset();
        let mut evidence = Evidence::clone(&self.evidence.load());
        let now = self.source.environment.now();
        evidence.set_state(now, FreshnessState::Streaming, "a proof of freshness is overdue");
        evidence.version = Some(self.position.clone());
        let current_at = self.open_watch.as_ref().map_or(now, |open| open.current_at);
        evidence.proven = evidence.proven.max(Some(current_at));
        evidence.attempts = 0;
        self.evidence.store(Arc::new(evidence));
    }

    fn set_state(&mut self, state: FreshnessState, reason: Arc<str>) {
        let mut evidence = Evidence::clone(&self.evidence.load());
        evidence.set_state(self.source.environment.now(), state, reason);
        evidence.attempts = self.source.backoff.failures();
        self.evidence.store(Arc::new(evidence));
    }

    fn end(&mut self, error: StreamError) -> StreamError {
        self.is_ended = true;
        self.open_watch = None;
        self.set_state(FreshnessState::Stopped, error.to_string().into());
        error
    }

    fn expired(&self, reason: Arc<str>) -> StreamError {
        StreamError::Expired { resource: self.source.name(), version: self.position.clone(), reason }
    }
}
