//! Events of the connection of a pending or arriving response.

use std::convert::Infallible;

use futures::stream::{self, Stream, StreamExt};
use tokio::sync::watch;

use super::connection::TransportConnection;

/// Event of a response's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEvent {
    /// True if the rest should be requested on another connection, because this connection is ending or suspect. False
    /// if this connection has recovered.
    Leave(bool),
    /// True if the server responds to other requests on the connection.
    Responsive(bool),
}

/// Returns each value of `receiver` that differs from the previous value. The first value is compared with `before`.
pub(super) fn changes(receiver: watch::Receiver<bool>, before: bool) -> impl Stream<Item = bool> + Send + 'static {
    stream::unfold((receiver, before), |(mut receiver, before)| async move {
        let now = *receiver.wait_for(|now| *now != before).await.ok()?;
        Some((now, (receiver, now)))
    })
}

/// Request extension that reports whether the server responds on the connection of the pending response.
///
/// The end of the connection is not reported here: the response still arrives, or the request fails.
#[derive(Clone, Debug)]
pub(crate) struct ResponsivenessWatch(watch::Sender<bool>);

impl ResponsivenessWatch {
    /// Creates the extension of a request, and the stream of its events.
    pub(crate) fn new() -> (Self, impl Stream<Item = ConnectionEvent> + Send + 'static) {
        let sender = watch::Sender::new(true);
        let events = changes(sender.subscribe(), true).map(ConnectionEvent::Responsive);
        (Self(sender), events)
    }

    /// Forwards the events of `connection`, which carries the request, until the future is dropped.
    pub(super) async fn follow(&self, connection: &TransportConnection) -> Infallible {
        let mut receiver = connection.responsiveness();
        loop {
            let responsive = *receiver.borrow_and_update();
            self.0.send_if_modified(|before| std::mem::replace(before, responsive) != responsive);
            if receiver.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}
