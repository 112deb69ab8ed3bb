//! Socket with traffic counters.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use steadfast_core::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::fence::Fence;
use super::nanos::nanos;
use crate::environment::{SharedEnvironment, Socket};

/// Byte stream with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Flag in [`Traffic::sent`]: a write is in progress.
const WRITING_FLAG: u64 = 1;

/// Flag in [`Traffic::sent`]: no further write may start.
const SEALED_FLAG: u64 = 2;

/// Position of the byte count in [`Traffic::sent`], in bits.
const COUNT_SHIFT: u32 = 2;

/// Traffic of a socket.
#[derive(Debug)]
pub(super) struct Traffic {
    received: AtomicU64,
    /// Byte count, in the bits above [`WRITING_FLAG`] and [`SEALED_FLAG`]. Count and flags share one word, so that no
    /// write can start between the check and the seal.
    sent: AtomicU64,
    /// Time of the last received byte, in nanoseconds since the clock's zero.
    last_received: AtomicU64,
    /// Value of `sent` at the last received byte.
    sent_at_last_receipt: AtomicU64,
    /// True if the peer may read slowly.
    allows_slow_peer: AtomicBool,
    /// TLS alert of a peer that rejected the client.
    tls_rejection: OnceLock<rustls::Error>,
    /// Deadline of all writes, if any.
    fence: Option<Fence>,
}

impl Traffic {
    /// Creates empty counters at `now`. With a `fence`, writes are permitted only before its deadline.
    pub(super) fn new(now: Instant, fence: Option<Fence>) -> Self {
        Self {
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            last_received: AtomicU64::new(nanos(now)),
            sent_at_last_receipt: AtomicU64::new(0),
            allows_slow_peer: AtomicBool::new(false),
            tls_rejection: OnceLock::new(),
            fence,
        }
    }

    /// Returns the received bytes.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the sent bytes.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed) >> COUNT_SHIFT
    }

    /// Prevents further writes if nothing was written since [`sent`](Self::sent) returned `sent_before`. Returns true
    /// on success.
    pub(super) fn seal_at(&self, sent_before: u64) -> bool {
        let expected = sent_before << COUNT_SHIFT;
        match self.sent.compare_exchange(expected, expected | SEALED_FLAG, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            // A write that starts after the seal detects the seal and writes nothing. So its flag may be set here.
            Err(found) => found & !WRITING_FLAG == expected | SEALED_FLAG,
        }
    }

    /// Allows or forbids the peer to read slowly. A connection with a fence never allows it.
    pub(super) fn allow_slow_peer(&self, allowed: bool) {
        self.allows_slow_peer.store(allowed && self.fence.is_none(), Ordering::SeqCst);
    }

    /// Returns the deadline of all writes, if any.
    pub(super) fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    /// Returns true if the deadline of all writes has passed.
    pub(super) fn is_fenced(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| !fence.is_open())
    }

    /// Records that the peer rejected the client before it processed any request.
    pub(super) fn record_tls_rejection(&self, alert: rustls::Error) {
        self.tls_rejection.get_or_init(|| alert);
    }

    /// Returns the alert of a peer that rejected the client.
    pub(super) fn tls_rejection(&self) -> Option<rustls::Error> {
        self.tls_rejection.get().cloned()
    }

    /// Runs one `write`, unless writes are sealed.
    fn count(&self, write: impl FnOnce() -> Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if self.sent.fetch_or(WRITING_FLAG, Ordering::SeqCst) & SEALED_FLAG != 0 {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::BrokenPipe,
                "the requests on the connection were cancelled",
            )));
        }
        // The last check before the system call.
        let written = if self.is_fenced() {
            Poll::Ready(Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the permission to send requests has expired",
            )))
        } else {
            write()
        };
        let bytes = if let Poll::Ready(Ok(bytes)) = &written { *bytes as u64 } else { 0 };
        // A socket has one writer, so this write has set the flag.
        self.sent.fetch_add((bytes << COUNT_SHIFT).wrapping_sub(WRITING_FLAG), Ordering::SeqCst);
        written
    }

    /// Returns true if bytes were sent after the last received byte.
    pub(super) fn awaits_response(&self) -> bool {
        self.sent() > self.sent_at_last_receipt.load(Ordering::Relaxed)
    }

    /// Returns the time of the last received byte, or of the creation.
    pub(super) fn last_received(&self) -> Instant {
        Instant::from_zero(Duration::from_nanos(self.last_received.load(Ordering::Relaxed)))
    }
}

