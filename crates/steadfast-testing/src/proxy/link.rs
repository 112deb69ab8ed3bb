//! One connection's conditions, orders and counts, between the switches and its relay.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::report::{Carried, Ended};

/// One way through a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    ToServer,
    ToClient,
}

/// What lies on a connection until it is healed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Condition {
    /// By way.
    pub(super) hole: [bool; 2],
    pub(super) frozen: bool,
    pub(super) delay: Duration,
    /// Added to the delay: between nothing and this.
    pub(super) jitter: Duration,
    /// Bytes per second, each way; never 0.
    pub(super) rate: Option<u64>,
    /// How long a flow may be idle before it is dropped.
    pub(super) idle: Option<Duration>,
    /// By way.
    pub(super) cut: [Option<Cut>; 2],
}

impl Condition {
    /// Whether a connection can be opened: its first packets go both ways.
    pub(super) fn lets_open(&self) -> bool {
        self.hole == [false; 2]
    }
}

/// How a connection is to end, and after how many bytes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) after: u64,
    pub(super) how: Ended,
}

/// What is to be done to a connection once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Orders {
    pub(super) reset: bool,
    /// By way: its end is to be shown now.
    pub(super) half_close: [bool; 2],
}

/// One connection, or one that is still to be opened.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u64,
    state: Mutex<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    condition: Condition,
    orders: Orders,
    /// When, and to which target.
    opened: Option<(Duration, usize)>,
    /// By way.
    carried: [u64; 2],
    ended: Option<(Duration, Ended)>,
    /// How long the client's kernel keeps what is not acknowledged.
    lateness: Option<Duration>,
    /// Of the one task that this connection has.
    waiting: Option<Waker>,
}

impl Link {
    pub(super) fn new(number: u64, condition: Condition) -> Self {
        Self { number, state: Mutex::new(LinkState { condition, ..LinkState::default() }) }
    }

    /// Counts it as open.
    pub(super) fn open(&self, at: Duration, target: usize) {
        self.look(|state| state.opened = Some((at, target)));
    }

    pub(super) fn is_open(&self) -> bool {
        self.look(|state| state.opened.is_some() && state.ended.is_none())
    }

    pub(super) fn end(&self, at: Duration, how: Ended) {
        self.look(|state| state.ended = Some((at, how)));
    }

    pub(super) fn condition(&self) -> Condition {
        self.look(|state| state.condition)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Condition)) {
        self.change_both(|condition, _| change(condition));
    }

    pub(super) fn order(&self, order: impl FnOnce(&mut Orders)) {
        self.change_both(|_, orders| order(orders));
    }

    fn change_both(&self, change: impl FnOnce(&mut Condition, &mut Orders)) {
        let waiting = self.look(|state| {
            change(&mut state.condition, &mut state.orders);
            state.waiting.take()
        });
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }

    /// What holds now; the caller's task is woken when that changes.
    pub(super) fn present(&self, context: &Context<'_>) -> (Condition, Orders) {
        self.look(|state| {
            if !state.waiting.as_ref().is_some_and(|waiting| waiting.will_wake(context.waker())) {
                state.waiting = Some(context.waker().clone());
            }
            (state.condition, state.orders)
        })
    }

    /// How this way through it is to end, if a fault says so.
    pub(super) fn cut(&self, way: Way) -> Option<Cut> {
        self.look(|state| state.condition.cut[way as usize])
    }

    /// Counts bytes that were handed on.
    pub(super) fn count(&self, way: Way, bytes: usize) {
        self.look(|state| {
            state.carried[way as usize] += bytes as u64;
            if let Some(cut) = &mut state.condition.cut[way as usize] {
                cut.after = cut.after.saturating_sub(bytes as u64);
            }
        });
    }

    /// Has the connection broken off once something that the client has written has not arrived for so long.
    pub(super) fn limit_lateness(&self, limit: Duration) {
        self.look(|state| state.lateness = Some(limit));
    }

    /// How late something that goes this way may arrive.
    pub(super) fn lateness(&self, way: Way) -> Option<Duration> {
        self.look(|state| state.lateness.filter(|_| way == Way::ToServer))
    }

    /// Waits until it is to be reset.
    pub(super) async fn until_reset(&self) {
        self.until(|_, orders| orders.reset).await;
    }

    /// Waits until it can be opened to the server.
    pub(super) async fn until_passable(&self) {
        self.until(|condition, _| condition.lets_open() && !condition.frozen).await;
    }

    async fn until(&self, held: impl Fn(&Condition, &Orders) -> bool) {
        poll_fn(|context| {
            let (condition, orders) = self.present(context);
            if held(&condition, &orders) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What it carried; `None` before it is opened.
    pub(super) fn report(&self) -> Option<Carried> {
        self.look(|state| {
            let (opened, target) = state.opened?;
            let [to_server, to_client] = state.carried;
            Some(Carried { connection: self.number, target, opened, to_server, to_client, ended: state.ended })
        })
    }

    fn look<T>(&self, look: impl FnOnce(&mut LinkState) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
