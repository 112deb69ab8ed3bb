//! The relay of one connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use steadfast_core::random::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::link::{Condition, Link, StreamDirection};
use super::network::{AdmittedConnection, Network};
use super::one_way_relay::{MAX_READ_BYTES, OneWayRelay, RelayStep};
use super::relayed_stream::RelayedStream;
use super::report::{ConnectionEnd, FaultTransition};

/// Maximum time for which the relay waits for the client to close its side after a fault closed the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Forwards bytes between `client_stream` and `server_stream` until both have ended or a fault ends the connection.
/// Returns how the connection ended.
pub(super) async fn relay<N: RelayedStream, F: RelayedStream>(
    mut client_stream: N,
    mut server_stream: F,
    link: &Link,
    network: &Network,
) -> ConnectionEnd {
    // Each connection has its own generator: jitter must not depend on the order in which connections run.
    let mut random = Random::new(network.seed() ^ link.number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let [to_server, to_client] = [StreamDirection::ToServer, StreamDirection::ToClient]
        .map(|direction| OneWayRelay::new(direction, Random::new(random.draw())));
    let now = Instant::now();
    let mut relay = Relay {
        link,
        network,
        to_server,
        to_client,
        scratch: vec![0; MAX_READ_BYTES].into_boxed_slice(),
        timer: Box::pin(sleep_until(now)),
        moved_at: now,
        is_flow_dropped: false,
    };
    let end = poll_fn(|context| relay.poll(&mut client_stream, &mut server_stream, context)).await;
    match end {
        // Both ends see the reset, as on a broken path with RST in both directions.
        ConnectionEnd::Reset | ConnectionEnd::Broken => {
            client_stream.reset_on_drop();
            server_stream.reset_on_drop();
        }
        ConnectionEnd::Truncated => {
            // The server's side closes first. The client then reads all forwarded bytes and a clean end.
            drop(server_stream);
            close_cleanly(client_stream, relay.scratch).await;
        }
        _ => {}
    }
    end
}

/// Signals the end to `client_stream`, and reads its remaining bytes. A socket that is closed with unread bytes would
/// send a reset.
async fn close_cleanly(mut client_stream: impl RelayedStream, mut scratch: Box<[u8]>) {
    if client_stream.shutdown().await.is_ok() {
        let read_rest = async { while client_stream.read(&mut scratch).await.is_ok_and(|read| read > 0) {} };
        let _ = timeout(CLOSE_TIMEOUT, read_rest).await;
    }
}

struct Relay<'a> {
    link: &'a Link,
    network: &'a Network,
    to_server: OneWayRelay,
    to_client: OneWayRelay,
    scratch: Box<[u8]>,
    timer: Pin<Box<Sleep>>,
    /// Time of the last byte.
    moved_at: Instant,
    /// True if the flow was idle for too long, so that the network has dropped it.
    is_flow_dropped: bool,
}

impl Relay<'_> {
    fn poll(
        &mut self,
        client_stream: &mut impl RelayedStream,
        server_stream: &mut impl RelayedStream,
        context: &mut Context<'_>,
    ) -> Poll<ConnectionEnd> {
        loop {
            let (mut condition, commands) = self.link.register_waker_and_read(context);
            if commands.reset
                && condition.is_black_hole[StreamDirection::ToServer as usize]
                && self.link.lateness(StreamDirection::ToServer).is_some()
            {
                // The client's kernel has discarded its data, but its reset cannot reach the server yet. So the
                // server does not know about the reset, and processes the data it has received.
                self.to_server.drop_all();
                // No timer is set: the next change of the conditions wakes the task.
                return Poll::Pending;
            }
            if commands.reset {
                return Poll::Ready(ConnectionEnd::Reset);
            }
            for (relay, closed) in [&mut self.to_server, &mut self.to_client].into_iter().zip(commands.half_close) {
                if closed {
                    relay.half_close();
                }
            }
            if self.is_flow_dropped {
                // The middlebox does not know this flow any more, so later faults of the path no longer apply.
                condition = Condition::default();
            }
            let to_server_step = self.to_server.step(
                (client_stream, server_stream),
                (&condition, self.link),
                &mut self.scratch,
                context,
            );
            let to_client_step = self.to_client.step(
                (server_stream, client_stream),
                (&condition, self.link),
                &mut self.scratch,
                context,
            );
            let mut poll_at: Option<Instant> = None;
            for step in [to_server_step, to_client_step] {
                match step {
                    Ok(RelayStep::Cut(end)) => return Poll::Ready(end),
                    Err(_) => return Poll::Ready(ConnectionEnd::Broken),
                    Ok(RelayStep::Waits { has_moved, poll_at: relay_poll_at }) => {
                        if has_moved {
                            self.moved_at = Instant::now();
                        }
                        poll_at = poll_at.into_iter().chain(relay_poll_at).min();
                    }
                }
            }
            if self.to_server.is_finished() && self.to_client.is_finished() {
                return Poll::Ready(if self.is_flow_dropped { ConnectionEnd::Dropped } else { ConnectionEnd::Closed });
            }
            // Bytes of both directions end the idle time, as in a NAT that tracks flows.
            if let Some(idle) = condition.max_idle {
                let drop_at = self.moved_at + idle;
                if drop_at <= Instant::now() {
                    self.drop_flow();
                    continue;
                }
                poll_at = poll_at.into_iter().chain([drop_at]).min();
            }
            let Some(poll_at) = poll_at else { return Poll::Pending };
            // The loop polls the new timer once, because only a polled timer registers a waker.
            self.timer.as_mut().reset(poll_at);
            ready!(self.timer.as_mut().poll(context));
        }
    }

    /// Drops all later bytes silently.
    fn drop_flow(&mut self) {
        self.is_flow_dropped = true;
        self.to_server.drop_all();
        self.to_client.drop_all();
        self.network.record_change("idle flow dropped", Some(self.link.number), FaultTransition::Once);
    }
}

impl AdmittedConnection {
    /// Forwards bytes between `client_stream` and the stream that `dial` opens, until the connection ends.
    pub(super) async fn forward<N: RelayedStream, F: RelayedStream>(
        self,
        mut client_stream: N,
        dial: impl Future<Output = std::io::Result<F>>,
    ) {
        let dial_result = tokio::select! {
            // The reset must take precedence even if the dial completes in the same poll. Otherwise the order would not
            // be deterministic.
            biased;
            () = self.link.until_reset() => None,
            dial_result = dial => Some(dial_result),
        };
        let end = match dial_result {
            Some(Ok(server_stream)) => relay(client_stream, server_stream, &self.link, &self.network).await,
            failure => {
                client_stream.reset_on_drop();
                if failure.is_some() { ConnectionEnd::Unreachable } else { ConnectionEnd::Reset }
            }
        };
        self.end(end);
    }
}
