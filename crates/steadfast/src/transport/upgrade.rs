//! Dedicated connection for an upgraded request: `exec`, `attach`, `port-forward`.
//!
//! API servers support no upgrades over HTTP/2, so such a request has a separate connection, which offers only
//! HTTP/1.1. No other request uses this connection. After a `101` response, `hyper::upgrade::on` returns the byte
//! stream. The connection lasts until that stream is dropped.

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::UPGRADE;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use steadfast_core::cause::root_cause;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::body::ResponseBody;
use super::connection::TransportConnection;
use super::connection_task::Record;
use super::connector::{Connector, Stage, Wire};
use super::dead_peer_probe::wait_until_peer_is_dead;
use super::end::End;
use super::error::TransportError;
use super::failure::Failure;
use super::pool::Pool;
use super::socket::Stream;
use super::stream_slot::{PoolHandle, StreamSlot};
use super::{cause, deadline, http1};

/// Values that live as long as the upgraded stream, set as a request extension.
#[derive(Clone)]
pub(crate) struct KeptValues {
    _kept: Arc<dyn Any + Send + Sync>,
}

impl KeptValues {
    /// Creates a value that keeps `kept` alive.
    pub(crate) fn new(kept: impl Any + Send + Sync) -> Self {
        Self { _kept: Arc::new(kept) }
    }
}

/// Returns true if `request` requests a protocol upgrade.
pub(crate) fn is_upgrade(request: &Request<Body>) -> bool {
    request.headers().contains_key(UPGRADE)
}

/// Values owned by an upgraded stream.
struct StreamResources {
    _stream_slot: StreamSlot,
    _kept_values: Option<KeptValues>,
}

impl Pool {
    /// Sends `request` on a dedicated connection, without retries: the server may have run a command.
    pub(super) async fn upgrade(
        &self,
        mut request: Request<Body>,
        limit: Duration,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let environment = &self.inner.environment;
        let mut deadline = pin!(deadline::reached(environment, environment.now() + limit));
        let kept_values = request.extensions_mut().remove();
        let resources = Arc::new(OnceLock::new());
        let (opened, opening) = oneshot::channel();
        let (connect_timeout, slot) = (self.inner.settings.connect_timeout, resources.clone());
        let stream_slot = self.inner.dial_alone(|connection, connector, pool_handle| {
            UpgradeTask { connection, connector, pool_handle, connect_timeout }.run(slot, opened)
        })?;
        let connection = stream_slot.connection.clone();
        let sender = tokio::select! {
            biased;
            opened = opening => opened.unwrap_or_else(|_| {
                Err(TransportError::Closed { peer: connection.peer(), maybe_sent: false })
            })?,
            () = &mut deadline => {
                let stage = "a connection for this request alone";
                return Err(TransportError::ConnectTimeout { peer: connection.peer(), stage, waited: limit });
            }
        };
        let sent_before = connection.traffic.sent();
        let mut response = tokio::select! {
            biased;
            response = http1::send(sender, stream_slot, environment, request) => response.map_err(Failure::into_error)?,
            () = &mut deadline => {
                let maybe_sent = !connection.traffic.seal_at(sent_before);
                return Err(TransportError::HeadersTimeout { peer: connection.peer(), waited: limit, maybe_sent });
            }
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let Some(stream_slot) = response.body_mut().detach_connection()
        {
            // If the stream was already dropped, the slot ends here.
            drop(resources.set(StreamResources { _stream_slot: stream_slot, _kept_values: kept_values }));
        }
        Ok(response)
    }
}

/// Task of a dedicated connection, from its dial to the end of the stream.
struct UpgradeTask {
    connection: Arc<TransportConnection>,
    connector: Arc<Connector>,
    pool_handle: Weak<dyn PoolHandle>,
    connect_timeout: Duration,
}

type SenderReply = oneshot::Sender<Result<http1::Http1Sender, TransportError>>;

impl UpgradeTask {
    async fn run(self, resources: Arc<OnceLock<StreamResources>>, opened: SenderReply) {
        let connection = &self.connection;
        let mut record = Record::new(connection.clone(), self.pool_handle.clone());
        // Dropping this sender, at the latest with the task, ends the stream.
        let (_cut_sender, cut_signal) = oneshot::channel();
        let outcome = tokio::select! {
            biased;
            outcome = self.open(resources, cut_signal) => outcome,
            () = connection.end_requested.notified() => return,
            () = wait_until_unused(connection) => return connection.end(End::Abandoned),
        };
        let (driver, address) = match outcome {
            Ok((sender, driver, address)) => {
                drop(opened.send(Ok(sender)));
                (driver, address)
            }
            Err(error) => {
                connection.end(End::Failed(error.to_string()));
                record.error = Some(error.clone());
                drop(opened.send(Err(error)));
                return;
            }
        };
        let serving = async {
            match driver.with_upgrades().await {
                // The driver has finished. The upgraded stream or a response body remains until the request's slot
                // ends.
                Ok(()) => {
                    wait_until_unused(connection).await;
                    End::Drained
                }
                Err(error) => End::Failed(cause::http1(&error)),
            }
        };
        let end = tokio::select! {
            biased;
            end = serving => end,
            how = wait_until_peer_is_dead(&connection.traffic, address, self.connector.environment()) => End::Failed(how),
            () = connection.end_requested.notified() => connection.ended().unwrap_or(End::Closed),
        };
        connection.end(end);
    }

