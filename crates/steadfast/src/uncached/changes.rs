//! The changes after a version.

use std::cmp::Ordering;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::stream::{BoxStream, StreamExt};
use futures::{Stream, stream};
use http_body_util::BodyExt;
use steadfast_core::breach::Breaches;
use steadfast_core::decode::{self, Encoding, Kept, WatchRecord};
use steadfast_core::frame::{Line, StreamFramer};
use steadfast_core::freshness::{Condition, Evidence};
use steadfast_core::record::RecordKind;
use steadfast_core::reflector::{Failure, FailureKind, Request};
use steadfast_core::{Freshness, KeySet, ResourceVersion};

use super::source::{Source, StreamError};
use crate::answers::OBJECT_LIMIT;
use crate::environment::SharedEnvironment;
use crate::transport::{Notice, ResponseBody};

/// The period of a real server's bookmarks (R2).
const PERIOD: Duration = Duration::from_secs(60);

/// How long without a stream before what was read is called stale.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server ends watches after a random time between this and twice this.
const WATCH_TIMEOUT: Duration = Duration::from_secs(300);

/// A watch open this long is a sign of health (R6).
const HEALTHY_AFTER: Duration = Duration::from_secs(5);

/// One change of an object, as the server reported it.
#[derive(Clone, PartialEq, Eq)]
pub enum Change<K> {
    /// The object was created, or changed so that the scope has it.
    Added(K),
    /// The object changed within the scope.
    Modified(K),
    /// The object was deleted, or changed so that the scope does not have it any more: its last state.
    Deleted(K),
    /// Nothing changed up to this version; about once a minute, so that a version worth keeping is at hand.
    Bookmark(ResourceVersion),
}

// The object stays out of it: it may be a Secret.
impl<K> fmt::Debug for Change<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(_) => f.write_str("Added"),
            Self::Modified(_) => f.write_str("Modified"),
            Self::Deleted(_) => f.write_str("Deleted"),
            Self::Bookmark(version) => write!(f, "Bookmark({version})"),
        }
    }
}

/// The changes of a resource after a version that its reader has: from a list, or kept since an earlier run.
///
/// It begins there and goes on by itself where a connection is lost: a change is given once, in the server's order.
/// It ends after an error, save [`StreamError::Unreadable`]; where the server no longer has the changes, that is
/// [`StreamError::Expired`], and only a new list helps. Whether it is up to date is its [`freshness`](Self::freshness).
///
/// Nothing is kept, so there is no cache to compare with: what a server loses on the way is not found out here. Who wants
/// a cache takes an [`Informer`](crate::Informer), or [`watch`](crate::watch) for its events as a stream.
///
/// ```no_run
/// # use futures::StreamExt;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use kube::ResourceExt;
/// # use steadfast::{Change, Connection, ResourceVersion, Scope, StreamError, watch_from};
/// # async fn example(connection: &Connection, kept: &str) -> Result<(), StreamError> {
/// let mut changes = watch_from::<Pod>(connection, Scope::all(), &ResourceVersion::from(kept));
/// while let Some(change) = changes.next().await {
///     match change? {
///         Change::Added(pod) | Change::Modified(pod) => println!("{} is there", pod.name_any()),
///         Change::Deleted(pod) => println!("{} is gone", pod.name_any()),
///         Change::Bookmark(_) => {}
///     }
///     println!("go on from {}", changes.version());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Changes<K> {
    items: BoxStream<'static, Result<Change<K>, StreamError>>,
    evidence: Arc<ArcSwap<Evidence>>,
    environment: SharedEnvironment,
    resource: String,
    begun_at: ResourceVersion,
}

impl<K: Kept> Changes<K> {
    pub(super) fn new(source: Source, version: &ResourceVersion) -> Self {
        let environment = source.environment.clone();
        let evidence = Arc::new(ArcSwap::from_pointee(Evidence {
            condition: Condition::Starting,
            since: environment.now(),
            why: "no watch is open yet".into(),
            version: Some(version.clone()),
            attempts: 0,
            next_attempt: None,
            proven: None,
            polled: None,
            bound: PERIOD * 2,
            patience: PATIENCE,
            tainted: KeySet::default(),
            unnamed: false,
            breaches: Breaches::NONE,
        }));
        let resource = source.name();
        let reading = Reading {
            source,
            evidence: evidence.clone(),
            at: version.clone(),
            open: None,
            elsewhere: false,
            unchecked: true,
            over: false,
        };
        let items = stream::unfold(reading, |mut reading| async move { Some((reading.next::<K>().await?, reading)) });
        Self { items: items.boxed(), evidence, environment, resource, begun_at: version.clone() }
    }

