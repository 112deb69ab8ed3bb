//! Queue of keys. Each key is processed by one worker at a time.

#[cfg(feature = "metrics")]
mod metrics;
mod order;
mod retries;
mod schedule;
mod stats;
mod sync;

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use steadfast::environment::{Instant, SharedEnvironment};
use tokio::sync::Notify;

use retries::TokenBucket;
use schedule::{HashedKey, KeyNumber, NextKey, Schedule};
use sync::{Mutex, MutexGuard};

pub use order::Priority;
pub use retries::{RateLimit, RetrySettings};
pub use stats::{Durations, WorkqueueStats};

/// Queue of keys for any number of workers, like client-go's rate-limiting workqueue. Cheap to clone.
///
/// - One worker at a time processes a key. Additions in the meantime are merged into one more run.
/// - A key occupies one entry, so memory depends on the number of keys, not of additions.
/// - Dropping a [`Work`], also by a panic of its worker, ends the work. No key is lost or locked.
/// - The most urgent ready key is next ([`Priority`]). After 16 more urgent keys in a row, one less urgent key is
///   taken.
/// - Within a priority, groups take turns ([`fairness_key`](WorkqueueBuilder::fairness_key)). The keys of a group come
///   in insertion order.
///
/// ```no_run
/// # use steadfast::{Connection, ObjectKey};
/// # use steadfast_controller::Workqueue;
/// # async fn process(key: &ObjectKey) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn example(connection: Connection, key: ObjectKey) {
/// let queue = Workqueue::<ObjectKey>::new(connection.environment().clone());
/// queue.add(key);
/// // Any number of tasks can run this loop. `None` follows `shut_down`.
/// while let Some(work) = queue.next().await {
///     match process(&work).await {
///         Ok(()) => work.finish(),
///         // Returns the delay, which doubles with each failure of the key.
///         Err(error) => eprintln!("{error}; again in {:?}", work.retry()),
///     }
/// }
/// # }
/// ```
pub struct Workqueue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    environment: SharedEnvironment,
    hasher: RandomState,
    group: Option<FairnessKeyFn<T>>,
    state: Mutex<State<T>>,
    /// Wakes one task that waits for a key.
    ready: Notify,
    /// Wakes the worker with the timer after an earlier delay was added.
    earlier_delay: Notify,
    /// Wakes tasks that wait for an empty queue.
    emptied: Notify,
}

/// Function that returns the fairness key of a key.
pub(crate) type FairnessKeyFn<T> = Box<dyn Fn(&T) -> u64 + Send + Sync>;

struct State<T> {
    schedule: Schedule<T>,
    /// True if a waiting worker has the timer: it sleeps at most until the first delay expires.
    has_timer_worker: bool,
}

/// Builder of a [`Workqueue`].
pub struct WorkqueueBuilder<T> {
    environment: SharedEnvironment,
    retries: RetrySettings,
    limit: Option<RateLimit>,
    group: Option<FairnessKeyFn<T>>,
}

impl<T: Clone + Eq + Hash> WorkqueueBuilder<T> {
    /// Backoff of a key after each failure. Defaults to 5 ms, doubling up to 1,000 s.
    #[must_use]
    pub fn retries(mut self, retries: RetrySettings) -> Self {
        self.retries = retries;
        self
    }

    /// Rate limit of retries for all keys together. Defaults to 10 per second with a burst of 100; `None` disables the
    /// limit.
    #[must_use]
    pub fn limit(mut self, limit: impl Into<Option<RateLimit>>) -> Self {
        self.limit = limit.into();
        self
    }

