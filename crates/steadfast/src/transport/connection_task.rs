//! Task of one connection: dial, driver, close.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Ping, PingPong};
use steadfast_core::cause::root_cause;

use super::connection::{RequestSender, TransportConnection};
use super::connection_runtime::ConnectionRuntime;
use super::connector::{Connector, Stage, Wire};
use super::end::End;
use super::error::TransportError;
use super::liveness_probes::{self, LivenessProbes};
use super::report::Protocol;
use super::settings::Settings;
use super::stream_slot::PoolHandle;
use super::{cause, heartbeat, http1, http2};
use crate::environment::{AbortOnDrop, SharedEnvironment};

/// Maximum time for the orderly close of an unused connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens `connection` and drives it on its runtime until it ends. The caller must spawn this in the environment.
pub(super) async fn run(
    connection: Arc<TransportConnection>,
    pool_handle: Weak<dyn PoolHandle>,
    liveness_probes: Arc<LivenessProbes>,
    connector: Arc<Connector>,
    settings: Settings,
) {
    // The record exists before the driver: a runtime that has ended drops the driver without a poll.
    let record = Record::new(connection.clone(), pool_handle.clone());
    let runtime = connection.runtime.clone();
    let driver = open_and_drive(connection, record, pool_handle, liveness_probes, connector, settings);
    match runtime {
        ConnectionRuntime::Environment => driver.await,
        // Spawned here and not by the pool, because the pool holds its lock while it dials. If the runtime has ended,
        // the driver is dropped immediately, and the driver's record then locks the pool.
        ConnectionRuntime::Runtime(runtime) => {
            let driving = AbortOnDrop(runtime.spawn(driver));
            // A panic or the end of the runtime has dropped the record, which reports the end of the connection.
            drop(driving.await);
        }
    }
}

async fn open_and_drive(
    connection: Arc<TransportConnection>,
    mut record: Record,
    pool_handle: Weak<dyn PoolHandle>,
    liveness_probes: Arc<LivenessProbes>,
    connector: Arc<Connector>,
    settings: Settings,
) {
    let environment = connection.environment.clone();
    let stage = Stage::new();
    let opened = tokio::select! {
        biased;
        opened = open(&connection, &pool_handle, &connector, settings.max_streams, &stage) => opened,
        () = environment.sleep_until(connection.dialled_at + settings.connect_timeout) => Err(TransportError::ConnectTimeout {
            peer: connection.peer(),
            stage: stage.current(),
            waited: settings.connect_timeout,
        }),
        () = connection.end_requested.notified() => return,
    };
    let end = match opened {
        Ok(opened) => drive(opened, &connection, &pool_handle, &liveness_probes, &environment, &settings).await,
        Err(error) => {
            // A rejected client certificate first shows as a failed handshake of HTTP. The TLS alert is the reason.
            let error = connection.tls_rejection().unwrap_or(error);
            let end = End::Failed(error.to_string());
            record.error = Some(error);
            end
        }
    };
    connection.end(end);
}

/// Open connection, by its negotiated protocol. An HTTP/2 peer has already responded.
enum OpenedConnection {
    Http2 { peer: String, sender: SendRequest<Bytes>, driver: Box<http2::Http2Driver>, pings: PingPong },
    Http1 { peer: String, sender: http1::Http1Sender, driver: Box<http1::Http1Driver> },
}

async fn open(
    connection: &Arc<TransportConnection>,
    pool_handle: &Weak<dyn PoolHandle>,
    connector: &Connector,
    streams: usize,
    stage: &Stage,
) -> Result<OpenedConnection, TransportError> {
    let Wire { stream, protocol, peer, unproven_address } =
        connector.open(&connection.environment, connection.traffic.clone(), stage).await?;
    let broken = |protocol: &'static str, detail: String| TransportError::Protocol {
        peer: connector.name(),
        protocol,
        detail,
        maybe_sent: false,
    };
    if protocol == Protocol::Http1 {
        let handshake = http1::handshake(stream).await;
        let (sender, driver) = handshake.map_err(|error| broken("HTTP/1.1", root_cause(&error)))?;
        // HTTP/1.1 has no handshake: nothing more can be proven before the first request.
        unproven_address.prove();
        return Ok(OpenedConnection::Http1 { peer, sender, driver: Box::new(driver) });
    }
    stage.enter("the first HTTP/2 response");
    let handshake = http2::handshake(stream, streams, connection.clone(), pool_handle.clone()).await;
    let (sender, mut driver, mut pings) = handshake.map_err(|error| broken("HTTP/2", cause::http2(&error)))?;
    // The ping response follows the server's settings, so the stream limit is known from here on.
    let greeting = tokio::select! {
        biased;
        end = &mut driver => Err(match end {
            End::Failed(how) => how,
            _ => "the server sent GOAWAY immediately".to_owned(),
        }),
        pong = pings.ping(Ping::opaque()) => pong.map(drop).map_err(|error| cause::http2(&error)),
    };
    greeting.map_err(|detail| broken("HTTP/2", detail))?;
    unproven_address.prove();
    Ok(OpenedConnection::Http2 { peer, sender, driver: Box::new(driver), pings })
}

