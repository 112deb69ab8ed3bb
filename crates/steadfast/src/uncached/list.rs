//! List of all objects, as a stream.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt};
use futures::{Stream, stream};
use http_body_util::BodyExt;
use steadfast_core::decode::{self, Cacheable};
use steadfast_core::frame::{ItemFramer, ListPart};
use steadfast_core::reflector::{Failure, FailureKind, ListFrom, Request};
use steadfast_core::{Instant, ObjectKey, ResourceVersion};

use super::source::{StreamError, StreamRequests};
use crate::responses::OBJECT_LIMIT;
use crate::transport::ResponseBody;

/// Page size, in objects.
const PAGE: u32 = 500;

/// Maximum time of failed attempts, and maximum time without progress in a response body.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// Stream of the objects of a resource, one list. At most one object is buffered.
///
/// The list is read in pages of 500 objects, all at one version. If the continue token expires before the last page,
/// the remaining pages have a later version. Each name still occurs at most once, and every object that existed during
/// the whole list occurs. With or without an expired token, [`watch_from`](crate::watch_from) with the list's
/// [`version`](Self::version) returns all later changes.
///
/// An interrupted page is requested again, for at most 30 s without progress. The stream ends after an error other than
/// [`StreamError::Unreadable`]. The list is complete only if the stream ended without an error.
///
/// ```no_run
/// # use futures::StreamExt;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use kube::ResourceExt;
/// # use steadfast::{Connection, Scope, StreamError, list};
/// # async fn example(connection: &Connection) -> Result<(), StreamError> {
/// let mut pods = list::<Pod>(connection, Scope::all());
/// while let Some(pod) = pods.next().await {
///     println!("{}", pod?.name_any());
/// }
/// println!("at version {:?}", pods.version());
/// # Ok(())
/// # }
/// ```
pub struct List<K> {
    objects: BoxStream<'static, Result<K, StreamError>>,
    version: Arc<OnceLock<ResourceVersion>>,
    resource: String,
}

impl<K: Cacheable> List<K> {
    pub(super) fn new(source: StreamRequests) -> Self {
        let (resource, version) = (source.name(), Arc::default());
        let reading = ListReader {
            source,
            version: Arc::clone(&version),
            continue_token: None,
            returned: BTreeSet::new(),
            failing_since: None,
            open: None,
            is_ended: false,
        };
        let objects = stream::unfold(reading, |mut reading| async move { Some((reading.next::<K>().await?, reading)) });
        Self { objects: objects.boxed(), version, resource }
    }

    /// Returns the version of the list's first page.
    ///
    /// Returns `None` before the first page, or if the server sends no version.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.version.get().cloned()
    }
}

impl<K> Stream for List<K> {
    type Item = Result<K, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.objects.poll_next_unpin(context)
    }
}

impl<K> fmt::Debug for List<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List({})", self.resource)
    }
}

/// State of the paged list.
struct ListReader {
    source: StreamRequests,
    version: Arc<OnceLock<ResourceVersion>>,
    /// Continue token of the current page, or of the next request.
    continue_token: Option<String>,
    /// Objects of the current page that were already returned, to skip them if the page is requested again.
    returned: BTreeSet<ObjectKey>,
    failing_since: Option<Instant>,
    open: Option<Page>,
    is_ended: bool,
}

/// A page with its response body in progress.
struct Page {
    body: Pin<Box<ResponseBody>>,
    framer: ItemFramer,
    /// Metadata of the page: its version and the continue token of the next page.
    meta: Option<steadfast_core::record::ListMeta>,
}

impl Page {
    /// Returns the next part of the body, or `None` at its end.
    async fn next(&mut self) -> Result<Option<ListPart>, Failure> {
        loop {
            if let Some(part) = self.framer.next() {
                return part.map(Some).map_err(|error| Failure::unreadable(error.to_string()));
            }
            let Some(frame) = self.body.frame().await else {
                // `finish` consumes the framer, and the page stays open until its end is processed.
                let next = ItemFramer::new(self.framer.encoding(), OBJECT_LIMIT);
                let framer = std::mem::replace(&mut self.framer, next);
                framer.finish().map_err(|error| Failure::unreachable(error.to_string()))?;
                return Ok(None);
            };
            let frame = frame.map_err(|error| Failure::unreachable(error.cause()))?;
            if let Ok(chunk) = frame.into_data() {
                self.framer.feed(chunk);
            }
        }
    }
}

