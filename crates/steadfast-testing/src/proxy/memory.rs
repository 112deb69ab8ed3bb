//! The network in memory.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use steadfast::environment::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::faults::NetworkFaults;
use super::link::Link;
use super::network::Network;
use super::relayed_stream::{ClientEnd, Resettable, pipe};
use super::report::ConnectionEnd;

impl NetworkFaults {
    /// Returns the dialer that opens sockets through this network, for
    /// [`LocalEnvironment`](steadfast::environment::local::LocalEnvironment). `dial` opens a stream to the target with
    /// the given number.
    ///
    /// The sockets must be used on a tokio runtime. The network's faults use the time of that runtime.
    pub fn dialer<D, S>(
        &self,
        dial: D,
    ) -> impl Fn(String, u16) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> + Send + Sync + 'static
    where
        D: Fn(usize) -> BoxFuture<'static, io::Result<S>> + Send + Sync + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (network, dial) = (self.network.clone(), Arc::new(dial));
        move |_, _| Box::pin(connect(network.clone(), dial.clone()))
    }
}

async fn connect<D, S>(network: Arc<Network>, dial: Arc<D>) -> io::Result<Box<dyn Socket>>
where
    D: Fn(usize) -> BoxFuture<'static, io::Result<S>> + Send + Sync + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // A connect attempt during a black hole neither fails nor succeeds. The caller's own timeout ends the wait.
    let open = network.admit_when_passable().await?;
    let (client, client_stream) = pipe();
    let socket = Box::new(ClientSocket {
        client,
        link: open.link.clone(),
        target: open.target,
        discards: AtomicBool::new(false),
    });
    // The accepted socket is dropped immediately, so that the client reads the end before any byte.
    if network.turns_away() {
        open.end(ConnectionEnd::TurnedAway);
        return Ok(socket);
    }
    let condition = open.link.condition();
    let target = open.target;
    if condition.is_frozen {
        // The frozen middlebox has accepted the connection, and continues after the freeze.
        let link = open.link.clone();
        let dial = async move {
            link.until_passable().await;
            dial(target).await.map(Resettable::new)
        };
        tokio::spawn(open.forward(client_stream, dial));
        return Ok(socket);
    }
    if !condition.delay.is_zero() {
        // The delay applies in both directions.
        tokio::time::sleep(2 * condition.delay).await;
    }
    match dial(target).await {
        Ok(server_stream) => {
            tokio::spawn(open.forward(client_stream, async { Ok(Resettable::new(server_stream)) }));
            Ok(socket)
        }
        Err(error) => {
            open.end(ConnectionEnd::Unreachable);
            Err(error)
        }
    }
}

/// Socket at the client's end of a connection. The network's relay simulates the kernel of the client.
struct ClientSocket {
    client: ClientEnd,
    link: Arc<Link>,
    target: usize,
    /// True if a close discards data that has not arrived.
    discards: AtomicBool,
}

impl Socket for ClientSocket {
    fn peer(&self) -> String {
        format!("target {}", self.target)
    }

    fn limit_lateness(&self, limit: Duration) {
        self.discards.store(true, Ordering::Relaxed);
        self.link.limit_lateness(limit);
    }
}

impl Drop for ClientSocket {
    fn drop(&mut self) {
        // A socket with a lateness limit discards unsent data on close, so that the server receives a reset.
        if self.discards.load(Ordering::Relaxed) {
            self.link.command(|commands| commands.reset = true);
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_read(context, into)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.client).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.client).poll_shutdown(context)
    }
}
