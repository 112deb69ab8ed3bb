//! Withholding of responses with secrets that `kube` would log.
//!
//! `kube` logs the whole body of a response that it cannot decode, and quotes values in its errors. So this module first
//! decodes responses with secrets to the types of `kube`, and withholds undecodable ones. The program's own types may
//! require more fields than Kubernetes does, and are not covered.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::ACCEPT;
use http::{Method, Request};
use http_body::Frame;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use kube::core::{ObjectList, PartialObjectMeta, Status, WatchEvent};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tower::BoxError;

use crate::transport::{ResponseBody, ResponseKind};

/// Maximum bytes of a buffered response; `kube` buffers the whole response as well.
const MAX_BUFFERED_BYTES: usize = 256 * 1024 * 1024;
/// Maximum bytes of one line of a watch. etcd limits objects to 1.5 MiB.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// Error for a response with secrets that cannot be decoded and is withheld, since `kube` would log it.
#[derive(Clone, thiserror::Error)]
#[error(
    "the response of {server} for {path} is not a {kind} ({detail}); it is withheld, because its text may contain secrets: \
     inspect it with kubectl get -o json"
)]
#[non_exhaustive]
pub struct WithheldResponse {
    /// The server.
    pub server: String,
    /// The path that was requested.
    pub path: String,
    /// The expected kind.
    pub kind: &'static str,
    /// The reason and its position, without any text of the response.
    pub detail: String,
}

/// Kind of secret content in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecretKind {
    Secret,
    Secrets,
    Token,
    Events,
}

/// Expected form of a response with secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SensitiveResponse {
    kind: SecretKind,
    path: String,
    /// True if the request is for metadata only.
    is_metadata_only: bool,
    /// True if the response may be a `Status`, as after a deletion.
    status: bool,
}

impl SensitiveResponse {
    /// Returns the expected form of the response to `request`, if it is JSON of a known type with secrets.
    pub(super) fn of(request: &Request<Body>) -> Option<Self> {
        let path = request.uri().path();
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        // Secrets and tokens exist only in the core group. `secrets` of another group is a custom resource.
        if (segments.next(), segments.next()) != (Some("api"), Some("v1")) {
            return None;
        }
        let rest = [(); 5].map(|()| segments.next());
        let is_post = *request.method() == Method::POST;
        // A POST to a collection returns the created object, a GET of the same path a list.
        let kind = match rest {
            [Some("namespaces"), Some(_), Some("secrets"), None, _] if is_post => SecretKind::Secret,
            [Some("secrets"), None, ..] | [Some("namespaces"), Some(_), Some("secrets"), None, _] => {
                SecretKind::Secrets
            }
            [Some("namespaces"), Some(_), Some("secrets"), Some(_), None] => SecretKind::Secret,
            [Some("namespaces"), Some(_), Some("serviceaccounts"), Some(_), Some("token")] => SecretKind::Token,
            _ => return None,
        };
        let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        // Not covered: protobuf, which `kube` does not decode, and tables, for which no type is known here.
        if accept.contains("protobuf") || accept.contains("as=Table") {
            return None;
        }
        Some(Self {
            kind: if ResponseKind::of(request.uri()).is_watch { SecretKind::Events } else { kind },
            path: path.to_owned(),
            is_metadata_only: accept.contains("as=PartialObjectMetadata"),
            status: *request.method() == Method::DELETE,
        })
    }

    fn withheld(&self, server: &str, detail: String) -> WithheldResponse {
        let kind = match self.kind {
            SecretKind::Secret => "Secret",
            SecretKind::Secrets => "SecretList",
            SecretKind::Token => "TokenRequest",
            SecretKind::Events => "event of a Secret",
        };
        WithheldResponse { server: server.to_owned(), path: self.path.clone(), kind, detail }
    }

