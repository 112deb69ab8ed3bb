//! A socket whose traffic is counted.

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

/// A byte stream, with TLS on it or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Of [`Traffic::sent`]: a write is under way.
const WRITING: u64 = 1;

/// Of [`Traffic::sent`]: nothing is written any more.
const SEALED: u64 = 2;

/// Where in [`Traffic::sent`] the count of bytes begins.
const COUNT: u32 = 2;

/// What went over a socket, and when something last came.
#[derive(Debug)]
pub(super) struct Traffic {
    received: AtomicU64,
    /// Bytes, above [`WRITING`] and [`SEALED`]: one word, so that nothing can be written between looking and sealing.
    sent: AtomicU64,
    /// Nanoseconds since the clock's zero.
    heard: AtomicU64,
    /// How much was sent by then.
    answered: AtomicU64,
    /// The peer may be slow to read.
    slow: AtomicBool,
    /// What TLS said where the peer does not take us as we are.
    refusal: OnceLock<rustls::Error>,
    /// Beyond which nothing is written.
    fence: Option<Fence>,
}

impl Traffic {
    /// Nothing yet, as of `now`; and nothing is written ever unless `fence` is open.
    pub(super) fn new(now: Instant, fence: Option<Fence>) -> Self {
        Self {
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            heard: AtomicU64::new(nanos(now)),
            answered: AtomicU64::new(0),
            slow: AtomicBool::new(false),
            refusal: OnceLock::new(),
            fence,
        }
    }

    /// Bytes received.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed) >> COUNT
    }

    /// Ends all writing if nothing was written since [`sent`](Self::sent) was `mark`; says whether that is so, and will be.
    pub(super) fn seal_at(&self, mark: u64) -> bool {
        let still = mark << COUNT;
        match self.sent.compare_exchange(still, still | SEALED, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            // Where it is sealed, what would write finds that and writes nothing.
            Err(found) => found & !WRITING == still | SEALED,
        }
    }

    /// Whether the peer may take its time to read what is written from now on; behind a fence it never may.
    pub(super) fn allow_slow_peer(&self, allowed: bool) {
        self.slow.store(allowed && self.fence.is_none(), Ordering::SeqCst);
    }

    /// Beyond which nothing is written.
    pub(super) fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    /// Whether nothing is written any more since the time for it is over.
    pub(super) fn is_fenced(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| !fence.is_open())
    }

    /// The peer does not take us as we are, before it has looked at anything that was sent.
    pub(super) fn refused(&self, said: rustls::Error) {
        self.refusal.get_or_init(|| said);
    }

    /// What was said where the peer does not take us.
    pub(super) fn refusal(&self) -> Option<rustls::Error> {
        self.refusal.get().cloned()
    }

    /// Runs one `write`, unless nothing is to be written any more.
    fn count(&self, write: impl FnOnce() -> Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if self.sent.fetch_or(WRITING, Ordering::SeqCst) & SEALED != 0 {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, "its requests were given up")));
        }
        // The last moment at which it can be looked: what follows is the call of the kernel.
        let written = if self.is_fenced() {
            Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, "the time for requests is over")))
        } else {
            write()
        };
        let bytes = if let Poll::Ready(Ok(bytes)) = &written { *bytes as u64 } else { 0 };
        // There is one writer, so that its mark is still there to be taken off.
        self.sent.fetch_add((bytes << COUNT).wrapping_sub(WRITING), Ordering::SeqCst);
        written
    }

    /// Whether anything was sent after the last byte came.
    pub(super) fn awaits_an_answer(&self) -> bool {
        self.sent() > self.answered.load(Ordering::Relaxed)
    }

    /// When the last byte came, or when this was made.
    pub(super) fn heard(&self) -> Instant {
        Instant::from_zero(Duration::from_nanos(self.heard.load(Ordering::Relaxed)))
    }
}

/// A socket that counts.
pub(super) struct Counted {
    socket: Box<dyn Socket>,
    traffic: Arc<Traffic>,
    environment: SharedEnvironment,
    /// What the socket was told of a slow peer.
    slow: bool,
}

impl Counted {
    /// `socket`, counted in `traffic`.
    pub(super) fn new(socket: Box<dyn Socket>, traffic: Arc<Traffic>, environment: SharedEnvironment) -> Self {
        Self { socket, traffic, environment, slow: false }
    }

    /// Tells the socket whether the peer may be slow, before what is written for which that holds.
    fn tell(&mut self) {
        let slow = self.traffic.slow.load(Ordering::SeqCst);
        if std::mem::replace(&mut self.slow, slow) != slow {
            self.socket.allow_slow_peer(slow);
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, into);
        let bytes = into.filled().len() - before;
        if bytes > 0 {
            self.traffic.received.fetch_add(bytes as u64, Ordering::Relaxed);
            self.traffic.answered.store(self.traffic.sent(), Ordering::Relaxed);
            self.traffic.heard.store(nanos(self.environment.now()), Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.tell();
        let Self { socket, traffic, .. } = &mut *self;
        traffic.count(|| Pin::new(socket).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.tell();
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
    use crate::environment::local::Local;

    use super::*;

    fn traffic() -> Traffic {
        Traffic::new(Instant::from_zero(Duration::ZERO), None)
    }

    fn write(traffic: &Traffic, bytes: usize) -> Poll<io::Result<usize>> {
        traffic.count(|| Poll::Ready(Ok(bytes)))
    }

    #[test]
    fn what_was_not_written_when_a_socket_is_sealed_is_never_written() {
        let traffic = traffic();
        assert!(matches!(write(&traffic, 7), Poll::Ready(Ok(7))));
        assert_eq!(traffic.sent(), 7);
        assert!(traffic.count(|| Poll::Pending).is_pending());
        assert!(traffic.seal_at(7), "a write that waits has written nothing");
        assert!(matches!(write(&traffic, 7), Poll::Ready(Err(_))));
        assert_eq!(traffic.sent(), 7);
        assert!(traffic.seal_at(7), "another request that was not written either");
        assert!(!traffic.seal_at(3), "one that was, at least in part");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_handed_to_a_connection_in_time_is_not_written_once_the_time_is_over() {
        let environment: SharedEnvironment = Arc::new(Local::over_tcp(1));
        let second = Duration::from_secs(1);
        let fence = Fence::new(environment.clone(), environment.boot_time() + second, second);
        let traffic = Traffic::new(environment.now(), Some(fence));
        assert!(matches!(write(&traffic, 7), Poll::Ready(Ok(7))));
        tokio::time::advance(second).await;
        let Poll::Ready(Err(error)) = write(&traffic, 7) else { panic!("it was written") };
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(traffic.sent(), 7);
        assert!(traffic.is_fenced());
    }

    #[test]
    fn a_socket_is_not_sealed_once_something_was_written_or_is_being_written() {
        let traffic = traffic();
        assert!(matches!(write(&traffic, 1), Poll::Ready(Ok(1))));
        assert!(!traffic.seal_at(0));
        let written = traffic.count(|| {
            assert!(!traffic.seal_at(1), "who knows what becomes of it");
            Poll::Ready(Ok(1))
        });
        assert!(matches!(written, Poll::Ready(Ok(1))));
        assert_eq!(traffic.sent(), 2);
    }
}
