//! What a relay wants of a byte stream; pipes that can be reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

/// How many bytes a pipe holds in each direction, as the buffers of a socket would.
const PIPE_BYTES: usize = 64 * 1024;

/// A byte stream that can be broken off instead of being closed in good order.
pub(super) trait End: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes the drop that follows a reset.
    fn reset_on_drop(&mut self);
}

impl End for TcpStream {
    fn reset_on_drop(&mut self) {
        // Without linger a close sends RST. Where the socket is broken already there is nothing left to break.
        let _ = socket2::SockRef::from(&*self).set_linger(Some(Duration::ZERO));
    }
}

/// A pipe: the client's end, and the network's.
pub(super) fn pipe() -> (ClientEnd, Resettable<DuplexStream>) {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let network = Resettable::new(far);
    (ClientEnd { pipe: near, reset: network.reset.clone() }, network)
}

/// Any stream, as the network's end of a connection.
#[derive(Debug)]
pub(super) struct Resettable<S> {
    stream: S,
    /// Said before the stream is dropped, to whoever holds the other end and listens.
    reset: Arc<AtomicBool>,
}

impl<S> Resettable<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, reset: Arc::default() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> End for Resettable<S> {
    fn reset_on_drop(&mut self) {
        self.reset.store(true, Ordering::Release);
    }
}

/// The client's end of a connection in memory.
#[derive(Debug)]
pub(super) struct ClientEnd {
    pipe: DuplexStream,
    reset: Arc<AtomicBool>,
}

impl ClientEnd {
    /// The end of a connection, or its reset.
    fn end_or_reset(&self) -> io::Result<()> {
        if self.reset.load(Ordering::Acquire) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for ClientEnd {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let filled = into.filled().len();
        ready!(Pin::new(&mut self.pipe).poll_read(context, into))?;
        // What arrived before the reset can still be read, as from a socket.
        Poll::Ready(if into.filled().len() > filled { Ok(()) } else { self.end_or_reset() })
    }
}

impl AsyncWrite for ClientEnd {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.pipe).poll_write(context, bytes));
        Poll::Ready(written.map_err(|closed| self.end_or_reset().err().unwrap_or(closed)))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Resettable<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Resettable<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
