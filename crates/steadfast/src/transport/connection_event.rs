//! Events of the connection of a pending or arriving response.

use std::convert::Infallible;

use futures::stream::{self, Stream, StreamExt};
use tokio::sync::watch;

use super::connection::Connection;

/// Event of a response's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEvent {
    /// True if the rest should be requested on another connection, because this one is ending or suspect; false if it
    /// recovered.
    Leave(bool),
    /// Responsiveness of the server to other requests on the connection.
    Answering(bool),
}

/// Returns the values of `told` that differ from their predecessor, the first from `before`.
pub(super) fn changes(told: watch::Receiver<bool>, before: bool) -> impl Stream<Item = bool> + Send + 'static {
    stream::unfold((told, before), |(mut told, before)| async move {
        let now = *told.wait_for(|now| *now != before).await.ok()?;
        Some((now, (told, now)))
    })
}

/// Responsiveness of the server on the connection of a pending response, set as a request extension.
///
/// The end of the connection is not reported here: the response still arrives, or the request fails.
#[derive(Clone, Debug)]
pub(crate) struct Awaited(watch::Sender<bool>);

impl Awaited {
    /// Creates the extension of a request, and the stream of its events.
    pub(crate) fn new() -> (Self, impl Stream<Item = ConnectionEvent> + Send + 'static) {
        let told = watch::Sender::new(true);
        let notices = changes(told.subscribe(), true).map(ConnectionEvent::Answering);
        (Self(told), notices)
    }

    /// Forwards the events of `connection`, which carries the request, until the future is dropped.
    pub(super) async fn follow(&self, connection: &Connection) -> Infallible {
        let mut told = connection.whether_it_answers();
        loop {
            let answering = *told.borrow_and_update();
            self.0.send_if_modified(|before| std::mem::replace(before, answering) != answering);
            if told.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}
