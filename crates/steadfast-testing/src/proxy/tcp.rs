//! The network over TCP: a proxy in front of any server.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::NetworkFaults;
use super::end::End;
use super::link::Link;
use super::network::Network;
use super::report::Ended;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;
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
        let door = Arc::new(Door::open()?);
        let address = door.address;
        faults.network.set_door(door.clone());
        let task = tokio::spawn(serve(faults.network.clone(), door, targets));
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

async fn serve(network: Arc<Network>, door: Arc<Door>, targets: Vec<SocketAddr>) {
    // Ends with this task.
    let mut connections = JoinSet::new();
    loop {
        let Ok(mut near) = door.accept().await else {
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

/// A port that can be closed and opened again; while it is closed, connections are refused.
pub(super) struct Door {
    address: SocketAddr,
    /// Bound and never listening: nobody else can be given the port.
    _reservation: Socket,
    state: Mutex<DoorState>,
}

#[derive(Default)]
struct DoorState {
    listener: Listening,
    waiting: Option<Waker>,
}

#[derive(Default)]
enum Listening {
    #[default]
    Closed,
    /// The kernel accepts; the runtime does not know of it yet.
    Opened(std::net::TcpListener),
    Served(TcpListener),
}

impl Door {
    fn open() -> io::Result<Self> {
        let reservation = bound((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = reservation.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let listener = Listening::Opened(listen(address)?);
        let state = Mutex::new(DoorState { listener, waiting: None });
        Ok(Self { address, _reservation: reservation, state })
    }

    /// Opens or closes it; done when this returns.
    pub(super) fn set_open(&self, open: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match (open, &state.listener) {
            (false, _) => state.listener = Listening::Closed,
            (true, Listening::Closed) => {
                state.listener = Listening::Opened(listen(self.address).expect("the port is reserved for this"));
            }
            (true, _) => {}
        }
        if let Some(waiting) = state.waiting.take() {
            waiting.wake();
        }
    }

    async fn accept(&self) -> io::Result<TcpStream> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting = Some(context.waker().clone());
        if let Listening::Opened(_) = &state.listener
            && let Listening::Opened(listener) = std::mem::take(&mut state.listener)
        {
            state.listener = Listening::Served(TcpListener::from_std(listener)?);
        }
        match &state.listener {
            Listening::Served(listener) => listener.poll_accept(context).map_ok(|(near, _)| near),
            _ => Poll::Pending,
        }
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("address", &self.address).finish_non_exhaustive()
    }
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = bound(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