    /// Groups keys for fairness: the groups take turns, so that a group with many keys does not delay the others.
    /// `group` runs at each addition and returns the group of a key, for example its namespace. Defaults to one group
    /// for all keys.
    ///
    /// ```
    /// # use steadfast::ObjectKey;
    /// # use steadfast_controller::WorkqueueBuilder;
    /// # fn example(queue: WorkqueueBuilder<ObjectKey>) -> WorkqueueBuilder<ObjectKey> {
    /// queue.fairness_key(|key| key.namespace().map(str::to_owned))
    /// # }
    /// ```
    #[must_use]
    pub fn fairness_key<G: Hash>(mut self, group: impl Fn(&T) -> G + Send + Sync + 'static) -> Self {
        let hasher = RandomState::new();
        self.group = Some(Box::new(move |key| hasher.hash_one(group(key))));
        self
    }

    /// Builds the queue. Starts no task.
    pub fn build(self) -> Workqueue<T> {
        let schedule = Schedule::new(self.retries, self.limit.map(TokenBucket::new));
        let shared = Shared {
            environment: self.environment,
            hasher: RandomState::new(),
            group: self.group,
            state: Mutex::new(State { schedule, has_timer_worker: false }),
            ready: Notify::new(),
            earlier_delay: Notify::new(),
            emptied: Notify::new(),
        };
        Workqueue { shared: Arc::new(shared) }
    }
}

