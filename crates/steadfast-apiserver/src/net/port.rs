//! A replica's TCP port: kept for the server's life, open and closed at will.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// A reserved port of 127.0.0.1.
///
/// The reservation is a bound socket that never listens: while no listener is open, connections are refused, and
/// still nobody else can be given the port.
#[derive(Debug)]
pub(crate) struct Port {
    address: SocketAddr,
    _reservation: Socket,
}

impl Port {
    /// Reserves a port; 0 takes a free one.
    pub(crate) fn reserve(port: u16) -> io::Result<Self> {
        let reservation = bound_socket((Ipv4Addr::LOCALHOST, port).into())?;
        let address = reservation.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { address, _reservation: reservation })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        let socket = bound_socket(self.address)?;
        socket.listen(1024)?;
        TcpListener::from_std(socket.into())
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
