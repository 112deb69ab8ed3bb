//! A port that can be closed and opened again.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;
/// A port that can be closed and opened again; while it is closed, connections are refused.
pub(super) struct Door {
    pub(super) address: SocketAddr,
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
    pub(super) fn open() -> io::Result<Self> {
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

    pub(super) async fn accept(&self) -> io::Result<TcpStream> {
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
