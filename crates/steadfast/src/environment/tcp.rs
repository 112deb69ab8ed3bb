//! TCP, set up so that the kernel notices a peer that vanished within R1's 15 s.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::Socket;

/// How long one address is given to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one address is waited for before the next is tried beside it.
const STAGGER: Duration = Duration::from_millis(500);

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

/// Connects to the first address of `host` that answers.
pub(super) async fn dial(host: &str, port: u16) -> io::Result<Box<dyn Socket>> {
    let mut addresses = tokio::net::lookup_host((host, port)).await?;
    let mut attempts = FuturesUnordered::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        let more = addresses.next().map(|address| attempts.push(connect(address))).is_some();
        if attempts.is_empty() {
            return Err(last);
        }
        tokio::select! {
            attempt = attempts.next() => match attempt {
                Some(Ok(stream)) => return Ok(Box::new(stream)),
                Some(Err(error)) => last = error,
                None => {}
            },
            () = tokio::time::sleep(STAGGER), if more => {}
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    let silence = |_| {
        let silence = format!("no answer within {} s", CONNECT_TIMEOUT.as_secs());
        named(io::Error::new(io::ErrorKind::TimedOut, silence))
    };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
    let stream = connected.map_err(silence)?.map_err(named)?;
    configure(&stream).map_err(named)?;
    Ok(stream)
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
