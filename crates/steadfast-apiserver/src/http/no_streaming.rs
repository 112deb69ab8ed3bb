//! Rejection of requests that switch to WebSocket, in builds without the feature `exec`.

use futures::future::BoxFuture;
use http::{Request, header};
use hyper::body::Incoming;

use super::context::RequestContext;
use super::exchange::Exchange;
use super::negotiate::Encoding;
use super::response::ApiResponse;
use super::route::ResourcePath;
use super::target::Target;
use crate::status::Status;

/// WebSocket session that an HTTP/1.1 connection runs after its last response; never present.
#[derive(Clone, Default)]
pub(crate) struct Sessions {}

impl Sessions {
    #[expect(clippy::unused_self, reason = "the same interface as with the feature")]
    pub(crate) fn take(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// WebSocket for the events of a watch; never present.
pub(super) enum EventSocket {}

impl EventSocket {
    /// Rejects a watch over WebSocket.
    pub(super) fn from_request(request: &mut Request<Incoming>) -> Result<Option<Self>, Status> {
        let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
        if upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket")) {
            return Err(unsupported("watches over WebSocket"));
        }
        Ok(None)
    }

    pub(super) fn upgrade(self, _: ApiResponse, _: &Exchange, _: Encoding) -> ApiResponse {
        match self {}
    }
}

/// Rejects `exec`, `attach` and `portforward`.
#[expect(clippy::unused_async, reason = "the same interface as with the feature")]
pub(super) async fn respond(
    _: &Exchange,
    _: &Target,
    path: &ResourcePath,
    _: &RequestContext,
    _: Request<Incoming>,
) -> Result<ApiResponse, Status> {
    Err(unsupported(path.subresource.as_deref().unwrap_or_default()))
}

fn unsupported(operation: &str) -> Status {
    Status::without_feature(501, "NotImplemented", operation, "exec")
}