impl ListReader {
    async fn next<K: Cacheable>(&mut self) -> Option<Result<K, StreamError>> {
        while !self.is_ended {
            match self.step().await {
                Ok(Some(item)) => return Some(item),
                Ok(None) => {}
                Err(error) => {
                    self.is_ended = true;
                    self.open = None;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// Processes the next part. An error ends the stream.
    async fn step<K: Cacheable>(&mut self) -> Result<Option<Result<K, StreamError>>, StreamError> {
        let Some(page) = &mut self.open else {
            self.open().await?;
            return Ok(None);
        };
        let encoding = page.framer.encoding();
        let metadata = self.source.request_builder.expected_kind.metadata;
        match page.next().await {
            Ok(Some(ListPart::Item(item))) => {
                return Ok(
                    match decode::list_item(encoding, &item, Some(&self.source.request_builder.expected_kind)) {
                        Ok(object) => {
                            self.failing_since = None;
                            self.source.backoff.reset();
                            // A repeated page starts at its beginning. Objects of its first attempt are skipped by key.
                            let is_new = self.returned.insert(object.identity.key.clone());
                            is_new.then(|| self.source.decode(&object))
                        }
                        Err(error) => Some(Err(self.source.unreadable(&error))),
                    },
                );
            }
            Ok(Some(ListPart::Overlong(item))) => {
                let error = decode::overlong(&item, Some(&self.source.request_builder.expected_kind));
                return Ok(Some(Err(self.source.unreadable(&error))));
            }
            Ok(Some(ListPart::Meta(meta))) => {
                // The first page's version is kept even if the page breaks off: the objects already returned have this
                // version.
                if let Some(version) = &meta.version {
                    let _ = self.version.set(version.clone());
                }
                page.meta = Some(meta);
            }
            Ok(Some(ListPart::Status(status))) => self.failed(Failure::from_status(&status, None), None).await?,
            Ok(Some(ListPart::End { kind, items })) => {
                if let Err(failure) =
                    self.source.request_builder.check_list(kind.as_deref(), items, page.meta.as_ref(), metadata)
                {
                    self.failed(failure, None).await?;
                }
            }
            Ok(None) => self.page_ended().await?,
            Err(failure) => self.failed(failure, None).await?,
        }
        Ok(None)
    }

    /// Requests the next page, or returns the error that ends the stream.
    async fn open(&mut self) -> Result<(), StreamError> {
        let request = Request::Page {
            from: ListFrom::Consistent,
            limit: Some(PAGE),
            continue_token: self.continue_token.clone(),
        };
        match self.source.request_builder.request_for_caller(&request, Some(PROGRESS_TIMEOUT)).await {
            Ok((encoding, body)) => {
                let framer = ItemFramer::new(encoding, OBJECT_LIMIT);
                self.open = Some(Page { body: Box::pin(body), framer, meta: None });
                Ok(())
            }
            Err(error_response) => self.failed(error_response.failure, error_response.continue_token).await,
        }
    }

    /// Processes the end of a page.
    async fn page_ended(&mut self) -> Result<(), StreamError> {
        let Some(meta) = self.open.take().and_then(|page| page.meta) else {
            return self.failed(Failure::unreadable("the response is not a list"), None).await;
        };
        self.returned.clear();
        self.is_ended = meta.continue_token.is_none();
        self.continue_token = meta.continue_token;
        Ok(())
    }

    /// Waits before the page is requested again, or returns the error that ends the stream.
    async fn failed(&mut self, failure: Failure, new_continue_token: Option<String>) -> Result<(), StreamError> {
        self.open = None;
        if let Some(rejection) = self.source.permanent_error(&failure) {
            return Err(rejection);
        }
        let resource = self.source.name();
        let now = self.source.environment.now();
        let failing = now.since(*self.failing_since.get_or_insert(now));
        let is_expired = failure.kind == FailureKind::Expired;
        if failing > PROGRESS_TIMEOUT || (is_expired && new_continue_token.is_none()) {
            return Err(StreamError::Interrupted { resource, reason: failure.message });
        }
        if self.version.get().is_none() && !self.returned.is_empty() {
            // Without the version of the objects already returned, a retry at a later version could lose changes.
            return Err(StreamError::Interrupted { resource, reason: failure.message });
        }
        // A 410 for a continue token can contain another token, which continues the list at the server's latest
        // version.
        if is_expired {
            self.continue_token = new_continue_token;
        }
        self.source.wait(&failure).await;
        Ok(())
    }
}
