//! Control of one connection: its byte budget, its black hole, its end.

use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use crate::signal::Signal;

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkEnd {
    /// The client closed the connection, or the server drained and closed it.
    Closed,
    /// A fault reset the connection.
    Reset,
}

/// Control of one connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: u64,
    pub(crate) replica: usize,
    pub(crate) opened_at: Duration,
    /// Certificate of the client.
    pub(crate) certificate: OnceLock<Vec<u8>>,
    state: Mutex<LinkState>,
    changed: Signal,
}

#[derive(Debug, Default)]
struct LinkState {
    reset: bool,
    failed_at: Option<Duration>,
    goaway: bool,
    black_hole: bool,
    /// Bytes that may still be written before the connection is reset.
    budget: Option<u64>,
    waiting: Vec<Waker>,
    ended: Option<(Duration, LinkEnd)>,
}

impl Link {
    pub(crate) fn new(id: u64, replica: usize, opened_at: Duration, black_hole: bool) -> Self {
        let state = LinkState { black_hole, ..LinkState::default() };
        Self { id, replica, opened_at, certificate: OnceLock::new(), state: Mutex::new(state), changed: Signal::new() }
    }

    /// Resets the connection. Data in flight is lost.
    pub(crate) fn reset(&self, now: Duration) {
        self.change(|state| {
            state.reset = true;
            // Keep the time of the first fault: a black hole before the reset already broke the connection.
            state.failed_at.get_or_insert(now);
        });
    }

    pub(crate) fn reset_after(&self, bytes: u64) {
        self.change(|state| state.budget = Some(bytes));
    }

    pub(crate) fn set_black_hole(&self, on: bool, now: Duration) {
        self.change(|state| {
            state.black_hole = on;
            // The end of a black hole repairs the connection, unless it was reset in the meantime.
            state.failed_at = if on { state.failed_at.or(Some(now)) } else { state.failed_at.filter(|_| state.reset) };
        });
    }

    pub(crate) fn go_away(&self) {
        self.change(|state| state.goaway = true);
    }

    pub(crate) fn end(&self, now: Duration) {
        self.change(|state| {
            let how = if state.reset { LinkEnd::Reset } else { LinkEnd::Closed };
            // The first end counts. A drop after a reset changes nothing.
            state.ended.get_or_insert((now, how));
        });
    }

    pub(crate) fn is_reset(&self) -> bool {
        self.read(|state| state.reset)
    }

    /// Returns the time and the kind of the end; `None` while the connection is open.
    pub(crate) fn ended(&self) -> Option<(Duration, LinkEnd)> {
        self.read(|state| state.ended)
    }

    /// Returns the time at which a fault broke the connection, if one did.
    pub(crate) fn failed_at(&self) -> Option<Duration> {
        self.read(|state| state.failed_at)
    }

    /// Waits until the connection is reset.
    pub(crate) async fn until_reset(&self) {
        self.changed.until(|| self.is_reset()).await;
    }

    /// Waits until the connection must be drained.
    pub(crate) async fn until_goaway(&self) {
        self.changed.until(|| self.read(|state| state.goaway)).await;
    }

    /// Returns whether bytes may pass: pending in a black hole, `false` after a reset.
    pub(super) fn poll_passage(&self, context: &Context<'_>) -> Poll<bool> {
        self.write(|state| {
            if state.reset {
                return Poll::Ready(false);
            }
            if state.black_hole {
                // A black hole neither fails nor ends: the task waits until the link changes.
                state.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(true)
        })
    }

    /// Returns how many of `wanted` bytes may be written now; 0 if the budget is spent.
    pub(super) fn allowance(&self, wanted: usize) -> usize {
        self.read(|state| state.budget.map_or(wanted, |left| wanted.min(usize::try_from(left).unwrap_or(usize::MAX))))
    }

    /// Subtracts written bytes from the budget.
    pub(super) fn spend(&self, written: usize) {
        self.write(|state| {
            if let Some(left) = &mut state.budget {
                *left = left.saturating_sub(written as u64);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut LinkState)) {
        let waiting = self.write(|state| {
            change(state);
            std::mem::take(&mut state.waiting)
        });
        // Wake without the lock: a woken task may poll the link at once.
        waiting.into_iter().for_each(Waker::wake);
        self.changed.raise();
    }

    fn read<T>(&self, read: impl FnOnce(&LinkState) -> T) -> T {
        self.write(|state| read(state))
    }

    fn write<T>(&self, write: impl FnOnce(&mut LinkState) -> T) -> T {
        write(&mut self.state.lock())
    }
}
