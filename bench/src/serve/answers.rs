//! Requests, and their answers as they are made while they are sent.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};

use super::collection::{Collection, Following};
use super::encoding::{Encoding, Kind};

type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// About so many bytes are written at once.
const PIECE: usize = 128 << 10;

/// So many changes are taken from the log at once.
const CHANGES: usize = 64;

/// The answer to `request`.
pub(super) fn answer(collection: &Arc<Collection>, request: &Request<Incoming>) -> Response<Body> {
    let kind = match request.uri().path() {
        "/api/v1/pods" => Kind::Pods,
        "/apis/bench.steadfast.dev/v1/widgets" => Kind::Widgets,
        _ => return plain(StatusCode::NOT_FOUND, "application/json", not_found()),
    };
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let query = Query::of(request.uri().query().unwrap_or_default());
    if accept.contains("PartialObjectMetadataList") {
        // Asked only for the collection's version.
        let (version, _) = collection.snapshot();
        let list = format!(
            r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#
        );
        return plain(StatusCode::OK, "application/json", list);
    }
    let protobuf = kind == Kind::Pods && accept.contains("application/vnd.kubernetes.protobuf");
    let encoding = if protobuf { Encoding::Protobuf } else { Encoding::Json(kind) };
    let pieces = match (query.is("watch", "true") || query.is("watch", "1"), query.is("sendInitialEvents", "true")) {
        (true, true) => initial(collection.clone(), encoding),
        (true, false) => following(collection.clone(), encoding, query.number("resourceVersion").unwrap_or_default()),
        (false, _) => list(collection.clone(), encoding, &query),
    };
    let watch = query.is("watch", "true") || query.is("watch", "1");
    respond(StatusCode::OK, encoding.content_type(watch), pieces.boxed())
}

fn not_found() -> String {
    r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"NotFound","code":404}"#.to_owned()
}

fn plain(status: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    respond(status, content_type, stream::iter([Bytes::from(text)]).boxed())
}

fn respond(status: StatusCode, content_type: &'static str, pieces: BoxStream<'static, Bytes>) -> Response<Body> {
    let mut response = Response::new(StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece))).boxed()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

/// A list, or a page of it.
fn list(of: Arc<Collection>, encoding: Encoding, query: &Query) -> BoxStream<'static, Bytes> {
    let (version, objects) = of.snapshot();
    let from = query.number("continue").unwrap_or_default() as usize;
    let limit = query.number("limit").map_or(objects.len(), |limit| limit as usize);
    let to = objects.len().min(from + limit);
    let next = (to < objects.len()).then_some(to);
    let lengths = (from..to).filter(|index| objects[*index].is_there).map(|index| of.protobuf.length(index));
    let head = encoding.list_head(version, next, lengths);
    let tail = encoding.list_tail(version, next);
    let items = stream::unfold((from, true), move |(mut index, mut first)| {
        let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
        while index < to && piece.len() < PIECE {
            if objects[index].is_there {
                encoding.item(&mut piece, &of, index, objects[index].stamp(), first);
                first = false;
            }
            index += 1;
        }
        std::future::ready((!piece.is_empty()).then(|| (Bytes::from(piece), (index, first))))
    });
    stream::iter([Bytes::from(head)]).chain(items).chain(stream::iter([Bytes::from(tail)])).boxed()
}

/// All objects as events, the sign of their end, and what follows.
fn initial(of: Arc<Collection>, encoding: Encoding) -> BoxStream<'static, Bytes> {
    let (version, known) = of.snapshot();
    let source = of.clone();
    let objects = stream::unfold(0, move |mut index| {
        let mut piece = Vec::with_capacity(PIECE + PIECE / 4);
        while index < known.len() && piece.len() < PIECE {
            if known[index].is_there {
                encoding.event(&mut piece, &source, "ADDED", index, known[index].stamp());
            }
            index += 1;
        }
        std::future::ready((!piece.is_empty()).then(|| (Bytes::from(piece), index)))
    });
    let end = Bytes::from(encoding.initial_events_end(version));
    objects.chain(stream::iter([end])).chain(following(of, encoding, version)).boxed()
}

/// What follows a version, for ever.
fn following(of: Arc<Collection>, encoding: Encoding, version: u64) -> BoxStream<'static, Bytes> {
    let moved = of.moved();
    stream::unfold(Some((of, version, moved)), move |state| async move {
        let (of, mut version, mut moved) = state?;
        loop {
            moved.mark_unchanged();
            let changes = match of.after(version, CHANGES) {
                Following::Forgotten => return Some((Bytes::from(encoding.expired()), None)),
                Following::Changes(changes) => changes,
            };
            if changes.is_empty() {
                // The sender lives as long as the collection, which is held here.
                moved.changed().await.ok()?;
                continue;
            }
            let mut piece = Vec::with_capacity(PIECE);
            for change in changes {
                encoding.event(&mut piece, &of, change.what, change.index, change.stamp);
                version = change.stamp.version;
                if piece.len() >= PIECE {
                    break;
                }
            }
            return Some((Bytes::from(piece), Some((of, version, moved))));
        }
    })
    .boxed()
}

/// The parameters of a request; those that matter here need no decoding.
struct Query(BTreeMap<String, String>);

impl Query {
    fn of(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.0.get(name).is_some_and(|given| given == value)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name)?.parse().ok()
    }
}
