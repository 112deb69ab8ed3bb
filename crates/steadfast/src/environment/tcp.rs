//! TCP sockets with kernel timeouts that detect a vanished peer within the 15 s of R1.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::Socket;

const KEEPALIVE_IDLE: Duration = Duration::from_secs(4);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_PROBES: u32 = 3;

/// Maximum time that sent data can stay unacknowledged or unaccepted. The kernel also drops a peer that acknowledges
/// probes but has a full receive buffer.
const USER_TIMEOUT: Duration = Duration::from_secs(12);

impl Socket for TcpStream {
    fn peer(&self) -> String {
        self.peer_addr().map_or_else(|_| "a closed socket".to_owned(), |address| address.to_string())
    }

    fn allow_slow_peer(&self, allowed: bool) {
        let limit = (!allowed).then_some(USER_TIMEOUT);
        if let Err(error) = limit_unacknowledged(self, limit) {
            tracing::debug!(%error, "cannot change the send timeout of the socket");
        }
    }

    fn limit_lateness(&self, limit: Duration) {
        // With a zero linger time, a close discards unsent data and resets the connection, even if the process is
        // killed.
        let discarding = SockRef::from(self).set_linger(Some(Duration::ZERO));
        if let Err(error) = discarding.and_then(|()| limit_unacknowledged(self, Some(limit))) {
            tracing::warn!(%error, "cannot limit the send time; the kernel may send written bytes late");
        }
    }
}

/// Resolves `host`, in the system's order.
pub(super) async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}

/// Connects to `address`.
pub(super) async fn dial(address: SocketAddr) -> io::Result<Box<dyn Socket>> {
    let stream = TcpStream::connect(address).await?;
    configure(&stream, USER_TIMEOUT)?;
    Ok(Box::new(stream))
}

fn configure(stream: &TcpStream, user_timeout: Duration) -> io::Result<()> {
    // Requests are small. Nagle's algorithm would delay them until earlier data is acknowledged.
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    // Keepalive detects a dead peer of an idle connection. The user timeout detects a dead peer while data is
    // unacknowledged.
    socket.set_tcp_keepalive(&keepalive)?;
    limit_unacknowledged(stream, Some(user_timeout))
}

/// Limits how long written data can stay in the kernel. `None` uses the system's limit, and waits forever for a peer
/// that reports a full buffer.
fn limit_unacknowledged(stream: &TcpStream, limit: Option<Duration>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_user_timeout(limit)?;
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, limit);
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;

    use tokio::io::{AsyncReadExt, AsyncWrite as _, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// More than the buffers of two kernels hold.
    const MORE_THAN_BUFFERS: usize = 32 << 20;

    /// Neither of the two peers reads at first. The kernel drops the connection to the second peer at the user timeout.
    /// The first connection is older, but its peer is allowed to be slow, and receives all data in the end.
    #[tokio::test]
    async fn slow_peer_setting_disables_user_timeout() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let connect = async || -> io::Result<_> {
            let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
            let near = near?;
            configure(&near, Duration::from_secs(1))?;
            Ok((near, far?.0))
        };
        let (patient, mut slow) = connect().await?;
        patient.allow_slow_peer(true);
        let writing = tokio::spawn(write_much(patient));
        let (impatient, _unread) = connect().await?;
        let given_up = write_much(impatient).await.expect_err("the peer does not read");
        assert_eq!(given_up.kind(), io::ErrorKind::TimedOut);
        let mut read = Vec::new();
        slow.read_to_end(&mut read).await?;
        writing.await.expect("no panic")?;
        assert_eq!(read.len(), MORE_THAN_BUFFERS);
        Ok(())
    }

    /// With a lateness limit, data that the peer's kernel has not accepted is discarded when the socket is dropped.
    /// Without the limit the data arrives.
    #[tokio::test]
    async fn lateness_limit_discards_unsent_data() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        for limited in [true, false] {
            let (near, far) = tokio::join!(dial(address), listener.accept());
            let (mut near, mut far) = (near?, far?.0);
            if limited {
                near.limit_lateness(Duration::from_secs(60));
            }
            let mut written = 0;
            let full = poll_fn(|context| {
                loop {
                    match Pin::new(&mut near).poll_write(context, &[b'x'; 16_000]) {
                        Poll::Ready(Ok(bytes)) => written += bytes,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => return Poll::Ready(Ok(())),
                    }
                }
            });
            full.await?;
            drop(near);
            let mut read = Vec::new();
            let end = far.read_to_end(&mut read).await;
            if limited {
                assert_eq!(end.expect_err("a reset").kind(), io::ErrorKind::ConnectionReset);
                assert!(read.len() < written, "{} of {written}", read.len());
            } else {
                end?;
                assert_eq!(read.len(), written);
            }
        }
        Ok(())
    }

    async fn write_much(mut stream: TcpStream) -> io::Result<()> {
        stream.write_all(&vec![b'x'; MORE_THAN_BUFFERS]).await?;
        stream.shutdown().await
    }
}
