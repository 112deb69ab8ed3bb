//! Builder of an informer's HTTP requests.

use std::time::Duration;

use futures::future::BoxFuture;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{HeaderValue, Version};
use http_body_util::BodyExt;
use kube::client::Body;
use steadfast_core::decode::{self, Cacheable, Encoding, ExpectedKind, WatchRecord};
use steadfast_core::frame::{ItemFramer, ListPart, StreamFramer, StreamRecord};
use steadfast_core::protobuf::MessageType;
use steadfast_core::record::ListMeta;
use steadfast_core::reflector::{Failure, FailureKind, ProbeMethod, Request};
use steadfast_core::{Instant, ObjectKey, ResourceVersion};

use super::accepted;
use super::head::{ErrorResponse, Expected, ResponseHead, read_head};
use crate::connection::{Connection, SendError};
use crate::probes::Probed;
use crate::resource::Collection;
use crate::scope::Scope;
use crate::transport::{
    self, CarryingConnection, Deadlines, Placement, Reader, ResponseBody, ResponsivenessWatch, TransportError,
};

/// Maximum metadata size of a single object in a probe's response, in bytes.
const MAX_METADATA_BYTES: usize = 4 * 1024 * 1024;

/// Common parts of an informer's requests.
pub(crate) struct RequestBuilder {
    pub(crate) connection: Connection,
    pub(crate) path: String,
    /// Path of the resource in all namespaces, as the key of shared probes.
    pub(crate) all_namespaces_path: String,
    /// Required `kind` of lists, if known.
    pub(crate) list_kind: Option<String>,
    /// Expected kinds of objects.
    pub(crate) expected_kind: ExpectedKind,
    /// Required namespace of all objects, `None` for any.
    pub(crate) namespace: Option<String>,
    /// Resource name in RBAC rules, for messages.
    pub(crate) resource: String,
    pub(crate) selectors: String,
    /// Selectors that match no object.
    pub(crate) selectors_matching_nothing: String,
    /// Scope of the selectors, for requests that add an object name.
    pub(crate) scope: Scope,
    pub(crate) metadata_only: bool,
    /// True if protobuf is preferred over JSON.
    pub(crate) protobuf: bool,
    /// End of the period in which JSON is requested because protobuf failed to decode.
    pub(crate) json_until: Option<Instant>,
    /// Reader of the responses.
    pub(crate) reader: Reader,
}

impl RequestBuilder {
    /// Creates a builder for the objects of `K` in `scope`, read by an informer.
    pub(crate) fn new<K: Cacheable>(connection: Connection, collection: &Collection, scope: &Scope) -> Self {
        Self {
            json_until: connection.remembers_json(collection.all_namespaces_path()),
            connection,
            path: collection.path().to_owned(),
            all_namespaces_path: collection.all_namespaces_path().to_owned(),
            list_kind: collection.list_kind().map(str::to_owned),
            expected_kind: collection.expected_kind(K::metadata_only()),
            namespace: scope.in_namespace().map(str::to_owned),
            resource: collection.name().to_owned(),
            selectors: scope.query(),
            selectors_matching_nothing: scope.query_matching_nothing(),
            scope: scope.clone(),
            metadata_only: K::metadata_only(),
            protobuf: false,
            reader: Reader::Informer,
        }
    }

