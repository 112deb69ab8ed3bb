//! Limiter of concurrent full transfers (R5). A slot requires progress, so a hanging transfer blocks no other (R7).
//!
//! A transfer counts against the limit while its bytes arrive. A silent transfer loses its slot to the next transfer
//! and continues. If its bytes arrive later, the reader accepts them immediately, and the transfer counts again, even
//! above the limit. The server has already produced the response, and would have to buffer unread bytes.
//!
//! The waiting transfers lose time until a silence is detected. The timeout therefore shrinks with the number of silent
//! transfers. A suspect is a collection whose last transfer was silent. A waiting suspect is served as if its request
//! had been queued 10 s later. If several slots exist, suspects never occupy all of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use steadfast_core::Instant;
use tokio::sync::{Notify, oneshot};

use crate::environment::SharedEnvironment;

/// Silence after which a transfer stops counting, if no other transfer is silent.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);

/// Minimum of the timeout as it shrinks: longer than a healthy server takes for the head of a response.
const MIN_SILENCE_TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum time for which a transfer counts, so that a transfer with slow progress does not block others for longer.
const MAX_COUNTED_TIME: Duration = Duration::from_secs(30);

/// Duration that is added to the request time of a suspect in the queue, so that other transfers are served first.
const SUSPECT_HANDICAP: Duration = Duration::from_secs(10);

/// The slots for full transfers from one server; cheap to clone.
#[derive(Clone)]
pub(crate) struct TransferLimiter {
    shared: Arc<Shared>,
}

struct Shared {
    environment: SharedEnvironment,
    limit: usize,
    state: Mutex<State>,
    /// Notified if the granter must wake up earlier.
    earlier_wake_up: Notify,
}

#[derive(Default)]
struct State {
    last_number: u64,
    /// Transfers that count, by number.
    counting: BTreeMap<u64, SlotHolder>,
    /// Transfers that do not count: until their next bytes arrive, or for good after [`MAX_COUNTED_TIME`].
    silent: BTreeMap<u64, SlotHolder>,
    /// Collections that were silent in their last transfer.
    suspects: BTreeSet<Arc<str>>,
    /// Waiting transfers in the order of their requests, without suspects.
    waiting: VecDeque<WaitingTransfer>,
    /// Waiting suspects in the order of their requests.
    waiting_suspects: VecDeque<WaitingTransfer>,
    /// Next wake-up of the granter, if it runs.
    granter_due: Option<Instant>,
}

struct SlotHolder {
    collection: Arc<str>,
    is_suspect: bool,
    started_at: Instant,
    last_progress: Instant,
}

struct WaitingTransfer {
    collection: Arc<str>,
    requested_at: Instant,
    slot: oneshot::Sender<TransferSlot>,
}

/// A slot among the full transfers, until it is dropped.
pub(crate) struct TransferSlot {
    shared: Arc<Shared>,
    number: u64,
    last_progress: Instant,
}

impl TransferLimiter {
    /// Creates a limiter with `limit` slots, at least one.
    pub(super) fn new(environment: SharedEnvironment, limit: usize) -> Self {
        let (limit, state, earlier_wake_up) = (limit.max(1), Mutex::default(), Notify::new());
        Self { shared: Arc::new(Shared { environment, limit, state, earlier_wake_up }) }
    }

