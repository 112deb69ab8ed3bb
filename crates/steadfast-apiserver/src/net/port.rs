//! TCP port that stays reserved for its owner's lifetime and can be opened and closed.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

/// Maximum number of connections that wait to be accepted.
const MAX_PENDING_CONNECTIONS: i32 = 1024;

/// Reserved port of 127.0.0.1 that a test opens and closes. Starts closed.
///
/// A bound socket that never listens holds the reservation. While the port is closed, connections are refused, and the
/// port is not assigned to another socket.
pub struct Port {
    address: SocketAddr,
    state: Mutex<PortState>,
    _reservation: Socket,
}

#[derive(Default)]
struct PortState {
    listener: ListenerState,
    /// Waker of the task in [`accept`](Self::accept).
    waker: Option<Waker>,
}

#[derive(Default)]
enum ListenerState {
    #[default]
    Closed,
    /// Listening socket that is not registered with the runtime yet.
    Unregistered(Socket),
    Registered(TcpListener),
}

impl ListenerState {
    /// Shuts the listening socket down, and closes it.
    ///
    /// Another thread may be starting a child process, which has a copy of the socket until its `exec`. Without the
    /// shutdown, the kernel would accept connections until then.
    fn close(&mut self) {
        // Some systems reject the shutdown of a listening socket. There, the close ends the listening.
        let _ = std::mem::take(self).shut_down();
    }

    /// Shuts the listening socket down, so that each accept fails.
    fn shut_down(&self) -> io::Result<()> {
        match self {
            Self::Closed => Ok(()),
            Self::Unregistered(socket) => socket.shutdown(Shutdown::Both),
            Self::Registered(listener) => SockRef::from(listener).shutdown(Shutdown::Both),
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.state.get_mut().listener.close();
    }
}

impl Port {
    /// Reserves `port`; 0 selects a free port.
    ///
    /// # Errors
    ///
    /// Returns an error if the port is in use.
    pub fn reserve(port: u16) -> io::Result<Self> {
        let reservation = bound_socket((Ipv4Addr::LOCALHOST, port).into())?;
        let address = reservation.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { address, state: Mutex::default(), _reservation: reservation })
    }

    /// Returns the address of the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens or closes the port. The kernel accepts or refuses connections as soon as the call returns.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error if the port cannot be opened. The port then stays closed.
    pub fn set_open(&self, open: bool) -> io::Result<()> {
        let mut state = self.state();
        match (open, &state.listener) {
            (false, _) => state.listener.close(),
            (true, ListenerState::Closed) => {
                // The reservation keeps the port, so no other process can take a closed port.
                let socket = bound_socket(self.address)?;
                socket.listen(MAX_PENDING_CONNECTIONS)?;
                state.listener = ListenerState::Unregistered(socket);
            }
            (true, _) => {}
        }
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        Ok(())
    }

    /// Accepts the next connection. Waits while the port is closed. Only one task may wait at a time.
    ///
    /// # Errors
    ///
    /// Returns an error if a connection cannot be accepted. Later connections may succeed.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let mut state = self.state();
        // Stored under the lock, so that `set_open` cannot miss this task.
        state.waker = Some(context.waker().clone());
        // Registration needs the runtime of the accepting task. It consumes the socket, even if it fails. A copy
        // therefore keeps the port open for the next attempt.
        if let ListenerState::Unregistered(socket) = &state.listener {
            let listener = TcpListener::from_std(socket.try_clone()?.into())?;
            state.listener = ListenerState::Registered(listener);
        }
        match &state.listener {
            ListenerState::Registered(listener) => listener.poll_accept(context).map_ok(|(stream, _)| stream),
            _ => Poll::Pending,
        }
    }

    /// Shuts the listening socket down, so that each accept fails.
    #[cfg(test)]
    pub(crate) fn break_listener(&self) -> io::Result<()> {
        self.state().listener.shut_down()
    }

    fn state(&self) -> MutexGuard<'_, PortState> {
        self.state.lock()
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("address", &self.address).finish_non_exhaustive()
    }
}

fn bound_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    // The reservation and the listener share the port.
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    /// Copies of a socket exist in child processes between `fork` and `exec`.
    #[tokio::test]
    async fn closed_port_refuses_despite_copied_socket() -> io::Result<()> {
        let port = Port::reserve(0)?;
        for registered in [false, true] {
            port.set_open(true)?;
            if registered {
                let _client = TcpStream::connect(port.address())?;
                port.accept().await?;
            }
            let copy = match &port.state().listener {
                ListenerState::Closed => return Err(io::ErrorKind::NotConnected.into()),
                ListenerState::Unregistered(socket) => socket.try_clone()?,
                ListenerState::Registered(listener) => SockRef::from(listener).try_clone()?,
            };
            port.set_open(false)?;
            let refused = TcpStream::connect(port.address()).err().map(|error| error.kind());
            assert_eq!(refused, Some(io::ErrorKind::ConnectionRefused), "registered: {registered}");
            drop(copy);
        }
        Ok(())
    }

    #[test]
    fn port_stays_open_after_failed_registration() -> io::Result<()> {
        let port = Port::reserve(0)?;
        port.set_open(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let ended = runtime.handle().clone();
        drop(runtime);
        {
            let _entered = ended.enter();
            let registration = port.poll_accept(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(registration, Poll::Ready(Err(_))), "{registration:?}");
        }
        let _client = TcpStream::connect(port.address())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(port.accept())?;
        Ok(())
    }
}
