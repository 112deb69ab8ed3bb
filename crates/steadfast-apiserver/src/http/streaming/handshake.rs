//! Handshake for the switch to WebSocket.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use parking_lot::Mutex;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::http::credentials::{BEARER_PREFIX, protocols};
use crate::status::Status;

/// WebSocket session that an HTTP/1.1 connection runs after its last response.
#[derive(Clone, Default)]
pub(crate) struct Sessions(Arc<Mutex<Option<BoxFuture<'static, ()>>>>);

impl Sessions {
    pub(super) fn put(&self, session: BoxFuture<'static, ()>) {
        *self.0.lock() = Some(session);
    }

    pub(crate) fn take(&self) -> Option<BoxFuture<'static, ()>> {
        self.0.lock().take()
    }
}

/// Request for a switch to WebSocket, on a connection that supports it.
pub(super) struct Handshake {
    pub(super) sessions: Sessions,
    pub(super) accept: HeaderValue,
    pub(super) upgrade: OnUpgrade,
}

impl Handshake {
    /// Returns the handshake of a request; `None` if the request does not request WebSocket, or uses HTTP/2.
    pub(super) fn from_request(request: &mut Request<Incoming>) -> Result<Option<Self>, Status> {
        let sessions = request.extensions_mut().remove::<Sessions>();
        let (Some(sessions), Some(key)) = (sessions, websocket_key(request.headers())) else { return Ok(None) };
        let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()))
            .map_err(|_| Status::bad_request("the key of the WebSocket is invalid"))?;
        Ok(Some(Self { sessions, accept, upgrade: hyper::upgrade::on(request) }))
    }
}

fn websocket_key(headers: &HeaderMap) -> Option<&HeaderValue> {
    let upgrade = headers.get(header::UPGRADE)?.to_str().ok()?;
    // The key alone is not a request for an upgrade.
    upgrade.eq_ignore_ascii_case("websocket").then(|| headers.get(header::SEC_WEBSOCKET_KEY)).flatten()
}

/// Returns the client's subprotocols in order, without a subprotocol that carries a token.
pub(super) fn offered_protocols(headers: &HeaderMap) -> Vec<&str> {
    protocols(headers).filter(|protocol| !protocol.starts_with(BEARER_PREFIX)).collect()
}
