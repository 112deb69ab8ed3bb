//! Ordered work that one thread submits, and that helper threads share.
//!
//! The submitting thread continues while helpers process the oldest items. It never depends on a helper: it processes
//! the remaining items itself, and waits only for items that another thread is processing. Small inputs therefore need no
//! hand-over, and large ones use all threads. Without helpers nothing needs to be submitted.
//!
//! Each item reserves a position at its submission, and carries a tag. Results are returned in submission order.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::contained::drop_contained;
use crate::helper_pool::{HelperThreads, HelperWork};
#[cfg(feature = "shuttle")]
use crate::injected_fault::InjectedExecutorFault;
use crate::injected_fault::{Fault, inject};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Minimum number of bytes that a helper takes, so that the hand-over does not dominate for small items.
pub const CHUNK_BYTES: usize = 8 * 1024;

/// Processes items of type `I` to results of type `O`. Each thread has its own worker.
pub trait Worker<I, O>: Send + 'static {
    /// Returns an equivalent worker for another thread.
    #[must_use]
    fn another(&self) -> Self;

    /// Processes one item. Must not panic.
    fn process(&mut self, item: I) -> O;

    /// Returns the size of an item in bytes.
    fn bytes(item: &I) -> usize;
}

/// Limits of a [`SharedWork`].
#[derive(Clone, Copy, Debug)]
pub struct WorkLimits {
    /// Number of helpers, and the number of pending bytes for which one is worthwhile.
    pub helpers: HelperThreads,
    /// Maximum number of bytes that the submitted items hold. At this limit, the submitting thread processes items.
    pub max_bytes: usize,
}

/// Ordered work of one submitting thread.
pub struct SharedWork<W, I, O, T> {
    worker: W,
    limits: WorkLimits,
    /// Passes the work of one helper to a thread, or drops it.
    offer: Box<dyn Fn(HelperWork) + Send + Sync>,
    fault: Fault,
    /// All items in submission order; `first_number` is the number of the first.
    positions: VecDeque<Position<T, O>>,
    first_number: u64,
    /// Number of positions without a result.
    unfinished_count: usize,
    /// Memory use of the items in bytes.
    held_bytes: usize,
    /// The most recent items, not yet visible to helpers.
    unshared: Vec<QueuedItem<I>>,
    unshared_bytes: usize,
    queue: Arc<WorkQueue<I, O>>,
}

/// Reserved position of an item.
struct Position<T, O> {
    /// `None` after the item became obsolete.
    tag: Option<T>,
    held_bytes: usize,
    outcome: Outcome<O>,
}

enum Outcome<O> {
    Pending,
    Finished(O),
    /// The item was dropped unprocessed.
    Dropped,
}

struct QueuedItem<I> {
    number: u64,
    item: I,
}

/// State shared by the submitting thread and the helpers.
struct WorkQueue<I, O> {
    state: Mutex<State<I, O>>,
    /// Wakes the submitting thread, which waits for items that helpers are processing.
    result_ready: Condvar,
}

struct State<I, O> {
    waiting: VecDeque<QueuedItem<I>>,
    /// Number of queued bytes.
    bytes: usize,
    results: Vec<(u64, O)>,
    /// Number of helpers that are processing items.
    busy_helpers: usize,
    /// Number of helpers.
    helper_count: usize,
}

impl<W, I, O, T> SharedWork<W, I, O, T> {
    /// Creates work without items. `offer` passes the work of one helper to a thread, or drops it.
    pub fn new(worker: W, limits: WorkLimits, offer: impl Fn(HelperWork) + Send + Sync + 'static) -> Self {
        let state = State { waiting: VecDeque::new(), bytes: 0, results: Vec::new(), busy_helpers: 0, helper_count: 0 };
        Self {
            worker,
            limits,
            offer: Box::new(offer),
            fault: Fault::default(),
            positions: VecDeque::new(),
            first_number: 0,
            unfinished_count: 0,
            held_bytes: 0,
            unshared: Vec::new(),
            unshared_bytes: 0,
            queue: Arc::new(WorkQueue { state: Mutex::new(state), result_ready: Condvar::new() }),
        }
    }

    /// Injects a fault into this work.
    #[cfg(feature = "shuttle")]
    #[must_use]
    pub fn with_fault(mut self, fault: Option<InjectedExecutorFault>) -> Self {
        self.fault.injected = fault;
        self
    }

    /// Returns true if helpers exist.
    pub fn is_shared(&self) -> bool {
        self.limits.helpers.threads > 0
    }

