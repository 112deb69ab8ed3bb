//! Lasting conditions, pending actions and counts of one connection. The switches set them, and the relay reads them.

use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::report::{ConnectionEnd, ProxiedConnection};

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamDirection {
    ToServer,
    ToClient,
}

/// Lasting conditions of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Condition {
    /// True if all traffic is dropped, by direction.
    pub(super) is_black_hole: [bool; 2],
    pub(super) is_frozen: bool,
    pub(super) delay: Duration,
    /// Upper bound of the random delay that is added to `delay`.
    pub(super) jitter: Duration,
    /// Bytes per second in each direction, never 0.
    pub(super) bytes_per_second: Option<u64>,
    /// Maximum idle time of a flow before it is dropped.
    pub(super) max_idle: Option<Duration>,
    /// Number of further bytes after which a fault ends the connection, by direction.
    pub(super) cut: [Option<Cut>; 2],
}

impl Condition {
    /// Returns `true` if a connection can be opened: its first packets need both directions.
    pub(super) fn can_open(&self) -> bool {
        self.is_black_hole == [false; 2]
    }
}

/// End of a connection after a number of further bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) remaining_bytes: u64,
    pub(super) end: ConnectionEnd,
}

/// Actions that are applied to a connection once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionCommands {
    pub(super) reset: bool,
    /// True if the end must be signalled now, by direction.
    pub(super) half_close: [bool; 2],
}

/// A connection, open or not yet opened.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u64,
    state: Mutex<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    condition: Condition,
    commands: ConnectionCommands,
    /// Time of the opening, and number of the target.
    opening: Option<(Duration, usize)>,
    /// Number of forwarded bytes, by direction.
    forwarded_bytes: [u64; 2],
    end: Option<(Duration, ConnectionEnd)>,
    /// Maximum time for which the client's kernel keeps unacknowledged data.
    lateness: Option<Duration>,
    /// Waker of the task of this connection. Each connection has one task.
    waker: Option<Waker>,
}

impl Link {
    pub(super) fn new(number: u64, condition: Condition) -> Self {
        Self { number, state: Mutex::new(LinkState { condition, ..LinkState::default() }) }
    }

    /// Marks the connection as open.
    pub(super) fn open(&self, at: Duration, target: usize) {
        self.with_state(|state| state.opening = Some((at, target)));
    }

    pub(super) fn is_open(&self) -> bool {
        self.with_state(|state| state.opening.is_some() && state.end.is_none())
    }

    pub(super) fn end(&self, at: Duration, end: ConnectionEnd) {
        self.with_state(|state| state.end = Some((at, end)));
    }

    pub(super) fn condition(&self) -> Condition {
        self.with_state(|state| state.condition)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Condition)) {
        self.change_both(|condition, _| change(condition));
    }

    pub(super) fn command(&self, command: impl FnOnce(&mut ConnectionCommands)) {
        self.change_both(|_, commands| command(commands));
    }

    fn change_both(&self, change: impl FnOnce(&mut Condition, &mut ConnectionCommands)) {
        let waker = self.with_state(|state| {
            change(&mut state.condition, &mut state.commands);
            state.waker.take()
        });
        // The waker is called outside the lock, because it may poll the task on this thread immediately.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the current conditions. The caller's task is woken when they change.
    pub(super) fn register_waker_and_read(&self, context: &Context<'_>) -> (Condition, ConnectionCommands) {
        self.with_state(|state| {
            // The waker is cloned only if the task has changed, since this runs with every poll.
            if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                state.waker = Some(context.waker().clone());
            }
            (state.condition, state.commands)
        })
    }

    /// Returns the end that a fault set for this direction, if any.
    pub(super) fn cut(&self, direction: StreamDirection) -> Option<Cut> {
        self.with_state(|state| state.condition.cut[direction as usize])
    }

    /// Counts forwarded bytes.
    pub(super) fn count(&self, direction: StreamDirection, bytes: usize) {
        self.with_state(|state| {
            // Counts and limits change under one lock, so that a limit includes only bytes after the switch of the
            // fault.
            state.forwarded_bytes[direction as usize] += bytes as u64;
            if let Some(cut) = &mut state.condition.cut[direction as usize] {
                cut.remaining_bytes = cut.remaining_bytes.saturating_sub(bytes as u64);
            }
        });
    }

    /// Breaks the connection if data that the client has written does not arrive within `limit`.
    pub(super) fn limit_lateness(&self, limit: Duration) {
        self.with_state(|state| state.lateness = Some(limit));
    }

    /// Returns the maximum delay of data in this direction.
    pub(super) fn lateness(&self, direction: StreamDirection) -> Option<Duration> {
        // The timeout belongs to the client's kernel, so it applies only to the client's own data.
        self.with_state(|state| state.lateness.filter(|_| direction == StreamDirection::ToServer))
    }

    /// Waits until the connection must be reset.
    pub(super) async fn until_reset(&self) {
        self.wait_until(|_, commands| commands.reset).await;
    }

    /// Waits until the connection to the server can be opened.
    pub(super) async fn until_passable(&self) {
        self.wait_until(|condition, _| condition.can_open() && !condition.is_frozen).await;
    }

    async fn wait_until(&self, is_met: impl Fn(&Condition, &ConnectionCommands) -> bool) {
        poll_fn(|context| {
            let (condition, commands) = self.register_waker_and_read(context);
            if is_met(&condition, &commands) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Returns the counts, or `None` before the connection is opened.
    pub(super) fn report(&self) -> Option<ProxiedConnection> {
        self.with_state(|state| {
            let (opened, target) = state.opening?;
            let [to_server, to_client] = state.forwarded_bytes;
            Some(ProxiedConnection { connection: self.number, target, opened, to_server, to_client, ended: state.end })
        })
    }

    fn with_state<T>(&self, access: impl FnOnce(&mut LinkState) -> T) -> T {
        access(&mut self.state.lock())
    }
}
