//! In-memory connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::serve;
use crate::cluster::Cluster;
use crate::net::{TaskGroup, Transport};

/// Capacity of a pipe in each direction in bytes, similar to a socket's buffers.
const PIPE_BYTES: usize = 256 * 1024;

/// Opens in-memory connections to the replicas of a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Dialer {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) tasks: Arc<TaskGroup>,
}

impl Dialer {
    /// Opens a connection to a replica, counted from 0.
    ///
    /// Waits while the replica is in a black hole, like a lost SYN.
    ///
    /// # Errors
    /// Returns `ConnectionRefused` if the replica is stopped or rejects connections, or if it does not exist.
    pub async fn connect(&self, replica: usize) -> io::Result<MemoryStream> {
        let refused_error = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let active_faults = &self.cluster.replicas.get(replica).ok_or_else(refused_error)?.active_faults;
        // As with TCP, a connection to a black hole neither succeeds nor fails.
        let is_decided = || active_faults.read(|faults| !faults.is_black_hole || !faults.is_reachable());
        self.cluster.changed.until(is_decided).await;
        if !active_faults.is_reachable() {
            return Err(refused_error());
        }
        let (client_end, server_end) = tokio::io::duplex(PIPE_BYTES);
        let reset_signal = Arc::new(ResetSignal::default());
        let server_end = ServerEnd { pipe: server_end, reset_signal: Arc::clone(&reset_signal) };
        let cluster = Arc::clone(&self.cluster);
        self.tasks.spawn(serve::serve_connection(cluster, replica, server_end, self.tasks.runtime().clone()));
        Ok(MemoryStream { pipe: client_end, reset_signal })
    }
}

/// The client's end of an in-memory connection.
#[derive(Debug)]
pub struct MemoryStream {
    pipe: DuplexStream,
    reset_signal: Arc<ResetSignal>,
}

/// The server's end. Dropping it after a reset causes a reset at the client.
#[derive(Debug)]
struct ServerEnd {
    pipe: DuplexStream,
    reset_signal: Arc<ResetSignal>,
}

#[derive(Debug, Default)]
struct ResetSignal(Mutex<(bool, Vec<Waker>)>);

impl ResetSignal {
    fn raise(&self) {
        let wakers = {
            let mut state = self.0.lock();
            state.0 = true;
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn check_reset(&self, context: &Context<'_>) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        // A reset must wake a pending read or write, so the task is registered here in addition to the pipe.
        if !state.1.iter().any(|waker| waker.will_wake(context.waker())) {
            state.1.push(context.waker().clone());
        }
        Ok(())
    }
}

impl Transport for ServerEnd {
    fn abort_on_drop(&mut self) {
        self.reset_signal.raise();
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let read = Pin::new(&mut self.pipe).poll_read(context, buffer);
        // As with a socket, data that arrived before the reset can still be read. The next read then fails, instead of
        // reporting the end of the stream.
        if matches!(read, Poll::Ready(Ok(()))) && buffer.filled().len() > filled {
            return read;
        }
        self.reset_signal.check_reset(context)?;
        read
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.reset_signal.check_reset(context)?;
        Pin::new(&mut self.pipe).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.reset_signal.check_reset(context)?;
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}

impl AsyncRead for ServerEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(context, buffer)
    }
}

impl AsyncWrite for ServerEnd {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipe).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(context)
    }
}
