//! Responses to requests. They are generated while they are sent.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use tokio::time::Instant;

use super::collection::Collection;
use super::encoding::{CollectionKind, Encoding};
use super::follower::{CHUNK_BYTES, Follower};

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

type ChunkStream = BoxStream<'static, Bytes>;

/// Identity of the cluster, which is constant while the server runs.
const KUBE_SYSTEM: &str = r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"8a2ef7bd-8ac1-4f5c-a04b-64cee9e1a1a5","resourceVersion":"1"}}"#;

/// Returns the response to `request`, and counts its bytes.
pub(super) fn respond_to(collection: &Arc<Collection>, request: &Request<Incoming>) -> Response<Body> {
    let counter = collection.clone();
    route(collection, request).map(|chunks| {
        let counted_chunks =
            chunks.inspect(move |chunk| counter.served.count_bytes(chunk.len())).map(|chunk| Ok(Frame::data(chunk)));
        StreamBody::new(counted_chunks.boxed())
    })
}

fn route(collection: &Arc<Collection>, request: &Request<Incoming>) -> Response<ChunkStream> {
    let path = request.uri().path().split('/').skip(1).collect::<Vec<_>>();
    let kind = match *path {
        ["api", "v1", "pods"] | ["api", "v1", "namespaces", _, "pods"] => CollectionKind::Pods,
        ["apis", "bench.steadfast.dev", "v1", "widgets"]
        | ["apis", "bench.steadfast.dev", "v1", "namespaces", _, "widgets"] => CollectionKind::Widgets,
        // Steadfast reads this namespace to identify the cluster.
        ["api", "v1", "namespaces", "kube-system"] => {
            let text = stream::iter([Bytes::from_static(KUBE_SYSTEM.as_bytes())]);
            return respond(StatusCode::OK, "application/json", text.boxed());
        }
        _ => return error_response(StatusCode::NOT_FOUND, "NotFound"),
    };
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let Some(selected) = selected_indexes(collection, path.contains(&"namespaces"), query.0.get("fieldSelector"))
    else {
        return error_response(StatusCode::BAD_REQUEST, "BadRequest");
    };
    let protobuf = kind == CollectionKind::Pods && accept.contains("application/vnd.kubernetes.protobuf");
    // An Accept header lists alternatives, so a substring is sufficient.
    let kind = if accept.contains("as=PartialObjectMetadata") { CollectionKind::Metadata } else { kind };
    let encoding = if protobuf { Encoding::Protobuf(kind) } else { Encoding::Json(kind) };
    if !query.is("watch", "true") && !query.is("watch", "1") {
        collection.served.count_list();
        return list(collection.clone(), encoding, &query, selected);
    }
    let follower = Follower {
        collection: collection.clone(),
        encoding,
        selected,
        end: query.number("timeoutSeconds").map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        bookmarks: query.is("allowWatchBookmarks", "true"),
    };
    let chunks = if query.is("sendInitialEvents", "true") {
        // A streamed list costs the server as much as a paged list, and counts as a list.
        collection.served.count_list();
        follower.list_and_follow()
    } else {
        follower.follow(query.number("resourceVersion").unwrap_or_default())
    };
    respond(StatusCode::OK, encoding.content_type(true), chunks)
}

/// Returns the indexes of the selected objects, or `None` for an unsupported selector.
///
/// Names are unique across namespaces. A request in one namespace is supported only with the name of an object.
fn selected_indexes(collection: &Collection, in_namespace: bool, selector: Option<&String>) -> Option<Range<usize>> {
    let Some(selector) = selector else { return (!in_namespace).then_some(0..collection.count()) };
    let mut names = BTreeSet::new();
    for term in selector.split(',') {
        names.insert(term.strip_prefix("metadata.name=")?);
    }
    // No object has two names.
    let name = names.pop_first().filter(|_| names.is_empty());
    Some(name.and_then(|name| collection.index_of_name(name)).map_or(0..0, |index| index..index + 1))
}

fn error_response(status: StatusCode, reason: &str) -> Response<ChunkStream> {
    let code = status.as_u16();
    let text = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","reason":"{reason}","code":{code}}}"#
    );
    respond(status, "application/json", stream::iter([Bytes::from(text)]).boxed())
}

fn respond(status: StatusCode, content_type: &'static str, chunks: ChunkStream) -> Response<ChunkStream> {
    let mut response = Response::new(chunks);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

/// Returns a list, or a page of one. All pages have the version of the first.
fn list(
    collection: Arc<Collection>,
    encoding: Encoding,
    query: &Query,
    selected: Range<usize>,
) -> Response<ChunkStream> {
    let token = query.0.get("continue").and_then(|token| token.split_once('.'));
    // The token contains the version, so that later pages come from the same snapshot.
    let token = token.and_then(|(version, start_index)| Some((version.parse().ok()?, start_index.parse().ok()?)));
    let exact_version = query.number("resourceVersion").filter(|_| query.is("resourceVersionMatch", "Exact"));
    let (version, objects) = match token.map(|(version, _)| version).or(exact_version) {
        None => collection.snapshot(),
        Some(version) => match collection.objects_at(version) {
            Some(objects) => (version, objects),
            // An expired continue token results in 410 with the reason `Expired`, as on a real server.
            None => return error_response(StatusCode::GONE, "Expired"),
        },
    };
    let start_index = token.map_or(selected.start, |(_, start_index)| start_index);
    let limit = query.number("limit").map_or(usize::MAX, |limit| limit as usize);
    // The addition saturates, because `limit` is absent for a complete list.
    let end_index = selected.end.min(start_index.saturating_add(limit));
    let next = (end_index < selected.end).then(|| format!("{version}.{end_index}"));
    // The envelope of protobuf has a length prefix, which needs the sizes of all items in advance.
    let existing_indexes = (start_index..end_index).filter(|index| objects[*index].exists);
    let list_start = encoding.list_start(&collection, version, next.as_deref(), existing_indexes);
    let list_end = encoding.list_end(version, next.as_deref());
    let items = stream::unfold((start_index, true), move |(mut index, mut is_first)| {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        // A response is cut into pieces of similar size, so that memory does not depend on the number of objects.
        while index < end_index && chunk.len() < CHUNK_BYTES {
            if objects[index].exists {
                encoding.append_item(&mut chunk, &collection, index, objects[index].values(), is_first);
                is_first = false;
            }
            index += 1;
        }
        std::future::ready((!chunk.is_empty()).then(|| (Bytes::from(chunk), (index, is_first))))
    });
    let chunks = stream::iter([Bytes::from(list_start)]).chain(items).chain(stream::iter([Bytes::from(list_end)]));
    respond(StatusCode::OK, encoding.content_type(false), chunks.boxed())
}

/// Parameters of a request. Relevant parameters contain no encoded characters except for separators of names in a
/// selector.
struct Query(BTreeMap<String, String>);

impl Query {
    fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        // kube encodes these two characters in selectors.
        Self(pairs.map(|(name, value)| (name.to_owned(), value.replace("%3D", "=").replace("%2C", ","))).collect())
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.0.get(name).is_some_and(|actual| actual == value)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.parse().ok()
    }
}
