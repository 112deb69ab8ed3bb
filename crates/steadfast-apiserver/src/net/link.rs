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
    is_reset: bool,
    failed_at: Option<Duration>,
    must_drain: bool,
    is_black_hole: bool,
    /// Bytes that may still be written before the connection is reset.
    remaining_bytes: Option<u64>,
    wakers: Vec<Waker>,
    end: Option<(Duration, LinkEnd)>,
}

impl Link {
    pub(crate) fn new(id: u64, replica: usize, opened_at: Duration, is_black_hole: bool) -> Self {
        let state = LinkState { is_black_hole, ..LinkState::default() };
        Self { id, replica, opened_at, certificate: OnceLock::new(), state: Mutex::new(state), changed: Signal::new() }
    }

    /// Resets the connection. Data in flight is lost.
    pub(crate) fn reset(&self, now: Duration) {
        self.change(|state| {
            state.is_reset = true;
            // Keep the time of the first fault: a black hole before the reset already broke the connection.
            state.failed_at.get_or_insert(now);
        });
    }

    pub(crate) fn reset_after(&self, bytes: u64) {
        self.change(|state| state.remaining_bytes = Some(bytes));
    }

    pub(crate) fn set_black_hole(&self, on: bool, now: Duration) {
        self.change(|state| {
            state.is_black_hole = on;
            // The end of a black hole repairs the connection, unless it was reset in the meantime.
            state.failed_at =
                if on { state.failed_at.or(Some(now)) } else { state.failed_at.filter(|_| state.is_reset) };
        });
    }

    pub(crate) fn go_away(&self) {
        self.change(|state| state.must_drain = true);
    }

    pub(crate) fn end(&self, now: Duration) {
        self.change(|state| {
            let end_kind = if state.is_reset { LinkEnd::Reset } else { LinkEnd::Closed };
            // The first end counts. A drop after a reset changes nothing.
            state.end.get_or_insert((now, end_kind));
        });
    }

    pub(crate) fn is_reset(&self) -> bool {
        self.read(|state| state.is_reset)
    }

    /// Returns the time and the kind of the end; `None` while the connection is open.
    pub(crate) fn end_state(&self) -> Option<(Duration, LinkEnd)> {
        self.read(|state| state.end)
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
        self.changed.until(|| self.read(|state| state.must_drain)).await;
    }

    /// Returns whether bytes may pass: pending in a black hole, `false` after a reset.
    pub(super) fn poll_passage(&self, context: &Context<'_>) -> Poll<bool> {
        self.write(|state| {
            if state.is_reset {
                return Poll::Ready(false);
            }
            if state.is_black_hole {
                // A black hole neither fails nor ends: the task waits until the link changes.
                state.wakers.push(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(true)
        })
    }

    /// Returns how many of `requested_bytes` bytes may be written now; 0 if the budget is spent.
    pub(super) fn allowance(&self, requested_bytes: usize) -> usize {
        self.read(|state| {
            state.remaining_bytes.map_or(requested_bytes, |remaining| {
                requested_bytes.min(usize::try_from(remaining).unwrap_or(usize::MAX))
            })
        })
    }

    /// Subtracts written bytes from the budget.
    pub(super) fn spend(&self, written: usize) {
        self.write(|state| {
            if let Some(remaining) = &mut state.remaining_bytes {
                *remaining = remaining.saturating_sub(written as u64);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut LinkState)) {
        let wakers = self.write(|state| {
            change(state);
            std::mem::take(&mut state.wakers)
        });
        // Wake without the lock: a woken task may poll the link immediately.
        wakers.into_iter().for_each(Waker::wake);
        self.changed.raise();
    }

    fn read<T>(&self, read: impl FnOnce(&LinkState) -> T) -> T {
        self.write(|state| read(state))
    }

    fn write<T>(&self, write: impl FnOnce(&mut LinkState) -> T) -> T {
        write(&mut self.state.lock())
    }
}
