//! HTTP/2 and HTTP/1.1 to one server: connections, their health checks, and their pool.
//!
//! | module | content |
//! |---|---|
//! | `pool` | selection, opening and removal of connections; notification of waiting requests |
//! | `stream_slot` | slot of a request on a connection, and the connections' interface to the pool |
//! | `connection` | one connection: its state, its streams, its report |
//! | `state` | state machine of a connection as a table; a dead connection stays dead |
//! | `connection_task` | task of one connection, from dial to end |
//! | `connector` | socket to an address of the server, proxy, TLS and protocol negotiation |
//! | `http2`, `http1` | protocol driver of a connection, and one request on it |
//! | `heartbeat` | pings that detect a dead peer without a request |
//! | `dead_peer_probe` | detection of a vanished peer that may read slowly, by a new connection to its address |
//! | `liveness_probes` | requests that detect an unresponsive server behind a proxy that responds to pings |
//! | `upgrade` | dedicated connection of an upgraded request: `exec`, `attach`, `port-forward` |
//! | `deadline` | deadlines that leave time to read received data after a freeze of the process |
//! | `dispatch` | one request from deadlines to response, with a safe retry on another connection |
//! | `response_kind` | properties of a response, from the path and query of its request |
//! | `body` | response body: a clean end, or an error with the cause of the interruption |
//! | `connection_event` | connection events for requests: the connection drains, or the server does not respond |
//! | `http1_slot`, `upload`, `windows` | use of an HTTP/1.1 connection by one request; request bodies; flow control |
//! | `fence` | time limit for sending, checked at each write to a socket |
//! | `purpose`, `placement_request`, `end`, `failure` | purpose of a connection, requirements of a request, ends and failures |
//! | `connection_runtime`, `waiting` | runtime that drives a connection; requests that wait for a connection, by runtime |
//! | `settings`, `report`, `error`, `cause`, `socket` | limits, reports, errors and their texts, byte counts |
//! | `nanos` | instants as integers, for atomics |
//!
//! Time, tasks and sockets come only from the [`Environment`](crate::environment::Environment).

mod body;
mod cause;
mod connection;
mod connection_event;
mod connection_runtime;
mod connection_task;
mod connector;
mod dead_peer_probe;
mod deadline;
mod dispatch;
mod end;
mod error;
mod failure;
mod fence;
mod heartbeat;
mod http1;
mod http1_slot;
mod http2;
mod liveness_probes;
pub(crate) mod nanos;
mod placement_request;
mod pool;
mod purpose;
mod report;
mod response_kind;
mod settings;
mod socket;
mod state;
mod stream_slot;
mod upgrade;
mod upload;
mod waiting;
mod windows;

pub use body::ResponseBody;
pub(crate) use connection_event::{ConnectionEvent, ResponsivenessWatch};
pub(crate) use connection_runtime::ConnectionRuntime;
pub(crate) use connector::{Connector, HostPort, Login, Proxy, Route};
pub(crate) use dispatch::copy_request;
pub use error::TransportError;
pub use fence::Fence;
pub(crate) use pool::Pool;
pub use report::{ClosedConnection, ConnectionReport, Protocol};
pub(crate) use response_kind::{ResponseKind, is_proxied};
pub(crate) use settings::{CarryingConnection, Reader};
pub use settings::{Deadlines, Placement, Settings};
pub use state::ConnectionState;
pub(crate) use upgrade::{KeptValues, is_upgrade};