    /// The version up to which everything was given: a later stream can go on from it.
    pub fn version(&self) -> ResourceVersion {
        self.evidence.load().version.clone().unwrap_or_else(|| self.begun_at.clone())
    }

    /// Whether what was given is up to date, and if not, since when and why. Nothing is read unless the stream is polled.
    pub fn freshness(&self) -> Freshness {
        self.evidence.load().at(self.environment.now())
    }
}

impl<K> Stream for Changes<K> {
    type Item = Result<Change<K>, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.items.poll_next_unpin(context)
    }
}

impl<K> fmt::Debug for Changes<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Changes({})", self.resource)
    }
}

/// A watch after the other, each from where the one before ended.
struct Reading {
    source: Source,
    evidence: Arc<ArcSwap<Evidence>>,
    /// The version up to which everything was given.
    at: ResourceVersion,
    open: Option<Open>,
    /// Whether the next watch is to take a connection that is new.
    elsewhere: bool,
    /// Whether the server has yet to say that it has come to this version: it may be another one, or restored.
    unchecked: bool,
    over: bool,
}

/// A watch whose answer is being read.
struct Open {
    body: Pin<Box<ResponseBody>>,
    notices: BoxStream<'static, Notice>,
    framer: StreamFramer,
    opened: steadfast_core::Instant,
    heard: steadfast_core::Instant,
}

/// What comes next of a watch.
enum Next {
    Line(Line),
    /// It is to be gone on with on another connection.
    Leave(&'static str),
    Ended,
    Failed(Failure),
}

impl Open {
    async fn next(&mut self, environment: &SharedEnvironment) -> Next {
        loop {
            if let Some(line) = self.framer.next() {
                return Next::Line(line);
            }
            let silent = environment.sleep_until(self.heard + PERIOD * 2);
            tokio::select! {
                biased;
                frame = self.body.frame() => match frame {
                    None => return Next::Ended,
                    Some(Err(error)) => return Next::Failed(Failure::unreachable(error.cause())),
                    Some(Ok(frame)) => {
                        self.heard = environment.now();
                        if let Ok(chunk) = frame.into_data() {
                            self.framer.feed(chunk);
                        }
                    }
                },
                Some(notice) = self.notices.next() => match notice {
                    Notice::Leave(true) => return Next::Leave("its connection is to end, or does not answer"),
                    Notice::Answering(false) => return Next::Leave("the server does not answer on its connection"),
                    Notice::Leave(false) | Notice::Answering(true) => {}
                },
                () = silent => return Next::Leave("neither a change nor a bookmark for two minutes"),
            }
        }
    }
}

impl Reading {
    async fn next<K: Kept>(&mut self) -> Option<Result<Change<K>, StreamError>> {
        while !self.over {
            let Some(open) = &mut self.open else {
                if let Err(error) = self.open().await {
                    return Some(Err(self.end(error)));
                }
                continue;
            };
            match open.next(&self.source.environment).await {
                Next::Line(line) => {
                    let encoding = open.framer.encoding();
                    if let Some(item) = self.line(encoding, &line).await {
                        return Some(item);
                    }
                }
                Next::Leave(why) => {
                    self.elsewhere = true;
                    self.unchecked = true;
                    self.stand(Condition::Resuming, why.into());
                    self.ended().await;
                }
                Next::Ended => self.ended().await,
                Next::Failed(failure) => {
                    self.open = None;
                    self.failed(&failure).await;
                }
            }
        }
        None
    }

    /// A watch ended in good order, or is left. If that happens as soon as it is opened it is no sign of health.
    async fn ended(&mut self) {
        let Some(open) = self.open.take() else { return };
        if self.source.environment.now().since(open.opened) < HEALTHY_AFTER {
            self.failed(&Failure::unreachable("the watch ended as soon as it was opened")).await;
        } else {
            self.source.backoff.reset();
        }
    }

    /// Opens a watch from where it is, or says why that is the end.
    async fn open(&mut self) -> Result<(), StreamError> {
        if matches!(self.at.as_str(), "" | "0") {
            let why =
                format!("{:?} is no version to go on from; take that of a list or of an object", self.at.as_str());
            return Err(StreamError::Refused { resource: self.source.name(), why: why.into() });
        }
        if self.unchecked {
            // A watch from a version that the server has not come to would wait for it in silence.
            let now = self.source.asker.connection.environment().now();
            match self.source.asker.newest(now).await {
                Ok(Some(newest)) if newest.is_older_than(&self.at) => {
                    let why = format!("the server is at {newest}: its history is another one");
                    return Err(self.expired(why.into()));
                }
                Ok(_) => self.unchecked = false,
                Err(failure) => return self.not_opened(failure).await,
            }
        }
        let timeout = self.source.random.between(WATCH_TIMEOUT, WATCH_TIMEOUT * 2);
        let request = Request::Watch {
            from: self.at.clone(),
            timeout_seconds: u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX),
            elsewhere: std::mem::take(&mut self.elsewhere),
        };
        let now = self.source.environment.now();
        match self.source.asker.ask_for_caller(&request, None).await {
            Ok((encoding, body)) => {
                let framer = StreamFramer::new(encoding, OBJECT_LIMIT);
                let notices = body.notices(true);
                self.open = Some(Open { body: Box::pin(body), notices, framer, opened: now, heard: now });
                // A watch that follows one that ended in good order leaves no doubt.
                if self.evidence.load().condition != Condition::Streaming {
                    self.stand(Condition::Suspect, "a watch is open, and nothing was heard on it yet".into());
                }
                Ok(())
            }
            Err(refusal) => self.not_opened(refusal.failure).await,
        }
    }