impl<T> fmt::Debug for WorkqueueBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkqueueBuilder")
            .field("retries", &self.retries)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl<T: Clone + Eq + Hash> Workqueue<T> {
    /// Builds a queue with client-go's defaults. `environment` provides time and randomness
    /// ([`Connection::environment`](steadfast::Connection::environment)).
    pub fn new(environment: SharedEnvironment) -> Self {
        Self::builder(environment).build()
    }

    /// Returns a builder of a queue.
    pub fn builder(environment: SharedEnvironment) -> WorkqueueBuilder<T> {
        WorkqueueBuilder {
            environment,
            retries: RetrySettings::default(),
            limit: Some(RateLimit::default()),
            group: None,
        }
    }

    /// Adds a key with normal priority. A key that is already ready is not added again, and keeps the higher priority.
    /// Has no effect after [`shut_down`](Self::shut_down).
    pub fn add(&self, key: T) {
        self.add_with_priority(key, Priority::NORMAL);
    }

    /// Adds a key with `priority`. A ready key keeps the higher priority.
    pub fn add_with_priority(&self, key: T, priority: Priority) {
        let key = self.hashed(key);
        self.with(|state, now| state.schedule.add(key, priority, now));
    }

    /// Adds a key after `delay`. Of two delays of a key, the earlier applies. An immediate addition in the meantime
    /// does not cancel the delayed one.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.add_after_with_priority(key, delay, Priority::NORMAL);
    }

    /// Adds a key after `delay` with `priority`.
    pub fn add_after_with_priority(&self, key: T, delay: Duration, priority: Priority) {
        let key = self.hashed(key);
        self.with(|state, now| state.schedule.add_after(key, priority, delay, now));
    }

    /// Waits for the next key. Returns none after the shutdown, once the queue is empty.
    ///
    /// Cancel-safe: dropping the future loses no key.
    pub async fn next(&self) -> Option<Work<T>> {
        // Fast path without the waiter list.
        if let Some(work) = self.next_ready() {
            return Some(work);
        }
        let mut awaiting = WaitingWorker { shared: &self.shared, has_timer: false };
        loop {
            let mut ready = pin!(self.shared.ready.notified());
            // A key that becomes ready after this point wakes the task.
            ready.as_mut().enable();
            // Only one waiting worker sleeps until the first delay. The others sleep until a key is ready.
            let taken = self.take(&mut awaiting.has_timer);
            sync::interleaving_point();
            match taken {
                TakeResult::Key(work) => return Some(work),
                TakeResult::Closed => return None,
                TakeResult::Nothing => ready.await,
                TakeResult::WaitUntil(due) => tokio::select! {
                    biased;
                    // `earlier_delay` reaches only the worker with the timer.
                    () = ready => {}
                    () = self.shared.earlier_delay.notified() => {}
                    () = self.shared.environment.sleep_until(due) => {}
                },
            }
        }
    }

    /// Returns the next key if one is ready.
    pub(crate) fn next_ready(&self) -> Option<Work<T>> {
        self.with(|state, now| match state.schedule.next(now) {
            NextKey::Key(number, key, priority) => Some(Work::new(self.clone(), number, key, priority)),
            NextKey::Closed | NextKey::Later(_) => None,
        })
    }

    /// Takes the next key. `has_timer` states whether the calling worker has the timer; the call may change it.
    fn take(&self, has_timer: &mut bool) -> TakeResult<T> {
        self.with(|state, now| match state.schedule.next(now) {
            NextKey::Key(number, key, priority) => TakeResult::Key(Work::new(self.clone(), number, key, priority)),
            NextKey::Closed => TakeResult::Closed,
            NextKey::Later(Some(due)) if *has_timer || !state.has_timer_worker => {
                state.has_timer_worker = true;
                *has_timer = true;
                TakeResult::WaitUntil(due)
            }
            NextKey::Later(_) => {
                // No delay exists, or another worker has the timer. If this worker had the timer, it releases the
                // timer.
                state.has_timer_worker &= !*has_timer;
                *has_timer = false;
                TakeResult::Nothing
            }
        })
    }

    /// Returns the number of failures in a row. The queue forgets failures after twice the maximum backoff.
    pub fn failures(&self, key: &T) -> u32 {
        let hash = self.shared.hasher.hash_one(key);
        self.with(|state, _| state.schedule.failures(key, hash))
    }

    /// Forgets the failures of a key and cancels its pending retry.
    pub fn forget(&self, key: &T) {
        let hash = self.shared.hasher.hash_one(key);
        self.with(|state, now| state.schedule.forget(key, hash, now));
    }

    /// Returns the number of ready keys.
    pub fn len(&self) -> usize {
        self.with(|state, _| state.schedule.len())
    }

    /// Returns true if no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of tracked keys: ready, delayed and running keys, and keys with remembered failures.
    pub fn tracked(&self) -> usize {
        self.with(|state, _| state.schedule.tracked())
    }

    /// Returns counters and current state.
    pub fn stats(&self) -> WorkqueueStats {
        self.with(|state, now| state.schedule.stats(now))
    }

    /// Stops accepting keys. Workers still receive the ready keys, and the keys that were added again while they were
    /// running. Afterwards [`next`](Self::next) returns none. Drops delayed keys and returns their number.
    pub fn shut_down(&self) -> usize {
        self.with(|state, now| state.schedule.close(now))
    }

    /// Returns true after [`shut_down`](Self::shut_down).
    pub fn is_shut_down(&self) -> bool {
        self.with(|state, _| state.schedule.is_closed())
    }

    /// Shuts down and waits until all ready and running keys are processed, for at most `timeout`. Returns the number
    /// of dropped delayed keys.
    ///
    /// # Errors
    ///
    /// Returns the remaining work on a timeout. The workers continue.
    pub async fn drain(&self, timeout: Duration) -> Result<usize, NotDrained> {
        let delayed = self.shut_down();
        let environment = &self.shared.environment;
        let mut deadline = pin!(environment.sleep_until(environment.now() + timeout));
        let mut is_expired = false;
        loop {
            let mut emptied = pin!(self.shared.emptied.notified());
            emptied.as_mut().enable();
            let WorkqueueStats { depth: queued, running, longest_running, .. } = self.stats();
            if queued == 0 && running == 0 {
                return Ok(delayed);
            }
            if is_expired {
                return Err(NotDrained { queued, running, longest_running, delayed, timeout });
            }
            tokio::select! {
                biased;
                () = emptied => {}
                () = &mut deadline => is_expired = true,
            }
        }
    }

    /// Computes hash and group of a key. Both run user code, so the caller must not hold the lock of the queue.
    fn hashed(&self, key: T) -> HashedKey<T> {
        let hash = self.shared.hasher.hash_one(&key);
        let group = self.shared.group.as_ref().map_or(0, |group| group(&key));
        HashedKey { key, hash, group }
    }

    /// Runs `operation` on the state, after all expired delays took effect, and wakes the affected tasks.
    fn with<R>(&self, operation: impl FnOnce(&mut State<T>, Instant) -> R) -> R {
        let mut state = self.shared.lock();
        // Reading the clock under the lock keeps times monotonic across callers.
        let now = self.shared.environment.now();
        let (was_finished, was_done) = state.completion_flags();
        // Due delays become ready before the operation, so that the operation sees the current state.
        state.schedule.apply_due(now);
        let due = state.schedule.next_due();
        let result = operation(&mut state, now);
        let (is_finished, is_done) = state.completion_flags();
        let is_earlier = state.schedule.next_due().is_some_and(|next| due.is_none_or(|due| next < due));
        let has_timer_worker = state.has_timer_worker;
        let (newly_ready, dropped) = (state.schedule.take_newly_ready(), state.schedule.take_dropped());
        drop(state);
        // Wakes one worker per newly ready key. Other idle workers stay asleep.
        for _ in 0..newly_ready {
            self.shared.ready.notify_one();
        }
        // If the first delay is earlier than before, the worker with the timer must shorten the timer. Without such a
        // worker, any waiting worker is woken and takes the timer.
        match has_timer_worker {
            _ if !is_earlier => {}
            true => self.shared.earlier_delay.notify_one(),
            false => self.shared.ready.notify_one(),
        }
        if is_finished && !was_finished {
            self.shared.ready.notify_waiters();
        }
        if is_done && !was_done {
            self.shared.emptied.notify_waiters();
        }
        // Keys are user types with destructors. They drop after the lock is released, and after all wake-ups: a panic
        // of a destructor must not leave ready keys without a worker.
        drop(dropped);
        result
    }
}

