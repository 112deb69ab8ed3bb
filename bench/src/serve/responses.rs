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
use super::follower::{Follower, PIECE};

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

type Pieces = BoxStream<'static, Bytes>;

/// Identity of the cluster, which is constant while the server runs.
const KUBE_SYSTEM: &str = r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"8a2ef7bd-8ac1-4f5c-a04b-64cee9e1a1a5","resourceVersion":"1"}}"#;

/// Returns the response to `request`, and counts its bytes.
pub(super) fn respond_to(collection: &Arc<Collection>, request: &Request<Incoming>) -> Response<Body> {
    let counting = collection.clone();
    route(collection, request).map(|pieces| {
        let counted =
            pieces.inspect(move |piece| counting.served.count_bytes(piece.len())).map(|piece| Ok(Frame::data(piece)));
        StreamBody::new(counted.boxed())
    })
}

fn route(collection: &Arc<Collection>, request: &Request<Incoming>) -> Response<Pieces> {
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
        _ => return failure(StatusCode::NOT_FOUND, "NotFound"),
    };
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let query = Query::of(request.uri().query().unwrap_or_default());
    let Some(chosen) = selected_indexes(collection, path.contains(&"namespaces"), query.0.get("fieldSelector")) else {
        return failure(StatusCode::BAD_REQUEST, "BadRequest");
    };
    let protobuf = kind == CollectionKind::Pods && accept.contains("application/vnd.kubernetes.protobuf");
    // An Accept header lists alternatives, so a substring is sufficient.
    let kind = if accept.contains("as=PartialObjectMetadata") { CollectionKind::Metadata } else { kind };
    let encoding = if protobuf { Encoding::Protobuf(kind) } else { Encoding::Json(kind) };
    if !query.is("watch", "true") && !query.is("watch", "1") {
        collection.served.count_list();
        return list(collection.clone(), encoding, &query, chosen);
    }
    let follower = Follower {
        of: collection.clone(),
        encoding,
        chosen,
        end: query.number("timeoutSeconds").map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        bookmarks: query.is("allowWatchBookmarks", "true"),
    };
    let pieces = if query.is("sendInitialEvents", "true") {
        // A streamed list costs the server as much as a paged list, and counts as a list.
        collection.served.count_list();
        follower.initial()
    } else {
        follower.follow(query.number("resourceVersion").unwrap_or_default())
    };
    respond(StatusCode::OK, encoding.content_type(true), pieces)
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
    Some(name.and_then(|name| collection.named(name)).map_or(0..0, |index| index..index + 1))
}

fn failure(status: StatusCode, reason: &str) -> Response<Pieces> {
    let code = status.as_u16();
    let text = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","reason":"{reason}","code":{code}}}"#
    );
    respond(status, "application/json", stream::iter([Bytes::from(text)]).boxed())
}

fn respond(status: StatusCode, content_type: &'static str, pieces: Pieces) -> Response<Pieces> {
    let mut response = Response::new(pieces);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

/// Returns a list, or a page of one. All pages have the version of the first.
fn list(collection: Arc<Collection>, encoding: Encoding, query: &Query, chosen: Range<usize>) -> Response<Pieces> {
    let token = query.0.get("continue").and_then(|token| token.split_once('.'));
    // The token contains the version, so that later pages come from the same snapshot.
    let token = token.and_then(|(version, from)| Some((version.parse().ok()?, from.parse().ok()?)));
    let exactly = query.number("resourceVersion").filter(|_| query.is("resourceVersionMatch", "Exact"));
    let (version, objects) = match token.map(|(version, _)| version).or(exactly) {
        None => collection.snapshot(),
        Some(version) => match collection.at(version) {
            Some(objects) => (version, objects),
            // An expired continue token results in 410 with the reason `Expired`, as on a real server.
            None => return failure(StatusCode::GONE, "Expired"),
        },
    };
    let from = token.map_or(chosen.start, |(_, from)| from);
    let limit = query.number("limit").map_or(usize::MAX, |limit| limit as usize);
    // Saturates, because `limit` is absent for a complete list.
    let to = chosen.end.min(from.saturating_add(limit));
    let next = (to < chosen.end).then(|| format!("{version}.{to}"));
    // The envelope of protobuf has a length prefix, which needs the sizes of all items in advance.
    let existing = (from..to).filter(|index| objects[*index].exists);
    let head = encoding.list_head(&collection, version, next.as_deref(), existing);
    let tail = encoding.list_tail(version, next.as_deref());
    let items = stream::unfold((from, true), move |(mut index, mut first)| {
        let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
        // A response is cut into pieces of similar size, so that memory does not depend on the number of objects.
        while index < to && piece.len() < PIECE {
            if objects[index].exists {
                encoding.item(&mut piece, &collection, index, objects[index].stamp(), first);
                first = false;
            }
            index += 1;
        }
        std::future::ready((!piece.is_empty()).then(|| (Bytes::from(piece), (index, first))))
    });
    let pieces = stream::iter([Bytes::from(head)]).chain(items).chain(stream::iter([Bytes::from(tail)]));
    respond(StatusCode::OK, encoding.content_type(false), pieces.boxed())
}

/// Parameters of a request. Relevant parameters contain no encoded characters except for separators of names in a
/// selector.
struct Query(BTreeMap<String, String>);

impl Query {
    fn of(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        // kube encodes these two characters in selectors.
        Self(pairs.map(|(name, value)| (name.to_owned(), value.replace("%3D", "=").replace("%2C", ","))).collect())
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.0.get(name).is_some_and(|present| present == value)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.parse().ok()
    }
}