    async fn open(
        &self,
        resources: Arc<OnceLock<StreamResources>>,
        cut_signal: oneshot::Receiver<()>,
    ) -> Result<(http1::Http1Sender, http1::Http1Driver, SocketAddr), TransportError> {
        let connection = &self.connection;
        let environment = self.connector.environment();
        let stage = Stage::new();
        // The process at the other end may read slowly. Before the upgrade, timeouts detect a dead peer; afterwards the
        // probe for vanished peers does.
        connection.traffic.allow_slow_peer(true);
        let wire = tokio::select! {
            biased;
            wire = self.connector.open_http1(connection.traffic.clone(), &stage) => wire,
            () = environment.sleep_until(connection.dialled_at + self.connect_timeout) => Err(TransportError::ConnectTimeout {
                peer: connection.peer(),
                stage: stage.current(),
                waited: self.connect_timeout,
            }),
        };
        let Wire { stream, peer, unproven_address, .. } = wire?;
        let address = unproven_address.address();
        unproven_address.prove();
        connection.establish_occupied(peer);
        let stream = UpgradedStream {
            stream,
            cut_signal: Some(cut_signal),
            connection: connection.clone(),
            _resources: resources,
        };
        let handshake = http1::handshake(Box::new(stream)).await.map_err(|error| TransportError::Protocol {
            peer: connection.peer(),
            protocol: "HTTP/1.1",
            detail: root_cause(&error),
            maybe_sent: false,
        });
        handshake.map(|(sender, driver)| (sender, driver, address))
    }
}

/// Completes after the only request has ended. A draining connection also notifies while the request is running.
async fn wait_until_unused(connection: &TransportConnection) {
    while connection.unused_since().is_none() {
        connection.became_unused.notified().await;
    }
}

/// Upgraded stream, which may outlive the task that opened it, but not the connection.
struct UpgradedStream {
    stream: Box<dyn Stream>,
    /// Completes when the connection's task has ended; `None` afterwards.
    cut_signal: Option<oneshot::Receiver<()>>,
    connection: Arc<TransportConnection>,
    _resources: Arc<OnceLock<StreamResources>>,
}

impl UpgradedStream {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        // The sender never sends. So a ready receiver means that the task has dropped the sender at its end.
        let is_cut = self.cut_signal.as_mut().is_none_or(|cut_signal| Pin::new(cut_signal).poll(context).is_ready());
        if !is_cut {
            return Ok(());
        }
        self.cut_signal = None;
        let error = self.connection.lost_error("the connection was ended".to_owned(), true);
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, error))
    }
}

impl AsyncRead for UpgradedStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for UpgradedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