    /// Checks that `text`, a response or a line of a watch, has the expected form. The error quotes no part of `text`.
    fn check(&self, text: &[u8]) -> Result<(), String> {
        #[derive(Deserialize)]
        struct Head {
            kind: Option<String>,
        }
        // `kube` reads a body as UTF-8 text. For other bytes, the error of `kube` would contain the whole body.
        if let Err(error) = std::str::from_utf8(text) {
            return Err(format!("not UTF-8 text at byte {}", error.valid_up_to()));
        }
        if self.status && decode::<Head>(text)?.kind.as_deref() == Some("Status") {
            return decode::<Status>(text).map(drop);
        }
        match (self.kind, self.is_metadata_only) {
            (SecretKind::Secret, false) => decode::<Secret>(text).map(drop),
            (SecretKind::Secret, true) => decode::<PartialObjectMeta<Secret>>(text).map(drop),
            (SecretKind::Secrets, false) => decode::<ObjectList<Secret>>(text).map(drop),
            (SecretKind::Secrets, true) => decode::<ObjectList<PartialObjectMeta<Secret>>>(text).map(drop),
            (SecretKind::Events, false) => decode::<WatchEvent<Secret>>(text).map(drop),
            (SecretKind::Events, true) => decode::<WatchEvent<PartialObjectMeta<Secret>>>(text).map(drop),
            (SecretKind::Token, _) => decode::<TokenRequest>(text).map(drop),
        }
    }
}

/// Decodes `text`. The error states the category and the position, because `serde_json` quotes values.
fn decode<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| {
        let reason = match error.classify() {
            Category::Data => "a field is missing or of another type",
            Category::Eof => "it ends too early",
            Category::Syntax | Category::Io => "it is not JSON",
        };
        format!("{reason}, line {}, column {}", error.line(), error.column())
    })
}

/// Body that passes only decodable responses on to `kube`.
pub(super) struct CheckedBody {
    body: ResponseBody,
    sensitive: SensitiveResponse,
    server: String,
    buffered: BytesMut,
    /// Number of bytes of `buffered` without a line end, which are not searched again.
    searched: usize,
    is_finished: bool,
}

impl CheckedBody {
    pub(super) fn new(body: ResponseBody, sensitive: SensitiveResponse, server: &str) -> Self {
        let server = server.to_owned();
        Self { body, sensitive, server, buffered: BytesMut::new(), searched: 0, is_finished: false }
    }

    /// Returns the next complete line of a watch.
    fn line(&mut self) -> Option<Bytes> {
        let found = self.buffered[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(found) = found else {
            self.searched = self.buffered.len();
            return None;
        };
        let line = self.buffered.split_to(self.searched + found + 1).freeze();
        self.searched = 0;
        Some(self.event(line))
    }

    /// Returns `line`, or an `ERROR` event if the line must be withheld. `kube` continues after either.
    fn event(&self, line: Bytes) -> Bytes {
        let Err(detail) = self.sensitive.check(&line) else { return line };
        let message = self.sensitive.withheld(&self.server, detail).to_string();
        let status = Status::failure(&message, "Withheld").with_code(500);
        let mut event = serde_json::json!({"type": "ERROR", "object": status}).to_string();
        event.push('\n');
        event.into()
    }

    fn checked_body(&self, body: Bytes) -> Result<Bytes, WithheldResponse> {
        match self.sensitive.check(&body) {
            Ok(()) => Ok(body),
            Err(detail) => Err(self.sensitive.withheld(&self.server, detail)),
        }
    }
}

impl http_body::Body for CheckedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let is_watch = this.sensitive.kind == SecretKind::Events;
        let limit = if is_watch { MAX_LINE_BYTES } else { MAX_BUFFERED_BYTES };
        loop {
            // Complete lines first: the limit applies to one line, and not to all lines of a chunk.
            if let Some(line) = is_watch.then(|| this.line()).flatten() {
                return Poll::Ready(Some(Ok(Frame::data(line))));
            }
            // An oversized response is withheld as well: unchecked bytes must not reach `kube`.
            if this.buffered.len() > limit {
                this.is_finished = true;
                this.buffered = BytesMut::new();
                let detail = format!("longer than {} MiB: request fewer objects per response", limit >> 20);
                return Poll::Ready(Some(Err(this.sensitive.withheld(&this.server, detail).into())));
            }
            if this.is_finished {
                return Poll::Ready(None);
            }
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        this.buffered.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => {
                    this.is_finished = true;
                    return Poll::Ready(Some(Err(error.into())));
                }
                None => {
                    this.is_finished = true;
                    let rest = std::mem::take(&mut this.buffered).freeze();
                    if rest.is_empty() {
                        return Poll::Ready(None);
                    }
                    // A watch can end within a line, or after a line without its line end.
                    let rest = if is_watch { Ok(this.event(rest)) } else { this.checked_body(rest) };
                    return Poll::Ready(Some(rest.map(Frame::data).map_err(BoxError::from)));
                }
            }
        }
    }
}

