//! A socket whose traffic is counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use steadfast_core::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::environment::{SharedEnvironment, Socket};

/// A byte stream, with TLS on it or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What went over a socket, and when something last came.
#[derive(Debug)]
pub(super) struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
    /// Nanoseconds since the clock's zero.
    heard: AtomicU64,
}

impl Traffic {
    /// Nothing yet, as of `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { received: AtomicU64::new(0), sent: AtomicU64::new(0), heard: AtomicU64::new(nanos(now)) }
    }

    /// Bytes received.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// When the last byte came, or when this was made.
    pub(super) fn heard(&self) -> Instant {
        Instant::from_zero(Duration::from_nanos(self.heard.load(Ordering::Relaxed)))
    }
}

fn nanos(at: Instant) -> u64 {
    u64::try_from(at.since_zero().as_nanos()).unwrap_or(u64::MAX)
}

/// A socket that counts.
pub(super) struct Counted {
    socket: Box<dyn Socket>,
    traffic: Arc<Traffic>,
    environment: SharedEnvironment,
}

impl Counted {
    /// `socket`, counted in `traffic`.
    pub(super) fn new(socket: Box<dyn Socket>, traffic: Arc<Traffic>, environment: SharedEnvironment) -> Self {
        Self { socket, traffic, environment }
    }

    fn count_sent(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.traffic.sent.fetch_add(*bytes as u64, Ordering::Relaxed);
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
            self.traffic.heard.store(nanos(self.environment.now()), Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.count_sent(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, pieces);
        self.count_sent(&written);
        written
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