    /// Returns the worker of the submitting thread.
    pub fn worker(&mut self) -> &mut W {
        &mut self.worker
    }

    /// Returns the number of bytes that the submitted items hold.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Collects the results of helpers. Returns true if there were any.
    fn collect(&mut self) -> bool {
        let results = std::mem::take(&mut self.queue.lock().results);
        let any = !results.is_empty();
        for (number, result) in results {
            self.store_result(number, Outcome::Finished(result));
        }
        any
    }

    fn store_result(&mut self, number: u64, outcome: Outcome<O>) {
        let reserved = if inject!(self.fault, ResultInWrongPosition) {
            self.positions.iter_mut().find(|position| position.is_pending())
        } else {
            self.positions.get_mut((number - self.first_number) as usize)
        };
        if let Some(position) = reserved {
            // The result may stay in memory until earlier items are done, but its input is freed.
            self.held_bytes -= std::mem::take(&mut position.held_bytes);
            self.unfinished_count -= usize::from(position.is_pending());
            position.outcome = outcome;
        }
    }

    /// Returns the next result in submission order, if it exists. Obsolete items are skipped.
    pub fn next_result(&mut self) -> Option<(T, O)> {
        loop {
            if self.positions.front()?.is_pending() {
                // Checks for results of helpers once, not for each missing result.
                if !self.collect() {
                    return None;
                }
                continue;
            }
            let Position { tag, outcome, .. } = self.positions.pop_front()?;
            self.first_number += 1;
            if let (Some(tag), Outcome::Finished(result)) = (tag, outcome) {
                return Some((tag, result));
            }
        }
    }
}

impl<W: Worker<I, O>, I: Send + 'static, O: Send + 'static, T> SharedWork<W, I, O, T> {
    /// Submits an item. The item keeps `further_bytes` in memory in addition to its own.
    pub fn submit(&mut self, tag: T, item: I, further_bytes: usize) {
        let number = self.first_number + self.positions.len() as u64;
        let bytes = W::bytes(&item);
        let held_bytes = bytes + further_bytes;
        self.held_bytes += held_bytes;
        self.unfinished_count += 1;
        self.unshared_bytes += bytes;
        self.positions.push_back(Position { tag: Some(tag), held_bytes, outcome: Outcome::Pending });
        self.unshared.push(QueuedItem { number, item });
        if self.unshared_bytes >= self.limits.helpers.min_bytes {
            self.share();
        }
        while self.held_bytes > self.limits.max_bytes {
            self.process_some();
        }
    }

    /// Processes all remaining items. The caller then reads the [results](Self::next_result).
    pub fn finish(&mut self) {
        self.process_unshared();
        while self.unfinished_count > 0 {
            self.process_some();
        }
    }

    /// Discards all items whose tag is not `wanted`. Queued ones are dropped, and results of the others are discarded.
    pub fn retain(&mut self, wanted: impl Fn(&T) -> bool) {
        let wanted = |position: &Position<T, O>| position.tag.as_ref().is_none_or(&wanted);
        if self.positions.iter().all(wanted) {
            return;
        }
        for position in self.positions.iter_mut().filter(|position| !wanted(position)) {
            position.tag = None;
        }
        let unwanted = {
            let (first_number, positions) = (self.first_number, &self.positions);
            let is_wanted = |queued: &QueuedItem<I>| positions[(queued.number - first_number) as usize].tag.is_some();
            let mut state = self.queue.lock();
            let (kept, mut unwanted): (VecDeque<_>, VecDeque<_>) = state.waiting.drain(..).partition(is_wanted);
            state.waiting = kept;
            state.bytes = state.waiting.iter().map(|queued| W::bytes(&queued.item)).sum();
            let (kept, unshared): (Vec<_>, Vec<_>) = self.unshared.drain(..).partition(is_wanted);
            self.unshared_bytes = kept.iter().map(|queued| W::bytes(&queued.item)).sum();
            self.unshared = kept;
            unwanted.extend(unshared);
            unwanted
        };
        // Every position must get an outcome, because `next_result` stops at the first pending one.
        for QueuedItem { number, .. } in unwanted {
            self.store_result(number, Outcome::Dropped);
        }
    }

