//! What becomes of the connection that an answer comes on, or is awaited on.

use std::convert::Infallible;

use futures::stream::{self, Stream, StreamExt};
use tokio::sync::watch;

use super::connection::Connection;

/// What becomes of the connection that an answer comes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Whether to ask for the rest on another connection: this one is to end, or may be dead; or is well after all.
    Leave(bool),
    /// Whether the server answers other requests there.
    Answering(bool),
}

/// What `told` says, each time that it is not what it was `before`.
pub(super) fn changes(told: watch::Receiver<bool>, before: bool) -> impl Stream<Item = bool> + Send + 'static {
    stream::unfold((told, before), |(mut told, before)| async move {
        let now = *told.wait_for(|now| *now != before).await.ok()?;
        Some((now, (told, now)))
    })
}

/// Whether the server answers on the connection where the head of an answer is awaited, put into the extensions of the
/// request.
///
/// That a connection is to end says nothing here: the answer still comes, or the request fails.
#[derive(Clone, Debug)]
pub(crate) struct Awaited(watch::Sender<bool>);

impl Awaited {
    /// Of a request that is about to be sent, and what will be told of it.
    pub(crate) fn new() -> (Self, impl Stream<Item = Notice> + Send + 'static) {
        let told = watch::Sender::new(true);
        let notices = changes(told.subscribe(), true).map(Notice::Answering);
        (Self(told), notices)
    }

    /// The request is on `connection` now: tells what is known of that until it is dropped.
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
