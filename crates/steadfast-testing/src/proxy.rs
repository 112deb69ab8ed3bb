//! The network between clients and a server, with injected faults.
//!
//! Clients reach a server through a relay that forwards bytes until a switch of [`NetworkFaults`] injects a fault. The
//! relay has two implementations, and both are controlled by [`NetworkFaults`]. [`FaultProxy`] works over TCP, in front
//! of any server. [`NetworkFaults::dialer`] works in memory and uses the time of the runtime, which may be virtual.
//! Clients of [`InMemory`](crate::InMemory) use the second implementation.
//!
//! ```
//! use std::time::Duration;
//! use steadfast_testing::proxy::{Direction, FaultProxy};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use tokio::net::{TcpListener, TcpStream};
//!
//! # #[tokio::main]
//! # async fn main() -> std::io::Result<()> {
//! let server = TcpListener::bind("127.0.0.1:0").await?;
//! let proxy = FaultProxy::start([server.local_addr()?])?;
//! let mut client = TcpStream::connect(proxy.address()).await?;
//! let (mut served, _) = server.accept().await?;
//!
//! proxy.faults().reset_after(3, Direction::ToClient);
//! served.write_all(b"answer").await?;
//!
//! let mut heard = Vec::new();
//! assert!(client.read_to_end(&mut heard).await.is_err(), "the connection was reset");
//! assert_eq!(heard, b"ans");
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | `faults` | [`NetworkFaults`]: the switches, for all connections or for one |
//! | `network` | the state that all connections share: lasting faults, admission, reports |
//! | `link` | lasting conditions, pending actions and counts of one connection; the switches set them for its relay |
//! | `relay`, `one_way_relay` | the forwarding of one connection, each direction with a bounded buffer |
//! | `relayed_stream` | the trait of a relayed byte stream; pipes that support a reset |
//! | `tcp`, `memory` | the two implementations |
//! | `report` | the reports: [`FaultChange`], [`ProxiedConnection`] |
//!
//! Over TCP, the kernels on both sides of the relay acknowledge the bytes that arrive, even during a black hole. To
//! lose packets below TCP, a test needs two network namespaces (`crates/steadfast/tests/kernel.rs`).

mod faults;
mod link;
mod memory;
mod network;
mod one_way_relay;
mod relay;
mod relayed_stream;
mod report;
mod tcp;

pub use faults::{Direction, NetworkFaults};
pub use report::{ConnectionEnd, FaultChange, FaultTransition, ProxiedConnection};
pub use tcp::FaultProxy;