    /// Sends `request` for a caller that reads the response at its own pace. `progress` is the maximum time without
    /// progress during a read.
    pub(crate) fn request_for_caller(
        &self,
        request: &Request,
        progress: Option<Duration>,
    ) -> BoxFuture<'static, Result<(Encoding, ResponseBody), ErrorResponse>> {
        let (connection, expected) = (self.connection.clone(), self.expected(request));
        let request = self.request(request, false).map(|mut request| {
            request.extensions_mut().insert(Deadlines { headers: None, progress });
            request
        });
        Box::pin(async move {
            let ResponseHead { encoding, body, .. } = read_head(send(&connection, request?).await?, &expected).await?;
            Ok((encoding, body))
        })
    }

    /// Checks that a document is the requested list. Any other document could be mistaken for an empty list.
    ///
    /// A list without `items` is empty if it has the requested list's kind and a version. Go servers omit an empty
    /// `items` if the type has `omitempty` (kube-apiserver 1.30, `ValidatingAdmissionPolicyList`).
    pub(crate) fn check_list(
        &self,
        kind: Option<&str>,
        has_items: bool,
        meta: Option<&ListMeta>,
        metadata: bool,
    ) -> Result<(), Failure> {
        let found_kind: String = kind.unwrap_or("document without a kind").chars().take(128).collect();
        if !has_items && !self.is_empty_list(kind, meta) {
            return Err(Failure::unreadable(format!(
                "the response is not a list: it is a {found_kind:?} without items"
            )));
        }
        // Lists of metadata have a kind of their own, independent of the resource.
        match (&self.list_kind, kind) {
            (_, Some("PartialObjectMetadataList")) if metadata => Ok(()),
            (Some(list_kind), Some(kind)) if kind != list_kind => Err(Failure::unreadable(format!(
                "the response is a {found_kind:?}, not the {list_kind} that was requested"
            ))),
            _ => Ok(()),
        }
    }

    fn is_empty_list(&self, kind: Option<&str>, meta: Option<&ListMeta>) -> bool {
        // Without this check, `{}` from a misconfigured proxy would delete every cached object.
        let Some(kind) = kind else { return false };
        let is_requested = match &self.list_kind {
            Some(list_kind) => kind == list_kind,
            // A CRD may choose another list kind, but only built-in types omit their items.
            None => kind.strip_suffix("List") == Some(&self.expected_kind.kind),
        };
        is_requested && meta.is_some_and(|meta| meta.version.is_some())
    }

    /// Returns true if an object belongs to another namespace than the requested one.
    pub(crate) fn is_in_other_namespace(&self, key: &ObjectKey) -> bool {
        let requested_namespace = self.namespace.as_deref();
        // Cluster-scoped objects have no namespace, so they belong to no other namespace.
        requested_namespace.is_some_and(|requested| key.namespace().is_some_and(|namespace| namespace != requested))
    }

    /// Returns the message for an object that [belongs to another namespace](Self::is_in_other_namespace).
    pub(crate) fn other_namespace_reason(&self, key: &ObjectKey) -> String {
        let requested_namespace = self.namespace.as_deref().unwrap_or_default();
        format!("{key} is not in the namespace {requested_namespace} that was requested")
    }

    /// Sends `request`. If the stream of the informer is `doubted`, probes and short watches use a connection that was
    /// opened recently.
    pub(super) fn send(&self, request: &Request, doubted: bool) -> BoxFuture<'static, Result<ResponseHead, Failure>> {
        self.send_with_events(request, doubted, None)
    }

    /// Sends `request` and reports connection events to `responsiveness_watch` until the response head.
    pub(super) fn send_with_events(
        &self,
        request: &Request,
        doubted: bool,
        responsiveness_watch: Option<ResponsivenessWatch>,
    ) -> BoxFuture<'static, Result<ResponseHead, Failure>> {
        // Short responses are not compressed, because this saves neither the client nor the server any work. A streamed
        // list is compressed. If a proxy then delays its later events, a proof is missed, and the next watch is
        // uncompressed.
        let gzip = self.connection.takes_gzip() && request.is_full_transfer();
        let (connection, expected) = (self.connection.clone(), Expected { gzip, ..self.expected(request) });
        let request = self.request(request, doubted).map(|mut request| {
            if gzip {
                request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
            }
            if let Some(responsiveness_watch) = responsiveness_watch {
                request.extensions_mut().insert(responsiveness_watch);
            }
            request
        });
        Box::pin(async move { Ok(read_head(send(&connection, request?).await?, &expected).await?) })
    }

    fn request(&self, request: &Request, doubted: bool) -> Result<http::Request<Body>, Failure> {
        let uri = match request {
            // Within a namespace the server finds the object by its name; otherwise it would scan all objects.
            Request::State { key, .. } => {
                format!(
                    "{}?{}{}",
                    self.path_in(key.namespace()),
                    request.query(),
                    self.scope.query_for_name(key.name())
                )
            }
            _ => format!("{}?{}{}", self.path, request.query(), self.selectors),
        };
        // A watch can be silent for long; the reflector decides when that is too long.
        let deadlines = Deadlines::default();
        let placement = match request {
            Request::Watch { new_connection: true, .. } => Placement::RecentlyOpened,
            Request::Probe { .. } | Request::ShortWatch { .. } if doubted => Placement::RecentlyOpened,
            Request::Probe { .. } => Placement::SharedWithWatches,
            _ => Placement::Any,
        };
        let http_request = http::Request::get(uri)
            .header(ACCEPT, self.accept(request))
            .extension(deadlines)
            .extension(placement)
            .extension(self.reader)
            .body(Body::empty());
        http_request.map_err(|error| Failure::unsendable(format!("the request cannot be made: {error}")))
    }

    /// Returns the path of the resource in a namespace.
    fn path_in(&self, namespace: Option<&str>) -> String {
        match (namespace, self.all_namespaces_path.rsplit_once('/')) {
            (Some(namespace), Some((group, plural))) => format!("{group}/namespaces/{namespace}/{plural}"),
            _ => self.all_namespaces_path.clone(),
        }
    }

    /// Returns the `Accept` header for `request`.
    fn accept(&self, request: &Request) -> &'static str {
        let accepted = match (self.metadata_only || request.is_metadata_only(), request.is_stream()) {
            // Full objects must not replace metadata.
            _ if matches!(request, Request::Metadata { .. }) => accepted::METADATA_LIST,
            // For versions alone, full objects are accepted from servers that cannot return metadata.
            _ if request.is_metadata_only() => accepted::VERSIONS,
            (false, _) => accepted::OBJECTS,
            (true, true) => accepted::METADATA,
            (true, false) => accepted::METADATA_LIST,
        };
        accepted[usize::from(self.requests_as_protobuf(request))]
    }

    /// Returns true if the response to `request` may be protobuf.
    fn requests_as_protobuf(&self, request: &Request) -> bool {
        match request {
            // Metadata are not cached. Custom resources support protobuf only for metadata.
            Request::Metadata { .. } => self.protobuf && self.protobuf_works(),
            _ => self.requests_protobuf(),
        }
    }

    /// Returns true if responses may be protobuf, for which the message types must be known.
    pub(crate) fn requests_protobuf(&self) -> bool {
        let known = || MessageType::of_kind(&self.expected_kind.api_version, &self.expected_kind.kind).is_some();
        self.protobuf && known() && self.protobuf_works()
    }

    /// Returns true if protobuf has not failed to decode recently.
    pub(crate) fn protobuf_works(&self) -> bool {
        self.json_until.is_none_or(|until| self.connection.environment().now() >= until)
    }

    /// Sends a short watch on the connection on which the server has proven that it has reached the target version.
    pub(super) fn send_short_watch(
        &self,
        short_watch: &Request,
        target: &ResourceVersion,
        method: ProbeMethod,
        doubted: bool,
    ) -> BoxFuture<'static, Result<ResponseHead, Failure>> {
        let Some(query) = short_watch.reach_query() else { return self.send(short_watch, doubted) };
        let uri = format!("{}?{query}{}", self.path, self.selectors_matching_nothing);
        let is_streamed = method == ProbeMethod::Streamed;
        let requests = self.request(short_watch, doubted).and_then(|short_watch| {
            let uri =
                uri.parse().map_err(|error| Failure::unsendable(format!("the request cannot be made: {error}")))?;
            let mut reach_request =
                transport::copy_request(&short_watch).ok_or_else(|| Failure::unreadable("the request has a body"))?;
            *reach_request.uri_mut() = uri;
            if !is_streamed {
                reach_request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
                reach_request.extensions_mut().insert(if doubted {
                    Placement::RecentlyOpened
                } else {
                    Placement::SharedWithWatches
                });
            }
            Ok((reach_request, short_watch))
        });
        let (connection, expected, target) = (self.connection.clone(), self.expected(short_watch), target.clone());
        Box::pin(async move {
            let (reach_request, mut short_watch) = requests?;
            let response = send(&connection, reach_request).await?;
            // With several API servers behind a load balancer, each connection may lead to another server. The proof
            // holds only for the server that sent it.
            let carrier = response.extensions().get::<CarryingConnection>().copied();
            if is_streamed && response.version() != Version::HTTP_2 {
                return Err(Failure::unreadable("an abandoned stream ends its HTTP/1.1 connection"));
            }
            let ResponseHead { encoding, body, .. } = read_head(response, &expected).await?;
            let reached = if is_streamed {
                read_initial_events_end(encoding, body).await?
            } else {
                read_version(encoding, body).await?
            };
            if reached.is_none_or(|reached| reached.is_older_than(&target)) {
                let failure = Failure::unreachable(format!("the server has not reached version {target}"));
                return Err(Failure { kind: FailureKind::ResourceVersionTooLarge, ..failure });
            }
            let Some(carrier) = carrier else {
                return Err(Failure::unreadable("the connection of the response is unknown"));
            };
            short_watch.extensions_mut().insert(carrier);
            let response = connection.send(short_watch).await.map_err(|error| connection_failure(&error))?;
            Ok(read_head(response, &expected).await?)
        })
    }

    /// Returns the expected response head of `request`.
    fn expected(&self, request: &Request) -> Expected {
        let (permission_advice, not_found_advice) = (self.required_permissions(request), self.not_found_advice());
        Expected { permission_advice, not_found_advice, protobuf: self.requests_as_protobuf(request), gzip: false }
    }

    /// Returns the explanation of a 404 for the whole resource, for error messages. A list of a missing namespace is
    /// empty and returns no 404.
    fn not_found_advice(&self) -> String {
        let ExpectedKind { api_version, kind, .. } = &self.expected_kind;
        let remedy = match api_version.split_once('/') {
            // The kinds of the core group always exist.
            None => "check the URL of the server".to_owned(),
            Some((group, version)) => format!(
                "install the CustomResourceDefinition {} with `kubectl apply`, check that it serves {version}, or check \
                 that the server has the group {group}",
                self.resource
            ),
        };
        format!("the server does not serve the kind {kind} of {api_version}: {remedy}")
    }

    /// Returns the permissions that a forbidden `request` requires, for messages.
    fn required_permissions(&self, request: &Request) -> String {
        let verbs = match request {
            // A watch follows each list, and a streamed list is itself a watch.
            _ if request.is_full_transfer() => "list and watch",
            _ if request.is_stream() => "watch",
            _ => "list",
        };
        format!("needs {verbs} on {}", self.resource)
    }

    /// Returns the server's version from a request at `since` or later.
    pub(crate) fn newest(
        &self,
        since: Instant,
    ) -> impl Future<Output = Result<Option<ResourceVersion>, Failure>> + Send + use<> {
        let probed = self.probe(&Request::Probe { since }, since, false);
        async move { probed.await.map(|probed| probed.version) }
    }

    /// Sends a probe, or waits for another informer's probe that was sent at `since` or later.
    pub(super) fn probe(
        &self,
        request: &Request,
        since: Instant,
        doubted: bool,
    ) -> BoxFuture<'static, Result<Probed, Failure>> {
        let head = self.send(request, doubted);
        let (connection, resource) = (self.connection.clone(), self.all_namespaces_path.clone());
        Box::pin(async move {
            let probe = async {
                let ResponseHead { encoding, body, .. } = head.await?;
                read_version(encoding, body).await
            };
            connection.probes().request(&resource, since, connection.environment(), probe).await
        })
    }
}

