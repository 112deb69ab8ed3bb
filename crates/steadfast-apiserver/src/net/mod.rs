//! Parts of connections: the link that controls a connection, its port, TLS and tasks.

mod controlled;
mod link;
mod port;
mod tasks;
mod tls;

pub(crate) use controlled::{ControlledStream, Transport};
pub(crate) use link::Link;
pub use link::LinkEnd;
pub use port::Port;
pub(crate) use tasks::{ConnectionExecutor, TaskGroup};
pub use tls::ClientIdentity;
pub(crate) use tls::ServerTls;