    async fn not_opened(&mut self, failure: Failure) -> Result<(), StreamError> {
        if failure.kind == FailureKind::Expired {
            return Err(self.expired(failure.why));
        }
        if let Some(refused) = self.source.refusal(&failure) {
            return Err(refused);
        }
        self.failed(&failure).await;
        Ok(())
    }

    /// Takes note of a failure, and waits before the next attempt.
    async fn failed(&mut self, failure: &Failure) {
        self.unchecked = true;
        self.stand(Condition::Resuming, failure.why.clone());
        self.source.wait(failure).await;
    }

    /// Takes in a line of a watch.
    async fn line<K: Kept>(&mut self, encoding: Encoding, line: &Line) -> Option<Result<Change<K>, StreamError>> {
        let wanted = Some(&self.source.asker.wanted);
        let record = match line {
            Line::Whole(record) => decode::watch_record(encoding, record, wanted),
            Line::Overlong(record) => decode::overlong_record(record, wanted),
        };
        match record {
            Ok(WatchRecord::Object { object, .. }) if !self.is_news(&object.identity.version) => None,
            Ok(WatchRecord::Object { kind, object }) => {
                self.reach(&object.identity.version);
                let kept = self.source.keep(&object);
                Some(kept.map(|object| match kind {
                    RecordKind::Added => Change::Added(object),
                    RecordKind::Modified => Change::Modified(object),
                    RecordKind::Deleted => Change::Deleted(object),
                }))
            }
            Ok(WatchRecord::Bookmark(bookmark)) if bookmark.version.is_older_than(&self.at) => None,
            Ok(WatchRecord::Bookmark(bookmark)) => {
                self.reach(&bookmark.version);
                Some(Ok(Change::Bookmark(bookmark.version)))
            }
            Ok(WatchRecord::Error(status)) => {
                self.open = None;
                let failure = Failure::from_status(&status, None);
                self.not_opened(failure).await.err().map(|error| Err(self.end(error)))
            }
            // Only the record of an object has a version of the stream; one of unknown type may be of anything.
            Err(error) => match error.identity.version.as_ref().filter(|_| error.kind.is_some()) {
                Some(version) if !self.is_news(version) => None,
                version => {
                    if let Some(version) = version {
                        self.reach(version);
                    }
                    Some(Err(self.source.unreadable(&error)))
                }
            },
        }
    }

    /// Returns whether a change at `version` is newer than the position of the stream.
    ///
    /// A server or a proxy may repeat events. Versions that cannot be compared follow the order of the wire.
    fn is_news(&self, version: &ResourceVersion) -> bool {
        !version.is_given() || version.order(&self.at).is_none_or(Ordering::is_gt)
    }

    /// Everything up to `version` was given: a proof.
    fn reach(&mut self, version: &ResourceVersion) {
        if version.is_given() && !version.is_older_than(&self.at) {
            self.at = version.clone();
        }
        self.source.backoff.reset();
        let mut evidence = Evidence::clone(&self.evidence.load());
        let now = self.source.environment.now();
        evidence.turn(now, Condition::Streaming, "a proof is overdue");
        evidence.version = Some(self.at.clone());
        evidence.proven = Some(now);
        evidence.attempts = 0;
        self.evidence.store(Arc::new(evidence));
    }

    fn stand(&mut self, condition: Condition, why: Arc<str>) {
        let mut evidence = Evidence::clone(&self.evidence.load());
        evidence.turn(self.source.environment.now(), condition, why);
        evidence.attempts = self.source.backoff.failures();
        self.evidence.store(Arc::new(evidence));
    }

    fn end(&mut self, error: StreamError) -> StreamError {
        self.over = true;
        self.open = None;
        self.stand(Condition::Stopped, error.to_string().into());
        error
    }

    fn expired(&self, why: Arc<str>) -> StreamError {
        StreamError::Expired { resource: self.source.name(), version: self.at.clone(), why }
    }
}