/// Converts a failed send. If the connection currently accepts no request, the failure is transient, and the request is
/// repeated after a second.
fn connection_failure(error: &SendError) -> Failure {
    let failure = Failure::unreachable(error.cause());
    match error {
        SendError::Transport(TransportError::Busy { .. }) => {
            Failure { kind: FailureKind::Busy, retry_after: Some(Duration::from_secs(1)), ..failure }
        }
        _ => failure,
    }
}

async fn send(connection: &Connection, request: http::Request<Body>) -> Result<http::Response<ResponseBody>, Failure> {
    connection.send(request).await.map_err(|error| Failure::unreachable(error.cause()))
}

/// Reads the version at the end of empty initial events.
async fn read_initial_events_end(
    encoding: Encoding,
    mut body: ResponseBody,
) -> Result<Option<ResourceVersion>, Failure> {
    let mut framer = StreamFramer::new(encoding, MAX_METADATA_BYTES);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::unreachable(error.cause()))?;
        let Ok(chunk) = frame.into_data() else { continue };
        framer.feed(chunk);
        if let Some(record) = framer.next() {
            let StreamRecord::Complete(record) = record else {
                return Err(Failure::unreadable("the initial events of an empty selection are too long"));
            };
            match decode::watch_record(encoding, &record, None) {
                Ok(WatchRecord::Bookmark(bookmark)) if bookmark.initial_events_end => {
                    return Ok(Some(bookmark.version));
                }
                Ok(WatchRecord::Error(status)) => return Err(Failure::from_status(&status, None)),
                _ => {
                    return Err(Failure::unreadable(
                        "the initial events of an empty selection contain another record than the end marker",
                    ));
                }
            }
        }
    }
    Err(Failure::unreadable("the initial events of an empty selection have no end marker"))
}

/// Reads the version of a list and skips its items.
async fn read_version(encoding: Encoding, mut body: ResponseBody) -> Result<Option<ResourceVersion>, Failure> {
    let mut framer = ItemFramer::new(encoding, MAX_METADATA_BYTES);
    let mut meta = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::unreachable(error.cause()))?;
        let Ok(chunk) = frame.into_data() else { continue };
        framer.feed(chunk);
        while let Some(part) = framer.next() {
            match part.map_err(|error| Failure::unreadable(error.to_string()))? {
                ListPart::Meta(found) => meta = Some(found),
                ListPart::Status(status) => return Err(Failure::from_status(&status, None)),
                ListPart::Item(_) | ListPart::Overlong(_) | ListPart::End { .. } => {}
            }
        }
    }
    framer.finish().map_err(|error| Failure::unreachable(error.to_string()))?;
    meta.map(|meta| meta.version).ok_or_else(|| Failure::unreadable("the response to a probe is not a list"))
}