async fn drive(
    opened: OpenedConnection,
    connection: &Arc<TransportConnection>,
    pool_handle: &Weak<dyn PoolHandle>,
    liveness_probes: &LivenessProbes,
    environment: &SharedEnvironment,
    settings: &Settings,
) -> End {
    let announce = |peer, protocol, sender| {
        connection.establish(peer, protocol, sender);
        if let Some(pool_handle) = pool_handle.upgrade() {
            pool_handle.established(connection);
        }
    };
    let ended = || connection.ended().unwrap_or(End::Closed);
    match opened {
        OpenedConnection::Http2 { peer, sender, mut driver, pings } => {
            announce(peer, Protocol::Http2, RequestSender::Http2(sender));
            let end = tokio::select! {
                biased;
                end = &mut driver => end,
                never = liveness_probes::probe_while_silent(connection, liveness_probes, environment, settings) => match never {},
                how = heartbeat::beat(pings, connection, pool_handle, environment, settings) => End::Failed(how),
                () = wait_until_idle(connection, environment, settings.idle_timeout) => {
                    // Without senders, h2 sends a GOAWAY and closes. A peer that does not read can block the GOAWAY.
                    driver.start_close();
                    tokio::select! {
                        biased;
                        _ = &mut driver => {}
                        () = environment.sleep_until(environment.now() + CLOSE_TIMEOUT) => {}
                    }
                    ended()
                }
                () = connection.end_requested.notified() => ended(),
            };
            // Recorded before the driver drops its streams, so that their errors contain the reason.
            connection.end(end.clone());
            end
        }
        OpenedConnection::Http1 { peer, sender, mut driver } => {
            announce(peer, Protocol::Http1, RequestSender::Http1(sender));
            let end = tokio::select! {
                biased;
                ended = &mut driver => match ended {
                    Ok(()) => End::Drained,
                    Err(error) => End::Failed(cause::http1(&error)),
                },
                never = liveness_probes::probe_while_silent(connection, liveness_probes, environment, settings) => match never {},
                () = wait_until_idle(connection, environment, settings.idle_timeout) => ended(),
                () = connection.end_requested.notified() => ended(),
            };
            connection.end(end.clone());
            end
        }
    }
}

/// Completes after the connection was unused for `limit`. A draining connection completes as soon as it is unused. The
/// connection then accepts no further request.
async fn wait_until_idle(connection: &TransportConnection, environment: &SharedEnvironment, limit: Duration) {
    loop {
        match connection.unused_since() {
            None => connection.became_unused.notified().await,
            Some(since) => {
                if connection.retire_unused(limit) {
                    return;
                }
                tokio::select! {
                    biased;
                    () = environment.sleep_until(since + limit) => {}
                    () = connection.became_unused.notified() => {}
                }
            }
        }
    }
}

/// Reports the end of the connection to its pool, even if the task was aborted or panicked.
pub(super) struct Record {
    connection: Arc<TransportConnection>,
    pool_handle: Weak<dyn PoolHandle>,
    /// Error of a failed dial.
    pub(super) error: Option<TransportError>,
}

impl Record {
    /// Creates the guard of a connection before its dial.
    pub(super) fn new(connection: Arc<TransportConnection>, pool_handle: Weak<dyn PoolHandle>) -> Self {
        Self { connection, pool_handle, error: None }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.connection.end(End::Closed);
        let Some(pool_handle) = self.pool_handle.upgrade() else { return };
        let failed = || TransportError::ConnectionLost {
            peer: self.connection.peer(),
            how: "its task failed".to_owned(),
            maybe_sent: false,
        };
        let never_opened = self.connection.protocol().is_none();
        pool_handle.forget(&self.connection, self.error.take().or_else(|| never_opened.then(failed)));
    }
}
