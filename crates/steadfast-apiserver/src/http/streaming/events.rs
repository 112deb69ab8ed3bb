//! Watches over WebSocket: one frame for each event.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Request};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use super::handshake::{Handshake, offered_protocols};
use crate::http::body::Chunks;
use crate::http::exchange::{Exchange, FreezeGate};
use crate::http::negotiate::Encoding;
use crate::http::response::{ApiResponse, Content};
use crate::records::RequestEntry;
use crate::status::Status;

/// Size of the length prefix of a protobuf event, in bytes. A WebSocket frame has its own length and omits the prefix.
const LENGTH_PREFIX_BYTES: usize = 4;

/// WebSocket for the events of a watch.
pub(crate) struct EventSocket {
    handshake: Handshake,
    protocol: Option<HeaderValue>,
}

impl EventSocket {
    /// Returns the WebSocket of a valid WebSocket handshake. `None` for a plain request.
    pub(crate) fn from_request(request: &mut Request<Incoming>) -> Result<Option<Self>, Status> {
        let Some(handshake) = Handshake::from_request(request)? else { return Ok(None) };
        let headers = request.headers();
        if header_text(headers, "sec-websocket-version") != "13" {
            return Err(Status::bad_request("missing or bad WebSocket Version"));
        }
        // A real server identifies a page in a browser by its origin, and rejects a client without an origin.
        if header_text(headers, "origin").is_empty() {
            return Err(Status::new(403, "Forbidden", "null origin: send an Origin header with a WebSocket request"));
        }
        // Events have no subprotocol of their own, so the server accepts any offered one.
        let protocol = match offered_protocols(headers).as_slice() {
            [] => None,
            [protocol] => HeaderValue::from_str(protocol).ok(),
            _ => return Err(Status::bad_request("bad protocol: offer one subprotocol at most")),
        };
        Ok(Some(Self { handshake, protocol }))
    }

    /// Returns the response that switches to the WebSocket, and starts to send the events of the watch. Returns
    /// `response` unchanged if the watch was rejected.
    pub(crate) fn upgrade(self, response: ApiResponse, exchange: &Exchange, encoding: Encoding) -> ApiResponse {
        // A rejected watch keeps its plain response, so that the client receives the status.
        let Content::Chunks(chunks) = response.content else { return response };
        let Handshake { sessions, accept, upgrade } = self.handshake;
        let (freeze_gate, entry) = (exchange.freeze_gate(), Arc::clone(&exchange.entry));
        sessions.put(Box::pin(async move {
            if let Ok(upgraded) = upgrade.await {
                send_all(chunks, upgraded, freeze_gate, &entry, encoding).await;
            }
            entry.finish();
        }));
        ApiResponse::websocket_upgrade(accept, self.protocol)
    }
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim()
}

/// Sends events until the watch ends or the client closes.
async fn send_all(
    mut chunks: Chunks,
    upgraded: Upgraded,
    freeze_gate: FreezeGate,
    entry: &RequestEntry,
    encoding: Encoding,
) {
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    let (mut sink, mut source) = socket.split();
    loop {
        // The watch and the socket are read concurrently: a close by the client must end an idle watch.
        let mut chunk = tokio::select! {
            received = source.next() => match received {
                // The client sends only pings, to which the socket responds.
                Some(Ok(message)) if !message.is_close() => continue,
                _ => break,
            },
            chunk = chunks.next() => match chunk {
                Some(chunk) => chunk,
                None => break,
            },
        };
        while let Some(frame) = next_frame(&mut chunk, encoding) {
            freeze_gate.wait_until_open().await;
            let bytes = frame.len();
            if sink.send(frame).await.is_err() {
                return;
            }
            entry.record_sent(bytes);
        }
    }
    // An error means that the client closed first.
    drop(sink.close().await);
}

/// Removes the first event from a chunk. Chunks contain complete events.
fn next_frame(chunk: &mut Bytes, encoding: Encoding) -> Option<Message> {
    match encoding {
        Encoding::Json => {
            // A chunk may contain several events. Each event becomes a frame.
            let end = chunk.iter().position(|byte| *byte == b'\n').map_or(chunk.len(), |newline| newline + 1);
            let event = chunk.split_to(end);
            let text = Utf8Bytes::try_from(event).ok().filter(|text| !text.is_empty())?;
            Some(Message::Text(text))
        }
        Encoding::Protobuf => {
            if chunk.len() < LENGTH_PREFIX_BYTES {
                return None;
            }
            // A length beyond the chunk cannot occur in complete events. The bound prevents a panic.
            let length = usize::try_from(chunk.get_u32()).unwrap_or(usize::MAX).min(chunk.len());
            Some(Message::Binary(chunk.split_to(length)))
        }
    }
}
