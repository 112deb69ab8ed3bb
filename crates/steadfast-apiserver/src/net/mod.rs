//! Connections: real sockets or in-memory pipes, with the same faults.

mod controlled;
mod link;
mod listener;
mod memory;
mod port;
mod serve;
mod tasks;
mod tls;

pub(crate) use link::Link;
pub use link::LinkEnd;
pub(crate) use listener::accept;
pub use memory::{Dialer, MemoryStream};
pub use port::Port;
pub(crate) use tasks::TaskGroup;
pub use tls::ClientIdentity;
pub(crate) use tls::ServerTls;