debug_as_message!(WithheldResponse);

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, path: &str, accept: &str) -> Option<SensitiveResponse> {
        let request = Request::builder().method(method).uri(path).header(ACCEPT, accept).body(Body::empty());
        SensitiveResponse::of(&request.expect("a request"))
    }

    fn kind(method: &str, path: &str) -> Option<SecretKind> {
        of(method, path, "application/json").map(|sensitive| sensitive.kind)
    }

    fn check(method: &str, path: &str, text: &[u8]) -> Result<(), String> {
        of(method, path, "application/json").expect("a sensitive request").check(text)
    }

    const ONE: &str = "/api/v1/namespaces/a/secrets/b";
    const ALL: &str = "/api/v1/secrets?limit=5";
    const WATCH: &str = "/api/v1/namespaces/a/secrets?watch=true&resourceVersion=5";

    #[test]
    fn secret_and_token_paths_are_detected() {
        assert_eq!(kind("GET", ALL), Some(SecretKind::Secrets));
        assert_eq!(kind("GET", WATCH), Some(SecretKind::Events));
        // API servers accept other true values too.
        assert_eq!(kind("GET", "/api/v1/secrets?watch=True"), Some(SecretKind::Events));
        assert_eq!(kind("GET", "/api/v1/secrets?watch=false"), Some(SecretKind::Secrets));
        assert_eq!(kind("GET", "/api/v1/namespaces/a/secrets"), Some(SecretKind::Secrets));
        assert_eq!(kind("POST", "/api/v1/namespaces/a/secrets"), Some(SecretKind::Secret));
        assert_eq!(kind("PATCH", ONE), Some(SecretKind::Secret));
        assert_eq!(kind("POST", "/api/v1/namespaces/a/serviceaccounts/b/token"), Some(SecretKind::Token));
        assert_eq!(kind("GET", "/api/v1/namespaces/secrets/pods/secrets"), None);
        assert_eq!(kind("GET", "/apis/apps/v1/namespaces/a/secrets"), None);
        assert_eq!(of("GET", ONE, "application/vnd.kubernetes.protobuf"), None);
    }

    #[test]
    fn errors_never_quote_the_content() {
        let bodies: [&[u8]; 6] = [
            br#"{"kind":"Secret","apiVersion":"v1","metadata":{},"data":"hunter2"}"#,
            br#"{"kind":"Secret","apiVersion":"v1","metadata":{},"data":{"a":"hunter2!"}}"#,
            br#"{"kind":"Secret","data":{"a":"hunter2"#,
            br#"{"kind":"Status","data":{"a":"aHVudGVyMg=="}}"#,
            br"hunter2",
            b"{\"kind\":\"Secret\",\"data\":{\"a\":\"hunter2\xff\"}}",
        ];
        for body in bodies {
            let event = [br#"{"type":"ADDED","object":"#, body, b"}"].concat();
            for message in [check("GET", ONE, body), check("GET", WATCH, &event)] {
                let message = message.expect_err("not a Secret");
                assert!(!message.contains("hunter2") && !message.contains("aHVudGVyMg"), "{message}");
            }
        }
        let list = br#"{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[{"data":"hunter2"}]}"#;
        assert!(check("GET", ALL, list).is_err());
    }

    #[test]
    fn valid_responses_pass_the_check() {
        let secret = br#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"},"data":{"a":"aHVudGVyMg=="}}"#;
        let list = br#"{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"a"}}]}"#;
        let status = br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;
        let metadata = br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
        let event = [br#"{"type":"ADDED","object":"#, secret.as_slice(), b"}\n"].concat();
        let bookmark =
            br#"{"type":"BOOKMARK","object":{"kind":"Secret","apiVersion":"v1","metadata":{"resourceVersion":"5"}}}"#;
        assert_eq!(check("GET", ONE, secret), Ok(()));
        assert_eq!(check("DELETE", ONE, secret), Ok(()));
        assert_eq!(check("DELETE", ONE, status), Ok(()));
        assert_eq!(check("GET", ALL, list), Ok(()));
        assert_eq!(check("GET", WATCH, &event), Ok(()));
        assert_eq!(check("GET", WATCH, bookmark), Ok(()));
        let asked = of("GET", ONE, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").expect("sensitive");
        assert_eq!(asked.check(metadata), Ok(()));
    }
}
