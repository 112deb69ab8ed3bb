//! What a stream is.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::message::Message;
use crate::outcome::Outcome;

/// An attempt that is under way.
pub type Delivering<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// Takes messages: each change is delivered at least once, those of one object in order.
pub trait Stream: Send + Sync + 'static {
    /// Tries to deliver `messages`, all or none of them; given up where the future is dropped.
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> Delivering<'a>;
}
