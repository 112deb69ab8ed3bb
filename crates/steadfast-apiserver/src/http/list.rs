//! Lists.

use std::ops::Bound;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use serde_json::{Map, Value, json};

use super::body::CHUNK_BYTES;
use super::exchange::Exchange;
use super::negotiate::{Encoding, Form};
use super::options::ListOptions;
use super::read;
use super::rendering::{RenderedState, Rendering};
use super::response::ApiResponse;
use super::target::Target;
use super::token::ContinueToken;
use crate::backend::{ListPage, ListQuery};
use crate::encode;
use crate::protobuf;
use crate::records::Transfer;
use crate::selector::Selector;
use crate::status::Status;
use crate::storage::Change;

/// Result of a list.
pub(super) struct Page {
    pub(super) objects: Vec<Arc<Change>>,
    metadata: Value,
}

/// Responds with a list, or with a page of a list.
pub(super) async fn list(
    exchange: &Exchange,
    target: &Target,
    options: &ListOptions,
    selector: &Selector,
    rendering: Rendering,
) -> Result<ApiResponse, Status> {
    let transfer = exchange.recorded_verb.is_full_transfer().then(|| exchange.cluster.requests.start_transfer());
    let page = find(exchange, target, options, selector, &rendering).await?;
    Ok(respond(exchange, page, rendering, transfer))
}

/// Finds the objects of a list at the requested version.
pub(super) async fn find(
    exchange: &Exchange,
    target: &Target,
    options: &ListOptions,
    selector: &Selector,
    rendering: &Rendering,
) -> Result<Page, Status> {
    let token = match options.continue_token.as_str() {
        "" => None,
        text => Some(ContinueToken::decode(text)?),
    };
    // The token already contains the version of the list.
    if token.is_some() && options.version.is_some_and(|version| version > 0) {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    // A selector for one name in one namespace reads a single object, like a `get`.
    let names_one = selector.names_one() && target.namespace.is_some();
    let revision = read::list_revision(exchange, options, token.as_ref(), names_one).await?;
    // The limit does not apply to the object of a single name.
    let unlimited = ListOptions { limit: 0, ..options.clone() };
    let options = if names_one { &unlimited } else { options };
    load_page(exchange, target, options, selector, token.as_ref(), revision, rendering).await
}

/// Creates the response with a page.
pub(super) fn respond(
    exchange: &Exchange,
    page: Page,
    rendering: Rendering,
    transfer: Option<Transfer>,
) -> ApiResponse {
    if rendering.form == Form::Table {
        // Tables are rendered as a whole, since the columns precede the rows.
        let objects: Vec<Value> =
            page.objects.iter().map(|change| rendering.object_of(change, RenderedState::Current)).collect();
        return ApiResponse::json(200, &rendering.table(&page.metadata, &objects));
    }
    let content_type = rendering.encoding.content_type();
    let mut writer = ListWriter::new(page, rendering);
    let first = writer.next_chunk().unwrap_or_default();
    // A response of a single chunk has a known length.
    if writer.is_done() {
        return ApiResponse::bytes(200, first).with_content_type(content_type);
    }
    let gate = exchange.freeze_gate();
    // Chunks are rendered on demand, so that a long list does not occupy memory for a slow client.
    let chunks = stream::unfold((Some(first), writer, gate, transfer), async |(first, mut writer, gate, transfer)| {
        // A replica that freezes during the response stops between two chunks.
        gate.wait_until_open().await;
        let chunk = first.or_else(|| writer.next_chunk())?;
        Some((chunk, (None, writer, gate, transfer)))
    });
    ApiResponse::stream(Box::pin(chunks)).with_content_type(content_type)
}

async fn load_page(
    exchange: &Exchange,
    target: &Target,
    options: &ListOptions,
    selector: &Selector,
    token: Option<&ContinueToken>,
    revision: u64,
    rendering: &Rendering,
) -> Result<Page, Status> {
    let (namespace, namespaced) = (target.namespace.as_deref(), target.resource.namespaced);
    let query = ListQuery {
        resource: &target.resource,
        namespace,
        // The start is inclusive: the token contains the smallest key after the last returned object.
        start: token.map_or(Bound::Unbounded, |token| Bound::Included(token.key(namespace, namespaced))),
        revision,
        // A cache serves a list at "any version" without pages.
        limit: if options.version == Some(0) { 0 } else { options.limit },
        selector,
    };
    let ListPage { objects, last_key, remaining } = exchange.backend().list(query).await?;
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), rendering.version_of_collection(revision).into());
    // Lists of custom resources contain `continue` even if empty, as on the real server.
    if target.resource.is_custom && rendering.form == Form::Object {
        metadata.insert("continue".to_owned(), "".into());
    }
    if remaining > 0 {
        // Tokens contain the version as an `i64`, since a negative number marks an inconsistent continuation.
        // The token is derived from the key of the last returned object, so that the next page continues after it.
        let version = i64::try_from(revision).unwrap_or(i64::MAX);
        metadata.insert("continue".to_owned(), ContinueToken::after(version, &last_key, namespace).encode().into());
        // With a selector, the number of remaining objects is unknown, and the real server omits it.
        if selector.is_everything() {
            metadata.insert("remainingItemCount".to_owned(), remaining.into());
        }
    }
    Ok(Page { objects, metadata: Value::Object(metadata) })
}

