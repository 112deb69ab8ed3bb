//! Interface of the receivers of a sink's messages.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::delivery_outcome::DeliveryOutcome;
use crate::message::Message;

/// Delivery attempt in flight.
pub type DeliveryFuture<'a> = Pin<Box<dyn Future<Output = DeliveryOutcome> + Send + 'a>>;

/// Receiver of messages: each change is delivered at least once, changes of one object in order.
pub trait MessageSink: Send + Sync + 'static {
    /// Delivers all of `messages` or none. Dropping the future cancels the attempt.
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> DeliveryFuture<'a>;
}
