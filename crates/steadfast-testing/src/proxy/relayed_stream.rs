//! The trait of a relayed byte stream, and pipes that support a reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

/// Capacity of a pipe in each direction in bytes, similar to a socket's buffers.
const PIPE_BYTES: usize = 64 * 1024;

/// Byte stream that supports a reset, as an alternative to a clean close.
pub(super) trait RelayedStream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes the next drop of this stream a reset.
    fn reset_on_drop(&mut self);
}

impl RelayedStream for TcpStream {
    fn reset_on_drop(&mut self) {
        // Without linger, a close sends RST. An error means that the socket is already broken, so it is ignored.
        let _ = socket2::SockRef::from(&*self).set_linger(Some(Duration::ZERO));
    }
}

/// Creates a pipe: the client's end, and the network's end.
pub(super) fn pipe() -> (ClientEnd, Resettable<DuplexStream>) {
    let (client_pipe, network_pipe) = tokio::io::duplex(PIPE_BYTES);
    let network = Resettable::new(network_pipe);
    (ClientEnd { pipe: client_pipe, reset: network.reset.clone() }, network)
}

/// Stream with reset support, for the network's end of a connection.
#[derive(Debug)]
pub(super) struct Resettable<S> {
    stream: S,
    /// Set before the stream is dropped, and read by the other end.
    reset: Arc<AtomicBool>,
}

impl<S> Resettable<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, reset: Arc::default() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> RelayedStream for Resettable<S> {
    fn reset_on_drop(&mut self) {
        self.reset.store(true, Ordering::Release);
    }
}

/// Client's end of a connection in memory.
#[derive(Debug)]
pub(super) struct ClientEnd {
    pipe: DuplexStream,
    reset: Arc<AtomicBool>,
}

impl ClientEnd {
    /// Returns an error if the connection was reset, and otherwise a clean end.
    fn end_or_reset(&self) -> io::Result<()> {
        if self.reset.load(Ordering::Acquire) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for ClientEnd {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let filled_before = into.filled().len();
        ready!(Pin::new(&mut self.pipe).poll_read(context, into))?;
        // Bytes that arrived before the reset can still be read, as with a socket.
        // The flag is read after the pipe reports its end. `Release` and `Acquire` order the flag before that end.
        Poll::Ready(if into.filled().len() > filled_before { Ok(()) } else { self.end_or_reset() })
    }
}

impl AsyncWrite for ClientEnd {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.pipe).poll_write(context, bytes));
        // A closed pipe reports a broken pipe. After a reset, a kernel reports the reset instead, and so does this
        // end.
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