    /// Makes the recent items visible to helpers, and requests another helper if that is worthwhile.
    fn share(&mut self) {
        let helpers = self.limits.helpers;
        let needs_helper = {
            let mut state = self.queue.lock();
            state.bytes += std::mem::take(&mut self.unshared_bytes);
            state.waiting.extend(self.unshared.drain(..));
            // One helper at a time, and only if the queue exceeds the work of the current helpers.
            let needs_helper =
                state.helper_count < helpers.threads && state.bytes > state.helper_count * helpers.min_bytes;
            state.helper_count += usize::from(needs_helper);
            needs_helper
        };
        if needs_helper {
            let mut helper = Helper { worker: self.worker.another(), queue: self.queue.clone(), fault: self.fault };
            (self.offer)(Box::new(move || helper.process_some()));
        }
    }

    /// Processes some queued items, or waits until another thread has finished some.
    fn process_some(&mut self) {
        if self.collect() {
            return;
        }
        let mut state = self.queue.lock();
        let taken = state.take::<W>();
        if taken.is_empty() {
            // Helpers that are only scheduled do not count as busy. This thread therefore never waits for a
            // thread that may never run.
            if state.busy_helpers > 0 {
                self.queue.wait_for_result(state, self.fault);
            } else {
                drop(state);
                self.process_unshared();
            }
            return;
        }
        drop(state);
        self.process_all(taken);
    }

    fn process_unshared(&mut self) {
        self.unshared_bytes = 0;
        let mut unshared = std::mem::take(&mut self.unshared);
        self.process_all(unshared.drain(..));
        self.unshared = unshared;
    }

    fn process_all(&mut self, queued: impl IntoIterator<Item = QueuedItem<I>>) {
        for QueuedItem { number, item } in queued {
            let result = self.worker.process(item);
            self.store_result(number, Outcome::Finished(result));
        }
    }
}

impl<W, I, O, T> Drop for SharedWork<W, I, O, T> {
    fn drop(&mut self) {
        // No thread should start to process an obsolete item.
        let mut state = self.queue.lock();
        let unwanted = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.results));
        drop(state);
        // The `Drop` of a result may be user code.
        drop_contained(unwanted);
    }
}

impl<W, I, O, T> fmt::Debug for SharedWork<W, I, O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedWork")
            .field("unfinished_count", &self.unfinished_count)
            .field("held_bytes", &self.held_bytes)
            .finish_non_exhaustive()
    }
}

impl<T, O> Position<T, O> {
    fn is_pending(&self) -> bool {
        matches!(self.outcome, Outcome::Pending)
    }
}

impl<I, O> WorkQueue<I, O> {
    fn lock(&self) -> MutexGuard<'_, State<I, O>> {
        // No user code runs under this lock.
        self.state.lock()
    }

    /// Waits until a helper has delivered results, or no helper is busy.
    fn wait_for_result(&self, mut state: MutexGuard<'_, State<I, O>>, fault: Fault) {
        let unfinished = |state: &mut State<I, O>| state.results.is_empty() && state.busy_helpers > 0;
        if inject!(fault, WaitUnchecked) {
            drop(state);
            self.result_ready.wait(&mut self.lock());
            return;
        }
        self.result_ready.wait_while(&mut state, unfinished);
    }
}

impl<I, O> State<I, O> {
    /// Takes the oldest items for processing.
    fn take<W: Worker<I, O>>(&mut self) -> Vec<QueuedItem<I>> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < CHUNK_BYTES
            && let Some(queued) = self.waiting.pop_front()
        {
            bytes += W::bytes(&queued.item);
            taken.push(queued);
        }
        self.bytes -= bytes;
        taken
    }
}

/// Helper, which processes queued items on another thread.
struct Helper<W, I, O> {
    worker: W,
    queue: Arc<WorkQueue<I, O>>,
    fault: Fault,
}

impl<W: Worker<I, O>, I, O> Helper<W, I, O> {
    /// Processes some queued items. Returns true if more may be queued.
    fn process_some(&mut self) -> bool {
        let taken = {
            let mut state = self.queue.lock();
            let taken = state.take::<W>();
            state.busy_helpers += usize::from(!taken.is_empty());
            taken
        };
        if taken.is_empty() {
            return false;
        }
        let results: Vec<_> =
            taken.into_iter().map(|QueuedItem { number, item }| (number, self.worker.process(item))).collect();
        // `busy_helpers` decreases under the lock that delivers the results, so that the submitting thread sees either a busy
        // helper or its results.
        let mut state = self.queue.lock();
        state.busy_helpers -= 1;
        state.results.extend(results);
        drop(state);
        if !inject!(self.fault, ResultNotNotified) {
            self.queue.result_ready.notify_one();
        }
        true
    }
}

impl<W, I, O> Drop for Helper<W, I, O> {
    fn drop(&mut self) {
        self.queue.lock().helper_count -= 1;
    }
}
