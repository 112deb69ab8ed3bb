//! TCP, set up so that the kernel notices a peer that vanished within R1's 15 s.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::Socket;

const KEEPALIVE_IDLE: Duration = Duration::from_secs(4);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_PROBES: u32 = 3;

/// How long sent bytes may stay unacknowledged.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(12);

impl Socket for TcpStream {
    fn peer(&self) -> String {
        self.peer_addr().map_or_else(|_| "a closed socket".to_owned(), |address| address.to_string())
    }
}

/// The addresses of `host`, in the system's order.
pub(super) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

/// Connects to `address`.
pub(super) async fn dial(address: SocketAddr) -> io::Result<Box<dyn Socket>> {
    let stream = TcpStream::connect(address).await?;
    configure(&stream)?;
    Ok(Box::new(stream))
}

fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(())
}