/// Returns the parts before and after the items of a list in protobuf.
fn head_and_tail(page: &Page, rendering: &Rendering) -> (Bytes, Bytes) {
    let (api_version, kind) = rendering.served_type();
    // The length precedes the items, so all items are encoded once only to compute their length.
    let mut length = 0;
    let mut item = Vec::new();
    for change in &page.objects {
        item.clear();
        protobuf::put_item(&rendering.message(change, RenderedState::Current), &mut item);
        length += item.len();
    }
    let head = protobuf::list_head(api_version, &format!("{kind}List"), &page.metadata, length);
    (head.into(), Bytes::from_static(protobuf::list_tail()))
}

/// Writer of a list, chunk by chunk.
struct ListWriter {
    objects: std::vec::IntoIter<Arc<Change>>,
    rendering: Rendering,
    head: Option<Bytes>,
    tail: Option<Bytes>,
    is_first: bool,
}

impl ListWriter {
    fn new(page: Page, rendering: Rendering) -> Self {
        if rendering.encoding == Encoding::Protobuf {
            let (head, tail) = head_and_tail(&page, &rendering);
            let objects = page.objects.into_iter();
            return Self { objects, rendering, head: Some(head), tail: Some(tail), is_first: true };
        }
        let (kind, api_version) = match rendering.form {
            Form::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
            Form::Object | Form::Table => (rendering.resource.list_kind.as_str(), rendering.api_version.as_str()),
        };
        let metadata = encode::json(&page.metadata);
        let metadata = String::from_utf8_lossy(&metadata);
        let kind = encode::json(&json!(kind));
        let kind = String::from_utf8_lossy(&kind);
        // Lists of custom resources have alphabetically ordered keys, so the metadata follows the items.
        let (head, tail) = if rendering.resource.is_custom && rendering.form == Form::Object {
            let head = format!("{{\"apiVersion\":\"{api_version}\",\"items\":[");
            (head, format!("],\"kind\":{kind},\"metadata\":{metadata}}}\n"))
        } else {
            let head =
                format!("{{\"kind\":{kind},\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[");
            (head, "]}\n".to_owned())
        };
        // An empty list has `null` items only if it is a list of metadata.
        let (head, tail) = if rendering.form == Form::Metadata && page.objects.is_empty() {
            (format!("{}null", head.trim_end_matches('[')), "}\n".to_owned())
        } else {
            (head, tail)
        };
        let (head, tail) = (Some(head.into()), Some(tail.into()));
        Self { objects: page.objects.into_iter(), rendering, head, tail, is_first: true }
    }

    fn is_done(&self) -> bool {
        self.tail.is_none()
    }

    fn next_chunk(&mut self) -> Option<Bytes> {
        let tail = self.tail.as_ref()?;
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES + 1024);
        buffer.put_slice(&self.head.take().unwrap_or_default());
        for change in self.objects.by_ref() {
            if self.rendering.encoding == Encoding::Protobuf {
                let mut item = Vec::new();
                protobuf::put_item(&self.rendering.message(&change, RenderedState::Current), &mut item);
                buffer.put_slice(&item);
            } else {
                if !std::mem::take(&mut self.is_first) {
                    buffer.put_u8(b',');
                }
                self.rendering.put_item(&mut buffer, &change);
            }
            if buffer.len() >= CHUNK_BYTES {
                return Some(buffer.freeze());
            }
        }
        buffer.put_slice(tail);
        self.tail = None;
        Some(buffer.freeze())
    }
}
