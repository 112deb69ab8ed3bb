//! Connections to the replicas, from their acceptance to their end: sockets or in-memory pipes.

mod listener;
mod memory;
mod serve;

pub(crate) use listener::accept;
pub use memory::{Dialer, MemoryStream};