/// Socket that counts its traffic.
pub(super) struct CountingSocket {
    socket: Box<dyn Socket>,
    traffic: Arc<Traffic>,
    environment: SharedEnvironment,
    /// Last slow-peer setting of the socket.
    allows_slow_peer: bool,
}

impl CountingSocket {
    /// Wraps `socket` and counts its traffic in `traffic`.
    pub(super) fn new(socket: Box<dyn Socket>, traffic: Arc<Traffic>, environment: SharedEnvironment) -> Self {
        Self { socket, traffic, environment, allows_slow_peer: false }
    }

    /// Applies a changed slow-peer setting to the socket before the next write.
    fn apply_slow_setting(&mut self) {
        let allows_slow_peer = self.traffic.allows_slow_peer.load(Ordering::SeqCst);
        if std::mem::replace(&mut self.allows_slow_peer, allows_slow_peer) != allows_slow_peer {
            self.socket.allow_slow_peer(allows_slow_peer);
        }
    }
}

impl AsyncRead for CountingSocket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, into);
        let bytes = into.filled().len() - before;
        if bytes > 0 {
            self.traffic.received.fetch_add(bytes as u64, Ordering::Relaxed);
            // Approximate: received bytes need not respond to all sent bytes. The value only decides about a probe.
            self.traffic.sent_at_last_receipt.store(self.traffic.sent(), Ordering::Relaxed);
            self.traffic.last_received.store(nanos(self.environment.now()), Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for CountingSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.apply_slow_setting();
        let Self { socket, traffic, .. } = &mut *self;
        traffic.count(|| Pin::new(socket).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.apply_slow_setting();
        let Self { socket, traffic, .. } = &mut *self;
        traffic.count(|| Pin::new(socket).poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use crate::environment::local::LocalEnvironment;

    use super::*;

    fn traffic() -> Traffic {
        Traffic::new(Instant::from_zero(Duration::ZERO), None)
    }

    fn write(traffic: &Traffic, bytes: usize) -> Poll<io::Result<usize>> {
        traffic.count(|| Poll::Ready(Ok(bytes)))
    }

    #[test]
    fn sealed_socket_writes_nothing() {
        let traffic = traffic();
        assert!(matches!(write(&traffic, 7), Poll::Ready(Ok(7))));
        assert_eq!(traffic.sent(), 7);
        assert!(traffic.count(|| Poll::Pending).is_pending());
        assert!(traffic.seal_at(7), "a pending write has written nothing");
        assert!(matches!(write(&traffic, 7), Poll::Ready(Err(_))));
        assert_eq!(traffic.sent(), 7);
        assert!(traffic.seal_at(7), "a second unwritten request");
        assert!(!traffic.seal_at(3), "a partly written request");
    }

    #[tokio::test(start_paused = true)]
    async fn expired_fence_blocks_buffered_data() {
        let environment: SharedEnvironment = Arc::new(LocalEnvironment::over_tcp(1));
        let second = Duration::from_secs(1);
        let fence = Fence::new(environment.clone(), environment.boot_time() + second, second);
        let traffic = Traffic::new(environment.now(), Some(fence));
        assert!(matches!(write(&traffic, 7), Poll::Ready(Ok(7))));
        tokio::time::advance(second).await;
        let Poll::Ready(Err(error)) = write(&traffic, 7) else { panic!("a write after the end of the fence") };
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(traffic.sent(), 7);
        assert!(traffic.is_fenced());
    }

    #[test]
    fn seal_fails_during_or_after_write() {
        let traffic = traffic();
        assert!(matches!(write(&traffic, 1), Poll::Ready(Ok(1))));
        assert!(!traffic.seal_at(0));
        let written = traffic.count(|| {
            assert!(!traffic.seal_at(1), "the byte may have been sent");
            Poll::Ready(Ok(1))
        });
        assert!(matches!(written, Poll::Ready(Ok(1))));
        assert_eq!(traffic.sent(), 2);
    }
}
