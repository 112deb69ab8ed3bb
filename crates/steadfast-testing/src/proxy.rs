//! The network between clients and a server, and what can go wrong with it.
//!
//! Clients reach a server through a relay that carries bytes until [`NetworkFaults`] says otherwise. It comes in two
//! forms with one handle: [`FaultProxy`] over TCP, in front of any server, and [`NetworkFaults::dialer`] in memory, whose
//! time is that of the runtime, so that it may be virtual. Clients of [`InMemory`](crate::InMemory) go through one.
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
//! assert!(client.read_to_end(&mut heard).await.is_err(), "it was reset");
//! assert_eq!(heard, b"ans");
//! # Ok(())
//! # }
//! ```
//!
//! # The rooms
//!
//! | room | what is in it |
//! |---|---|
//! | `faults` | [`NetworkFaults`]: the switches, of all connections or of one |
//! | `network` | what all connections share: the lasting conditions, who is admitted, what is reported |
//! | `link` | one connection's conditions, orders and counts, between the switches and its relay |
//! | `relay`, `lane` | one connection at work: two lanes, each of which holds a bounded number of bytes |
//! | `end` | what a relay wants of a byte stream; pipes that can be reset |
//! | `tcp`, `memory` | the two forms |
//! | `door` | a port that can be closed and opened again, for the one over TCP |
//! | `report` | what is reported: [`Switching`], [`Carried`] |
//!
//! Over TCP the kernels at both sides of the relay acknowledge what arrives, in a black hole too: packets that are lost
//! below TCP take a network that can be cut (`crates/steadfast/tests/kernel.rs`).

mod end;
mod faults;
mod lane;
mod link;
mod memory;
mod network;
mod relay;
mod report;
mod tcp;

pub use faults::{Direction, NetworkFaults};
pub use report::{Carried, Ended, Switched, Switching};
pub use tcp::FaultProxy;
