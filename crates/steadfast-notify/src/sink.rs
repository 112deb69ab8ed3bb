//! Streams: sinks that receive each message at least once.

pub mod exec;
mod open;
pub mod stdout;
mod stream;
mod unopened;
pub mod webhook;

pub use stream::{DeliveryFuture, MessageStream};
