//! Responses, before their conversion to HTTP.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use super::body::{Chunks, ResponseBody};
use super::negotiate::{Encoding, JSON};
use crate::encode;
use crate::protobuf;
use crate::records::RequestEntry;
use crate::status::{Status, whole_seconds};
use crate::storage::Warnings;

/// A response to a request.
pub(super) struct ApiResponse {
    pub(super) code: u16,
    pub(super) content_type: &'static str,
    pub(super) retry_after: Option<u64>,
    /// Warnings for the client.
    pub(super) warnings: Vec<String>,
    pub(super) content: Content,
    /// Value of the content, to encode it again as protobuf. `None` if only the encoded content may be sent.
    value_to_encode: Option<Value>,
}

/// Version of a document in a response.
#[derive(Clone, Debug)]
pub(super) struct DocumentVersion {
    /// Value of `ETag`, without its quotes.
    pub(super) tag: String,
    pub(super) cache_control: &'static str,
}

pub(super) enum Content {
    Whole(Bytes),
    /// A document with its version.
    Document(Bytes, DocumentVersion),
    Chunks(Chunks),
    /// An upgrade to WebSocket without a body, with the agreed subprotocol if any.
    WebSocketUpgrade {
        accept: HeaderValue,
        protocol: Option<HeaderValue>,
    },
}

const TEXT_CONTENT_TYPE: &str = "text/plain; charset=utf-8";

impl ApiResponse {
    pub(super) fn json(code: u16, value: &Value) -> Self {
        Self::bytes(code, encode::json(value))
    }

    /// Creates a response with a `Status` or another object of a built-in kind, in the encoding that the client
    /// requests.
    pub(super) fn object(code: u16, value: &Value) -> Self {
        Self { value_to_encode: Some(value.clone()), ..Self::json(code, value) }
    }

    /// Encodes the content again if the client requests protobuf and the content is available as a value.
    pub(super) fn encoded_as(mut self, encoding: Encoding) -> Self {
        if encoding == Encoding::Protobuf
            && let Some(bytes) = self.value_to_encode.take().as_ref().and_then(protobuf::encode)
        {
            (self.content_type, self.content) = (encoding.content_type(), Content::Whole(bytes.into()));
        }
        self
    }

    /// Sets the content type.
    pub(super) fn with_content_type(self, content_type: &'static str) -> Self {
        Self { content_type, ..self }
    }

    /// Adds warnings to the response of a write, even if the write was rejected.
    pub(super) fn with_warnings(result: Result<Self, Status>, warnings: &Warnings) -> Self {
        let mut response = result.unwrap_or_else(Self::from);
        response.warnings = warnings.take();
        response
    }

    pub(super) fn bytes(code: u16, bytes: Bytes) -> Self {
        Self {
            code,
            content_type: JSON,
            retry_after: None,
            warnings: Vec::new(),
            content: Content::Whole(bytes),
            value_to_encode: None,
        }
    }

    pub(super) fn stream(chunks: Chunks) -> Self {
        Self { content: Content::Chunks(chunks), ..Self::bytes(200, Bytes::new()) }
    }

    pub(super) fn text(code: u16, text: &'static str) -> Self {
        Self { content_type: TEXT_CONTENT_TYPE, ..Self::bytes(code, Bytes::from_static(text.as_bytes())) }
    }

    pub(super) fn websocket_upgrade(accept: HeaderValue, protocol: Option<HeaderValue>) -> Self {
        Self { content: Content::WebSocketUpgrade { accept, protocol }, ..Self::bytes(101, Bytes::new()) }
    }

    /// Creates a response with a document. A client that has the document's version receives `304` without a body.
    pub(super) fn document(
        content_type: &'static str,
        content: impl FnOnce() -> Bytes,
        version: DocumentVersion,
        request: &http::HeaderMap,
    ) -> Self {
        // `If-None-Match` may list several tags (RFC 9110, 13.1.2).
        let known_tags = request.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
        let is_unchanged = known_tags
            .is_some_and(|known_tags| known_tags.split(',').any(|tag| tag.trim().trim_matches('"') == version.tag));
        let (code, bytes) = if is_unchanged { (304, Bytes::new()) } else { (200, content()) };
        Self { content_type, content: Content::Document(bytes, version), ..Self::bytes(code, Bytes::new()) }
    }

    /// Creates the response for an unknown path.
    pub(super) fn page_not_found() -> Self {
        Self::text(404, "404 page not found\n")
    }

    /// Removes the body, for `HEAD` requests.
    pub(super) fn without_body(mut self) -> Self {
        self.content = Content::Whole(Bytes::new());
        self
    }

    pub(super) fn into_response(self, entry: Arc<RequestEntry>) -> Response<ResponseBody> {
        entry.set_code(self.code);
        if let Content::WebSocketUpgrade { accept, protocol } = self.content {
            return websocket_upgrade(accept, protocol, entry);
        }
        let version = if let Content::Document(_, version) = &self.content { Some(version) } else { None };
        let cache_control = version.map_or("no-cache, private", |version| version.cache_control);
        let mut response = Response::builder()
            .status(self.code)
            .header(header::CONTENT_TYPE, self.content_type)
            .header(header::CACHE_CONTROL, cache_control);
        if self.content_type == TEXT_CONTENT_TYPE {
            response = response.header(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        }
        if let Some(version) = version {
            response = response.header(header::ETAG, format!("\"{}\"", version.tag)).header(header::VARY, "Accept");
        }
        if let Some(seconds) = self.retry_after {
            response = response.header(header::RETRY_AFTER, seconds);
        }
        for warning in &self.warnings {
            response = response.header(header::WARNING, warning_value(warning));
        }
        let body = match self.content {
            Content::Whole(bytes) | Content::Document(bytes, _) => ResponseBody::whole(bytes, Arc::clone(&entry)),
            Content::Chunks(chunks) => ResponseBody::chunks(chunks, Arc::clone(&entry)),
            Content::WebSocketUpgrade { .. } => ResponseBody::whole(Bytes::new(), Arc::clone(&entry)),
        };
        response.body(body).unwrap_or_else(|_| {
            // Only a code outside of 100..1000 fails here. An injected response can have such a code.
            entry.set_code(500);
            let mut response = Response::new(ResponseBody::whole(Bytes::new(), entry));
            *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            response
        })
    }
}

/// Formats a warning as in RFC 7234, without a time.
fn warning_value(text: &str) -> HeaderValue {
    // 299 is the code of miscellaneous persistent warnings (RFC 7234, 5.5.7).
    let mut value = "299 - \"".to_owned();
    for character in text.chars().filter(|character| !character.is_control()) {
        if matches!(character, '"' | '\\') {
            value.push('\\');
        }
        value.push(character);
    }
    value.push('"');
    HeaderValue::try_from(value).unwrap_or_else(|_| HeaderValue::from_static("299 - \"a warning\""))
}

/// Creates the response that switches the connection to WebSocket.
fn websocket_upgrade(
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
    entry: Arc<RequestEntry>,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(Bytes::new(), entry));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response
}

impl From<Status> for ApiResponse {
    fn from(status: Status) -> Self {
        let mut response = Self::object(status.code, &status.to_value());
        response.retry_after = status.retry_after.map(whole_seconds);
        response
    }
}
