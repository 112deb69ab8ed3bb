//! The relay of one connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use steadfast_core::random::Random;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::end::End;
use super::lane::{Lane, PIECE_BYTES, Turn};
use super::link::{Condition, Link, StreamDirection};
use super::network::{Network, Open};
use super::report::{ConnectionEnd, FaultTransition};

/// Maximum time for which the relay waits for the client to close its side after a fault closed the connection.
const LINGER: Duration = Duration::from_secs(5);

/// Forwards bytes between `near` and `far` until both have ended or a fault ends the connection. Returns how it ended.
pub(super) async fn relay<N: End, F: End>(mut near: N, mut far: F, link: &Link, network: &Network) -> ConnectionEnd {
    // Each connection has its own generator: jitter must not depend on the order in which connections run.
    let mut random = Random::new(network.seed() ^ link.number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let [to_server, to_client] = [StreamDirection::ToServer, StreamDirection::ToClient]
        .map(|direction| Lane::new(direction, Random::new(random.draw())));
    let now = Instant::now();
    let mut relay = Relay {
        link,
        network,
        to_server,
        to_client,
        scratch: vec![0; PIECE_BYTES].into_boxed_slice(),
        timer: Box::pin(sleep_until(now)),
        moved_at: now,
        dropped: false,
    };
    let ended = poll_fn(|context| relay.poll(&mut near, &mut far, context)).await;
    match ended {
        // Both ends see the reset, as on a broken path with RST in both directions.
        ConnectionEnd::Reset | ConnectionEnd::Broken => {
            near.reset_on_drop();
            far.reset_on_drop();
        }
        ConnectionEnd::Truncated => {
            // The server's side closes first. The client then reads all forwarded bytes and a clean end.
            drop(far);
            close_cleanly(near, relay.scratch).await;
        }
        _ => {}
    }
    ended
}

/// Signals the end to `near`, and reads its remaining bytes. A socket that is closed with unread bytes would send a
/// reset.
async fn close_cleanly(mut near: impl End, mut scratch: Box<[u8]>) {
    if near.shutdown().await.is_ok() {
        let rest = async { while near.read(&mut scratch).await.is_ok_and(|read| read > 0) {} };
        let _ = timeout(LINGER, rest).await;
    }
}

struct Relay<'a> {
    link: &'a Link,
    network: &'a Network,
    to_server: Lane,
    to_client: Lane,
    scratch: Box<[u8]>,
    timer: Pin<Box<Sleep>>,
    /// Time of the last byte.
    moved_at: Instant,
    /// True if the flow was idle for too long, so that the network has dropped it.
    dropped: bool,
}

impl Relay<'_> {
    fn poll(&mut self, near: &mut impl End, far: &mut impl End, context: &mut Context<'_>) -> Poll<ConnectionEnd> {
        loop {
            let (mut condition, orders) = self.link.current(context);
            if orders.reset
                && condition.hole[StreamDirection::ToServer as usize]
                && self.link.lateness(StreamDirection::ToServer).is_some()
            {
                // The client's kernel has discarded its data, but its reset cannot reach the server yet. So the
                // server does not know about the reset, and processes the data it has received.
                self.to_server.drop_all();
                // No timer is set: the next change of the conditions wakes the task.
                return Poll::Pending;
            }
            if orders.reset {
                return Poll::Ready(ConnectionEnd::Reset);
            }
            for (lane, closed) in [&mut self.to_server, &mut self.to_client].into_iter().zip(orders.half_close) {
                if closed {
                    lane.half_close();
                }
            }
            if self.dropped {
                // The middlebox does not know this flow any more, so later faults of the path no longer apply.
                condition = Condition::default();
            }
            let to_server_turn = self.to_server.turn((near, far), (&condition, self.link), &mut self.scratch, context);
            let to_client_turn = self.to_client.turn((far, near), (&condition, self.link), &mut self.scratch, context);
            let mut until: Option<Instant> = None;
            for turn in [to_server_turn, to_client_turn] {
                match turn {
                    Ok(Turn::Cut(end)) => return Poll::Ready(end),
                    Err(_) => return Poll::Ready(ConnectionEnd::Broken),
                    Ok(Turn::Waits { moved, until: wanted }) => {
                        if moved {
                            self.moved_at = Instant::now();
                        }
                        until = until.into_iter().chain(wanted).min();
                    }
                }
            }
            if self.to_server.is_finished() && self.to_client.is_finished() {
                return Poll::Ready(if self.dropped { ConnectionEnd::Dropped } else { ConnectionEnd::Closed });
            }
            // Bytes of both directions end the idle time, as in a NAT that tracks flows.
            if let Some(idle) = condition.idle {
                let drops_at = self.moved_at + idle;
                if drops_at <= Instant::now() {
                    self.drop_flow();
                    continue;
                }
                until = until.into_iter().chain([drops_at]).min();
            }
            let Some(until) = until else { return Poll::Pending };
            // The loop polls the new timer once, because only a polled timer registers a waker.
            self.timer.as_mut().reset(until);
            ready!(self.timer.as_mut().poll(context));
        }
    }

    /// Drops all later bytes silently.
    fn drop_flow(&mut self) {
        self.dropped = true;
        self.to_server.drop_all();
        self.to_client.drop_all();
        self.network.note("idle flow dropped", Some(self.link.number), FaultTransition::Once);
    }
}

impl Open {
    /// Forwards bytes between `near` and the stream that `dial` opens, until the connection ends.
    pub(super) async fn forward<N: End, F: End>(self, mut near: N, dial: impl Future<Output = std::io::Result<F>>) {
        let dialled = tokio::select! {
            // The reset must win even if the dial completes in the same poll. Otherwise the order would not be
            // deterministic.
            biased;
            () = self.link.until_reset() => None,
            dialled = dial => Some(dialled),
        };
        let ended = match dialled {
            Some(Ok(far)) => relay(near, far, &self.link, &self.network).await,
            failed => {
                near.reset_on_drop();
                if failed.is_some() { ConnectionEnd::Unreachable } else { ConnectionEnd::Reset }
            }
        };
        self.end(ended);
    }
}
