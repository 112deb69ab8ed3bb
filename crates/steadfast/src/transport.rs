//! HTTP/2 and HTTP/1.1 to one server: connections, their health, and the pool that hands them out.
//!
//! | room | what it is |
//! |---|---|
//! | `pool` | chooses, opens and forgets connections; whom to tell when one is there |
//! | `lease` | a place on a connection, and the pool as connections know it |
//! | `connection` | one connection: its state machine, its streams, its record |
//! | `state` | that state machine as a table; what is dead stays dead |
//! | `life` | the task of one connection, from its dial to its end |
//! | `connector` | a socket to one of the server's addresses, a proxy before it, TLS on it, and which protocol was agreed |
//! | `http2`, `http1` | one connection at work: its driver, and one request on it |
//! | `heartbeat` | is the peer there, also when nobody asks |
//! | `inquiry` | does the server behind it answer, where something on the way may answer pings |
//! | `upgrade` | a connection for one request that makes something else of it: `exec`, `attach`, `port-forward` |
//! | `dispatch` | one request from deadline to answer, on another connection where that is safe |
//! | `body` | an answer's body: a clean end, or an error that says how it was cut |
//! | `notice` | what becomes of the connection that an answer comes on, or is awaited on |
//! | `turn`, `upload`, `windows` | the use of an HTTP/1.1 connection by one request; a request's body on its way; how much may come unread |
//! | `fence` | until when requests may be sent, judged at each write to a socket |
//! | `purpose`, `want`, `end`, `failure` | what a connection is for, what a request wants of it, why the one ended and the other failed |
//! | `settings`, `report`, `error`, `cause`, `socket` | limits, what can be reported, what goes wrong, bytes counted |
//!
//! Time, tasks and sockets come from the [`Environment`](crate::environment::Environment) alone.

mod body;
mod cause;
mod connection;
mod connector;
mod dispatch;
mod end;
mod error;
mod failure;
mod fence;
mod heartbeat;
mod http1;
mod http2;
mod inquiry;
mod lease;
mod life;
mod nanos;
mod notice;
mod pool;
mod purpose;
mod report;
mod settings;
mod socket;
mod state;
mod turn;
mod upgrade;
mod upload;
mod vanished;
mod want;
mod windows;

pub use body::ResponseBody;
pub(crate) use connector::{Connector, Login, Proxy, Route, Target};
pub(crate) use dispatch::{copy, is_long};
pub use error::TransportError;
pub use fence::Fence;
pub(crate) use notice::{Awaited, Notice};
pub(crate) use pool::Pool;
pub use report::{ClosedConnection, ConnectionReport, Protocol};
pub(crate) use settings::{Carrier, Reader};
pub use settings::{Deadlines, Placement, Settings};
pub use state::ConnectionState;
pub(crate) use upgrade::{Keep, is_upgrade};