    /// Waits for a slot for a transfer of `collection`, a path.
    pub(super) fn wait(&self, collection: &str) -> BoxFuture<'static, TransferSlot> {
        let (slot, granted) = oneshot::channel();
        let now = self.shared.environment.now();
        let mut state = self.shared.lock();
        let suspect = state.suspects.get(collection).cloned();
        let queue = if suspect.is_some() { &mut state.waiting_suspects } else { &mut state.waiting };
        queue.push_back(WaitingTransfer {
            collection: suspect.unwrap_or_else(|| collection.into()),
            requested_at: now,
            slot,
        });
        self.shared.grant_and_schedule(state);
        Box::pin(async move {
            match granted.await {
                Ok(slot) => slot,
                // The sender drops only with the limiter, and so with the connection: the task is about to be dropped
                // too.
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// Returns a slot if a slot is free now and only suspects wait.
    pub(super) fn try_acquire(&self, collection: &str) -> Option<TransferSlot> {
        let now = self.shared.environment.now();
        let mut state = self.shared.lock();
        state.stop_counting_silent(now, self.shared.limit);
        state.drop_cancelled_waiters();
        let has_free_slot = state.waiting.is_empty() && state.counting.len() < self.shared.limit;
        has_free_slot.then(|| {
            let collection = collection.into();
            let is_suspect = state.suspects.contains(&collection);
            self.shared.occupy(&mut state, now, collection, is_suspect)
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn occupy(
        self: &Arc<Self>,
        state: &mut State,
        now: Instant,
        collection: Arc<str>,
        is_suspect: bool,
    ) -> TransferSlot {
        state.last_number += 1;
        state
            .counting
            .insert(state.last_number, SlotHolder { collection, is_suspect, started_at: now, last_progress: now });
        TransferSlot { shared: self.clone(), number: state.last_number, last_progress: now }
    }

    /// Grants free slots to waiting transfers, and schedules the granter for the next one.
    fn grant_and_schedule(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let now = self.environment.now();
        let granted = self.grant(&mut state, now);
        let due = state.next_due(self.limit).filter(|_| !state.has_no_waiter());
        match (due, state.granter_due) {
            (Some(due), None) => {
                state.granter_due = Some(due);
                self.environment.spawn(Box::pin(run_granter(Arc::downgrade(self))));
            }
            (Some(due), Some(before)) if due < before => {
                state.granter_due = Some(due);
                self.earlier_wake_up.notify_one();
            }
            _ => {}
        }
        drop(state);
        // After the lock: if the receiver has been dropped, the slot drops here, and its destructor takes the lock.
        for (waiter, slot) in granted {
            drop(waiter.slot.send(slot));
        }
    }

    fn grant(self: &Arc<Self>, state: &mut State, now: Instant) -> Vec<(WaitingTransfer, TransferSlot)> {
        let mut granted = Vec::new();
        state.stop_counting_silent(now, self.limit);
        state.drop_cancelled_waiters();
        while state.counting.len() < self.limit {
            let Some((waiter, is_suspect)) = state.take_next(self.limit) else { break };
            let slot = self.occupy(state, now, waiter.collection.clone(), is_suspect);
            granted.push((waiter, slot));
            state.drop_cancelled_waiters();
        }
        granted
    }
}

/// Grants slots whenever a transfer may have become silent, while any transfer waits.
async fn run_granter(transfers: Weak<Shared>) {
    loop {
        let Some(shared) = transfers.upgrade() else { return };
        let granted = {
            let now = shared.environment.now();
            let mut state = shared.lock();
            let granted = shared.grant(&mut state, now);
            state.granter_due = state.next_due(shared.limit).filter(|_| !state.has_no_waiter());
            granted
        };
        for (waiter, slot) in granted {
            drop(waiter.slot.send(slot));
        }
        let Some(due) = shared.lock().granter_due else { return };
        let sleep = shared.environment.sleep_until(due);
        tokio::select! {
            biased;
            () = sleep => {}
            () = shared.earlier_wake_up.notified() => {}
        }
    }
}

impl State {
    /// Returns the current timeout for a silent transfer.
    fn silence_timeout(&self, limit: usize) -> Duration {
        let share = u32::try_from(1 + self.silent.len() / limit).unwrap_or(u32::MAX);
        (SILENCE_TIMEOUT / share).max(MIN_SILENCE_TIMEOUT)
    }

    /// Returns the time at which the next transfer stops counting, unless its bytes arrive before.
    fn next_due(&self, limit: usize) -> Option<Instant> {
        let timeout = self.silence_timeout(limit);
        self.counting
            .values()
            .map(|holder| (holder.last_progress + timeout).min(holder.started_at + MAX_COUNTED_TIME))
            .min()
    }

    /// Stops counting transfers that have been silent for too long.
    fn stop_counting_silent(&mut self, now: Instant, limit: usize) {
        // One at a time, since each silent transfer shortens the timeout of the next.
        while let Some(due) = self.next_due(limit).filter(|due| *due <= now) {
            let timeout = self.silence_timeout(limit);
            let is_due =
                |holder: &SlotHolder| (holder.last_progress + timeout).min(holder.started_at + MAX_COUNTED_TIME) == due;
            let Some(number) = self.counting.iter().find(|(_, holder)| is_due(holder)).map(|(number, _)| *number)
            else {
                return;
            };
            if let Some(holder) = self.counting.remove(&number) {
                // A transfer with slow progress that reached its maximum time does not become a suspect.
                if holder.last_progress + timeout <= now {
                    self.suspects.insert(holder.collection.clone());
                }
                self.silent.insert(number, holder);
            }
        }
    }

    fn has_no_waiter(&self) -> bool {
        self.waiting.is_empty() && self.waiting_suspects.is_empty()
    }

    /// Removes cancelled waiters from the heads of the queues.
    fn drop_cancelled_waiters(&mut self) {
        for queue in [&mut self.waiting, &mut self.waiting_suspects] {
            while queue.front().is_some_and(|waiter| waiter.slot.is_closed()) {
                queue.pop_front();
            }
        }
    }

    /// Removes and returns the next waiter, with true if the waiter is a suspect. If several slots exist, suspects
    /// never occupy all of them.
    fn take_next(&mut self, limit: usize) -> Option<(WaitingTransfer, bool)> {
        let suspects = self.counting.values().filter(|holder| holder.is_suspect).count();
        let is_free = suspects < limit.saturating_sub(1).max(1);
        let is_suspect = match (self.waiting.front(), self.waiting_suspects.front().filter(|_| is_free)) {
            (Some(other), Some(suspect)) => suspect.requested_at + SUSPECT_HANDICAP < other.requested_at,
            (other, suspect) => other.is_none() && suspect.is_some(),
        };
        let queue = if is_suspect { &mut self.waiting_suspects } else { &mut self.waiting };
        queue.pop_front().map(|waiter| (waiter, is_suspect))
    }
}

impl TransferSlot {
    /// Records that bytes of the transfer arrived at `at`.
    pub(crate) fn record_progress(&mut self, at: Instant) {
        if at <= self.last_progress {
            return;
        }
        self.last_progress = at;
        let mut state = self.shared.lock();
        let state = &mut *state;
        if let Some(holder) = state.counting.get_mut(&self.number) {
            holder.last_progress = at;
            if std::mem::take(&mut holder.is_suspect) {
                state.suspects.remove(&holder.collection);
            }
        } else if let Some(mut holder) = state.silent.remove(&self.number) {
            state.suspects.remove(&holder.collection);
            (holder.last_progress, holder.is_suspect) = (at, false);
            if at.since(holder.started_at) < MAX_COUNTED_TIME {
                state.counting.insert(self.number, holder);
            } else {
                // Past the maximum, the transfer must not take a slot again, even with progress.
                state.silent.insert(self.number, holder);
            }
        }
    }
}

impl Drop for TransferSlot {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.counting.remove(&self.number);
        state.silent.remove(&self.number);
        self.shared.grant_and_schedule(state);
    }
}

impl fmt::Debug for TransferSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferSlot").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::environment::local::LocalEnvironment;

    fn limiter_with_four_slots() -> TransferLimiter {
        let environment =
            LocalEnvironment::new(1, |_, _| Box::pin(async { Err(std::io::Error::other("no peer exists")) }));
        TransferLimiter::new(Arc::new(environment), 4)
    }

    impl TransferLimiter {
        fn now(&self) -> Instant {
            self.shared.environment.now()
        }

        async fn acquire_slots(&self, number: usize) -> Vec<TransferSlot> {
            let mut held = Vec::new();
            for index in 0..number {
                held.push(self.wait(&format!("acquire_slots {index}")).await);
            }
            held
        }
    }

    async fn advance(time: Duration) {
        tokio::time::sleep(time).await;
    }

    #[tokio::test(start_paused = true)]
    async fn fifth_transfer_waits_while_four_make_progress() {
        let transfers = limiter_with_four_slots();
        let mut held = transfers.acquire_slots(4).await;
        let mut fifth = transfers.wait("fifth");
        for _ in 0..20 {
            advance(Duration::from_millis(900)).await;
            for slot in &mut held {
                slot.record_progress(transfers.now());
            }
            assert!((&mut fifth).now_or_never().is_none(), "four transfers count already");
        }
        held.pop();
        assert!(fifth.now_or_never().is_some(), "one slot is free");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_transfer_counts_for_30_seconds() {
        let transfers = limiter_with_four_slots();
        let mut held = transfers.acquire_slots(4).await;
        let mut fifth = transfers.wait("fifth");
        let started_at = transfers.now();
        while (&mut fifth).now_or_never().is_none() {
            advance(Duration::from_millis(500)).await;
            for slot in &mut held {
                slot.record_progress(transfers.now());
            }
        }
        let took = transfers.now().since(started_at);
        assert!((MAX_COUNTED_TIME..=MAX_COUNTED_TIME + Duration::from_secs(1)).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn resumed_transfer_counts_again() {
        let transfers = limiter_with_four_slots();
        let mut silent = transfers.acquire_slots(4).await;
        let others = transfers.acquire_slots(3).await;
        advance(Duration::from_millis(1)).await;
        silent[0].record_progress(transfers.now());
        assert!(transfers.try_acquire("fifth").is_none(), "the resumed transfer takes the fourth slot");
        drop((silent, others));
        assert!(transfers.try_acquire("fifth").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn silent_transfers_wait_and_leave_one_slot() {
        let transfers = limiter_with_four_slots();
        drop({
            let held = transfers.acquire_slots(8).await;
            advance(SILENCE_TIMEOUT).await;
            transfers.shared.grant_and_schedule(transfers.shared.lock());
            held
        });
        let acquire_slots: Vec<_> = (0..8).map(|index| transfers.wait(&format!("acquire_slots {index}"))).collect();
        let mut acquire_slots: Vec<_> = acquire_slots.into_iter().map(FutureExt::now_or_never).collect();
        assert_eq!(acquire_slots.iter().flatten().count(), 3, "the last slot is for others");
        let other = transfers.wait("other").now_or_never().expect("the last slot");
        let another = transfers.wait("another");
        acquire_slots.clear();
        assert!(another.now_or_never().is_some(), "this transfer precedes silent transfers that wait longer");
        drop(other);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_waiter_takes_no_slot() {
        let transfers = limiter_with_four_slots();
        let held = transfers.acquire_slots(4).await;
        drop(transfers.wait("gone"));
        let kept = transfers.wait("kept");
        drop(held);
        assert!(kept.now_or_never().is_some());
        assert_eq!(transfers.shared.lock().counting.len(), 0, "no transfer counts");
    }
}
