//! Sinks that receive each message at least once.

pub mod exec;
mod message_sink;
mod open;
pub mod stdout;
mod unopened;
pub mod webhook;

pub use message_sink::{DeliveryFuture, MessageSink};
