//! A TCP port that is kept for its owner's life, open and closed at will.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A reserved port of 127.0.0.1, for whatever a test opens and closes there.
///
/// The reservation is a bound socket that never listens: while no listener is open, connections are refused, and
/// still nobody else can be given the port.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    _reservation: Socket,
}

impl Port {
    /// Reserves a port; 0 takes a free one.
    ///
    /// # Errors
    ///
    /// Another has it.
    pub fn reserve(port: u16) -> io::Result<Self> {
        let reservation = bound_socket((Ipv4Addr::LOCALHOST, port).into())?;
        let address = reservation.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { address, _reservation: reservation })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Opens it, for as long as the listener is kept, which does not block.
    ///
    /// # Errors
    ///
    /// What the operating system has against it.
    pub fn listen(&self) -> io::Result<TcpListener> {
        let socket = bound_socket(self.address)?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    }
}

fn bound_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
