//! The network over TCP: a proxy in front of any server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use steadfast_apiserver::Port;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use super::end::End;
use super::faults::NetworkFaults;
use super::link::Link;
use super::network::Network;
use super::report::Ended;

/// How long it is waited where the kernel has no room for another connection.
const NO_ROOM: Duration = Duration::from_millis(50);

/// A proxy on loopback in front of one or several servers, until it is dropped; then its connections are broken off.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    faults: NetworkFaults,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Relays to `targets`, to the first one to begin with, from a port of its own. A target that is `None` is left out.
    ///
    /// # Errors
    ///
    /// Where no port can be had, or where there is no target.
    ///
    /// # Panics
    ///
    /// Where no tokio runtime is current.
    pub fn start(targets: impl IntoIterator<Item = impl Into<Option<SocketAddr>>>) -> io::Result<Self> {
        Self::start_with(NetworkFaults::new(), targets)
    }

    /// The same with the faults of `faults`, which no other proxy may have.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn start_with(
        faults: NetworkFaults,
        targets: impl IntoIterator<Item = impl Into<Option<SocketAddr>>>,
    ) -> io::Result<Self> {
        let targets: Vec<SocketAddr> = targets.into_iter().filter_map(Into::into).collect();
        if targets.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a proxy needs a target"));
        }
        let port = Arc::new(Port::reserve(0)?);
        port.set_open(true)?;
        let address = port.address();
        faults.network.set_port(port.clone());
        let task = tokio::spawn(serve(faults.network.clone(), port, targets));
        Ok(Self { address, faults, task })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The switches of what is between its clients and its targets.
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
    // Ends with this task.
    let mut connections = JoinSet::new();
    loop {
        let Ok(mut near) = port.accept().await else {
            tokio::time::sleep(NO_ROOM).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        // Events are small and must not wait for each other's acknowledgement.
        let _ = near.set_nodelay(true);
        match network.admit() {
            None => near.reset_on_drop(),
            Some(open) if network.turns_away() => open.end(Ended::TurnedAway),
            Some(open) => {
                let target = targets[open.target % targets.len()];
                let link = open.link.clone();
                connections.spawn(open.carry(near, connect(target, link)));
            }
        }
    }
}

async fn connect(target: SocketAddr, link: Arc<Link>) -> io::Result<TcpStream> {
    link.until_passable().await;
    let far = TcpStream::connect(target).await?;
    far.set_nodelay(true)?;
    Ok(far)
}
