//! Numbered byte streams on one WebSocket.

use std::sync::Arc;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use crate::http::exchange::FreezeGate;
use crate::records::RequestEntry;

/// Maximum size of a received message in bytes.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Numbered byte streams on one WebSocket.
pub(super) struct Channels {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    freeze_gate: FreezeGate,
    entry: Arc<RequestEntry>,
}

impl Channels {
    /// Creates the channels of a connection that has switched to WebSocket.
    pub(super) async fn accept(upgraded: Upgraded, freeze_gate: FreezeGate, entry: Arc<RequestEntry>) -> Self {
        let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE_BYTES));
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
        Self { socket, freeze_gate, entry }
    }

    /// Returns the next bytes and their channel; `None` if the client has closed or disconnected.
    pub(super) async fn receive(&mut self) -> Option<(u8, Bytes)> {
        loop {
            let message = self.socket.next().await?.ok()?;
            // A frozen replica does not process messages either.
            self.freeze_gate.wait_until_open().await;
            match message {
                Message::Binary(mut bytes) if !bytes.is_empty() => {
                    let channel = bytes.split_to(1)[0];
                    return Some((channel, bytes));
                }
                Message::Close(_) => return None,
                // The library responds to pings itself. Text messages are not part of the protocol.
                _ => {}
            }
        }
    }

    /// Sends `bytes`. Returns whether the client is still connected.
    pub(super) async fn send(&mut self, channel: u8, bytes: &[u8]) -> bool {
        self.freeze_gate.wait_until_open().await;
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(channel);
        message.extend_from_slice(bytes);
        self.entry.record_sent(message.len());
        self.socket.send(Message::binary(message)).await.is_ok()
    }

    /// Sends a close frame, and waits for the client's close frame.
    pub(super) async fn close(mut self) {
        // Sending fails if the client closed first. The loop below then reads the client's close frame.
        let close_frame = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        drop(self.socket.close(Some(close_frame)).await);
        while let Some(Ok(_)) = self.socket.next().await {}
        self.entry.finish();
    }
}