impl<T: Clone + Eq> State<T> {
    /// Returns two flags. The first is true if no key can become ready again; the second, if in addition no key is
    /// running.
    fn completion_flags(&self) -> (bool, bool) {
        let is_finished = self.schedule.is_finished();
        (is_finished, is_finished && self.schedule.is_empty())
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        sync::lock(&self.state)
    }
}

impl<T> Clone for Workqueue<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T: Clone + Eq + Hash> fmt::Debug for Workqueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkqueueStats { depth, delayed, running, .. } = self.stats();
        let mut debug = f.debug_struct("Workqueue");
        debug.field("depth", &depth).field("delayed", &delayed).field("running", &running).finish_non_exhaustive()
    }
}

/// Result of taking the next key.
enum TakeResult<T: Clone + Eq + Hash> {
    Key(Work<T>),
    Closed,
    /// No key is ready. Another worker has the timer, or no delay exists.
    Nothing,
    /// No key is ready before this instant, and the caller has the timer.
    WaitUntil(Instant),
}

/// Worker that waits for a key.
struct WaitingWorker<'a, T> {
    shared: &'a Shared<T>,
    /// True if this worker has the timer.
    has_timer: bool,
}

impl<T> Drop for WaitingWorker<'_, T> {
    fn drop(&mut self) {
        if !self.has_timer {
            return;
        }
        let mut state = self.shared.lock();
        state.has_timer_worker = false;
        let is_delayed = state.schedule.next_due().is_some();
        drop(state);
        if is_delayed {
            // Another worker must take the timer.
            self.shared.ready.notify_one();
        }
    }
}

/// Key in processing, until this value is dropped. Dereferences to the key.
///
/// A plain drop reports no outcome, like client-go's `Done`. [`finish`](Self::finish) corresponds to `Forget` and
/// `Done`, [`retry`](Self::retry) to `AddRateLimited` and `Done`.
#[must_use = "the work on the key ends when this is dropped"]
pub struct Work<T: Clone + Eq + Hash> {
    queue: Workqueue<T>,
    number: KeyNumber,
    key: T,
    priority: Priority,
    /// True if [`finish`](Self::finish) ended the work.
    is_done: bool,
}

impl<T: Clone + Eq + Hash> Work<T> {
    fn new(queue: Workqueue<T>, number: KeyNumber, key: T, priority: Priority) -> Self {
        Self { queue, number, key, priority, is_done: false }
    }

