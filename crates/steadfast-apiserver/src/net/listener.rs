//! A replica's TCP port: kept for the server's life, open and closed at will.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use super::{TaskGroup, serve};
use crate::cluster::Cluster;

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

/// Accepts connections while the replica is reachable.
pub(crate) async fn accept(cluster: Arc<Cluster>, replica: usize, first: TcpListener, tasks: Arc<TaskGroup>) {
    let conditions = &cluster.replicas[replica].conditions;
    let mut open = Some(first);
    loop {
        let unreachable = cluster.changed.until(|| !conditions.reachable());
        if let Some(listener) = open.take() {
            tokio::select! {
                biased;
                () = unreachable => {}
                () = accept_all(&cluster, replica, &listener, &tasks) => {}
            }
        }
        cluster.changed.until(|| conditions.reachable()).await;
        match cluster.replicas[replica].port.as_ref().map(Port::listen) {
            Some(Ok(listener)) => open = Some(listener),
            Some(Err(error)) => {
                tracing::warn!(replica, %error, "the port cannot be opened again");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            None => return,
        }
    }
}

async fn accept_all(cluster: &Arc<Cluster>, replica: usize, listener: &TcpListener, tasks: &Arc<TaskGroup>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Events are small and must not wait for each other's acknowledgement.
                let _ = stream.set_nodelay(true);
                let runtime = tasks.runtime().clone();
                tasks.spawn(serve::connection(Arc::clone(cluster), replica, stream, runtime));
            }
            Err(error) => {
                tracing::debug!(replica, %error, "a connection was not accepted");
                tokio::task::yield_now().await;
            }
        }
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
