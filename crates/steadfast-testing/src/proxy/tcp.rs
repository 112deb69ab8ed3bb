//! The network over TCP: a proxy in front of any server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use steadfast_apiserver::Port;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use super::faults::NetworkFaults;
use super::link::Link;
use super::network::Network;
use super::relayed_stream::RelayedStream;
use super::report::ConnectionEnd;

/// Delay before the next accept if the kernel has no resources for another connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Proxy on the loopback interface in front of one or more servers. Dropping it breaks its connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    faults: NetworkFaults,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy on a free port that relays to `targets`, initially to the first one. Targets that are `None` are
    /// skipped.
    ///
    /// # Errors
    ///
    /// Returns an error if no port is available, or if `targets` is empty.
    ///
    /// # Panics
    ///
    /// Panics if no tokio runtime is current.
    pub fn start(targets: impl IntoIterator<Item = impl Into<Option<SocketAddr>>>) -> io::Result<Self> {
        Self::start_with_faults(NetworkFaults::new(), targets)
    }

    /// Starts a proxy that injects the faults of `faults`, which must not belong to another proxy.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// Panics under the conditions of [`start`](Self::start).
    pub fn start_with_faults(
        faults: NetworkFaults,
        targets: impl IntoIterator<Item = impl Into<Option<SocketAddr>>>,
    ) -> io::Result<Self> {
        let targets: Vec<SocketAddr> = targets.into_iter().filter_map(Into::into).collect();
        if targets.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a proxy needs at least one target"));
        }
        let port = Arc::new(Port::reserve(0)?);
        port.set_open(true)?;
        let address = port.address();
        // The port is registered before the first accept, so that an early `refuse` closes it.
        faults.network.set_port(port.clone());
        let task = tokio::spawn(serve(faults.network.clone(), port, targets));
        Ok(Self { address, faults, task })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the switches of the network between clients and targets.
    pub fn faults(&self) -> &NetworkFaults {
        &self.faults
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(network: Arc<Network>, port: Arc<Port>, targets: Vec<SocketAddr>) {
    // The connections end when this task ends.
    let mut connections = JoinSet::new();
    loop {
        let Ok(mut client_stream) = port.accept().await else {
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        // Finished tasks are collected here. Otherwise the set would grow with every connection.
        while connections.try_join_next().is_some() {}
        // Events are small, and must not wait for the acknowledgement of earlier ones.
        let _ = client_stream.set_nodelay(true);
        match network.admit() {
            // A connection can still be in the accept queue when the port closes. For the client, a reset looks like
            // a rejected connection.
            None => client_stream.reset_on_drop(),
            Some(open) if network.turns_away() => open.end(ConnectionEnd::TurnedAway),
            Some(open) => {
                let target = targets[open.target % targets.len()];
                let link = open.link.clone();
                connections.spawn(open.forward(client_stream, connect(target, link)));
            }
        }
    }
}

async fn connect(target: SocketAddr, link: Arc<Link>) -> io::Result<TcpStream> {
    // The kernel has already accepted the connection. A black hole therefore starts after the handshake.
    link.until_passable().await;
    let server_stream = TcpStream::connect(target).await?;
    server_stream.set_nodelay(true)?;
    Ok(server_stream)
}