    /// Returns the key.
    pub fn key(&self) -> &T {
        &self.key
    }

    /// Returns the priority of this run.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Ends the work successfully: forgets the failures of the key and cancels its pending retry.
    pub fn finish(mut self) {
        self.is_done = true;
    }

    /// Ends the work as failed: requeues the key with backoff, and returns the delay. The delay doubles with each
    /// failure, and increases further if all keys together exceed the rate limit.
    pub fn retry(self) -> Duration {
        let random = self.queue.shared.environment.random();
        // The key stays marked as running until `Drop`, so the retry cannot start concurrently.
        self.queue.with(|state, now| state.schedule.retry(self.number, self.priority, now, random))
    }

    /// Ends the work successfully and requeues the key after `delay` at the latest.
    pub fn requeue_after(self, delay: Duration) {
        // An explicit requeue is a success: the failure count restarts.
        self.queue.with(|state, _| state.schedule.forget_number(self.number));
        self.queue.add_after_with_priority(self.key.clone(), delay, self.priority);
    }
}

impl<T: Clone + Eq + Hash> Deref for Work<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.key
    }
}

impl<T: Clone + Eq + Hash> Drop for Work<T> {
    fn drop(&mut self) {
        self.queue.with(|state, now| {
            // Without `finish` the failure count stays, as after a cancelled reconcile.
            if self.is_done {
                state.schedule.forget_number(self.number);
            }
            state.schedule.done(self.number, now);
        });
    }
}

impl<T: Clone + Eq + Hash + fmt::Debug> fmt::Debug for Work<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("key", &self.key).field("priority", &self.priority).finish_non_exhaustive()
    }
}

/// Prometheus collector for queues, under client-go's names. Register one collector for all queues of a program.
///
/// ```
/// # use steadfast_controller::{Workqueue, WorkqueueMetrics};
/// # fn example(pods: &Workqueue<String>, nodes: &Workqueue<String>) {
/// let metrics = WorkqueueMetrics::default().with("pods", pods).with("nodes", nodes);
/// let mut registry = prometheus_client::registry::Registry::default();
/// registry.register_collector(Box::new(metrics));
/// # }
/// ```
///
/// The collector does not keep a queue alive. The next scrape omits a dropped queue. Give each queue a unique name,
/// because a scrape rejects duplicate series.
#[cfg(feature = "metrics")]
#[derive(Default)]
pub struct WorkqueueMetrics(metrics::Queues);

#[cfg(feature = "metrics")]
impl WorkqueueMetrics {
    /// Adds `queue` with the label `name`.
    #[must_use]
    pub fn with<T>(mut self, name: impl Into<String>, queue: &Workqueue<T>) -> Self
    where
        T: Clone + Eq + Hash + Send + 'static,
    {
        let queue = Arc::downgrade(&queue.shared);
        self.0.add(name.into(), Box::new(move || Some(Workqueue { shared: queue.upgrade()? }.stats())));
        self
    }
}

#[cfg(feature = "metrics")]
impl prometheus_client::collector::Collector for WorkqueueMetrics {
    fn encode(&self, encoder: prometheus_client::encoding::DescriptorEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }
}

#[cfg(feature = "metrics")]
impl fmt::Debug for WorkqueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkqueueMetrics").field("queues", &self.0.len()).finish()
    }
}

/// Error of a drain that timed out.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "the drain timed out after {timeout:?}: {queued} keys are queued and {running} running, the longest for \
     {longest_running:?}; drain again, or drop the workers"
)]
pub struct NotDrained {
    /// Number of keys that were ready, and of running keys that were added again.
    pub queued: usize,
    /// Number of running keys.
    pub running: usize,
    /// Duration of the longest run so far.
    pub longest_running: Duration,
    /// Number of delayed keys that were dropped.
    pub delayed: usize,
    /// The timeout.
    pub timeout: Duration,
}

debug_as_message!(NotDrained);
