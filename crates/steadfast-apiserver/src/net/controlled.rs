//! Byte streams under the control of a link.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::Link;
use crate::clock::Clock;

/// Transport that can be aborted instead of closed gracefully.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes the next drop abort the connection.
    fn abort_on_drop(&mut self);
}

impl Transport for TcpStream {
    fn abort_on_drop(&mut self) {
        // Without linger, a close sends RST. If the socket is already broken, the error is irrelevant.
        let _ = socket2::SockRef::from(&*self).set_linger(Some(Duration::ZERO));
    }
}

/// Transport under a link's control. Dropping it after a reset of the link aborts the connection.
#[derive(Debug)]
pub(crate) struct ControlledStream<T: Transport> {
    transport: T,
    link: Arc<Link>,
    clock: Clock,
    /// Bytes that were read ahead. The next reads return them again.
    read_ahead: Bytes,
}

impl<T: Transport> ControlledStream<T> {
    pub(crate) fn new(transport: T, link: Arc<Link>, clock: Clock) -> Self {
        Self { transport, link, clock, read_ahead: Bytes::new() }
    }

    /// Puts back bytes that were read ahead.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        self.read_ahead = bytes;
    }

    fn poll_passage(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if ready!(self.link.poll_passage(context)) {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }
}

impl<T: Transport> AsyncRead for ControlledStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_passage(context))?;
        // Bytes that were read to detect HTTP/2 come first.
        if self.read_ahead.has_remaining() {
            let taken = self.read_ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.read_ahead.split_to(taken));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.transport).poll_read(context, buffer)
    }
}

impl<T: Transport> AsyncWrite for ControlledStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_passage(context))?;
        // The budget limits each write before the transport receives the bytes, so that the reset happens at the exact
        // byte.
        let allowed = self.link.allowance(bytes.len());
        // An exhausted budget resets the connection, even in the middle of a message.
        if allowed == 0 && !bytes.is_empty() {
            self.link.reset(self.clock.elapsed());
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let written = ready!(Pin::new(&mut self.transport).poll_write(context, &bytes[..allowed]))?;
        self.link.spend(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_passage(context))?;
        Pin::new(&mut self.transport).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_passage(context))?;
        Pin::new(&mut self.transport).poll_shutdown(context)
    }
}

impl<T: Transport> Drop for ControlledStream<T> {
    fn drop(&mut self) {
        // Only a reset aborts the transport. Any other end closes normally.
        if self.link.is_reset() {
            self.transport.abort_on_drop();
        }
        self.link.end(self.clock.elapsed());
    }
}
