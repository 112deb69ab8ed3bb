//! A queue of keys that are to be worked on: of each, one call at a time, and none forgotten.

mod figures;
#[cfg(feature = "metrics")]
mod metrics;
mod order;
mod retries;
mod schedule;
mod sync;

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use steadfast::environment::{Instant, SharedEnvironment};
use tokio::sync::Notify;

use retries::Bucket;
use schedule::{Named, Next, Number, Schedule};
use sync::{Mutex, MutexGuard};

pub use figures::{Durations, WorkqueueStats};
pub use order::Priority;
pub use retries::{RateLimit, RetrySettings};

/// Keys that are to be worked on, as client-go's rate-limiting workqueue has them, for any number of workers. Cheap to clone.
///
/// - A key is worked on by one worker at a time. Added meanwhile, it is worked on once more, however often it was added.
/// - A key takes up one place: memory is bounded by the keys, not by the additions.
/// - A worker that is dropped with its [`Work`], or panics with it, has ended it: no key is lost or locked by that.
/// - Of what is ready the most urgent is next ([`Priority`]), and after sixteen of them one of the others; among equals each
///   group has its turn ([`fairness_key`](WorkqueueBuilder::fairness_key)), and within a group the first that came.
pub struct Workqueue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    environment: SharedEnvironment,
    hasher: RandomState,
    group: Option<Group<T>>,
    state: Mutex<State<T>>,
    /// Calls one of those that wait for a key.
    ready: Notify,
    /// Calls the one that waits for the first delay: another one is over sooner.
    sooner: Notify,
    /// Calls those who wait until all is done.
    emptied: Notify,
}

type Group<T> = Box<dyn Fn(&T) -> u64 + Send + Sync>;

struct State<T> {
    schedule: Schedule<T>,
    /// Whether somebody waits for the first delay: one of those that wait for a key, if there are any.
    is_awaited: bool,
}

/// What a [`Workqueue`] is made of.
pub struct WorkqueueBuilder<T> {
    environment: SharedEnvironment,
    retries: RetrySettings,
    limit: Option<RateLimit>,
    group: Option<Group<T>>,
}

impl<T: Clone + Eq + Hash> WorkqueueBuilder<T> {
    /// How long a key waits after each of its failures.
    #[must_use]
    pub fn retries(mut self, retries: RetrySettings) -> Self {
        self.retries = retries;
        self
    }

    /// How many retries there may be, all keys together; none for as many as the keys' own waits allow.
    #[must_use]
    pub fn limit(mut self, limit: impl Into<Option<RateLimit>>) -> Self {
        self.limit = limit.into();
        self
    }

    /// Gives each group of keys its turn, so that one with much to do does not keep the others waiting: `group` says of
    /// which group a key is, by its namespace for instance. It is called at each addition.
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

    /// The queue.
    pub fn build(self) -> Workqueue<T> {
        let schedule = Schedule::new(self.retries, self.limit.map(Bucket::new));
        let shared = Shared {
            environment: self.environment,
            hasher: RandomState::new(),
            group: self.group,
            state: Mutex::new(State { schedule, is_awaited: false }),
            ready: Notify::new(),
            sooner: Notify::new(),
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
    /// A queue with client-go's defaults, which takes time and randomness from `environment`
    /// ([`Connection::environment`](steadfast::Connection::environment)).
    pub fn new(environment: SharedEnvironment) -> Self {
        Self::builder(environment).build()
    }

    /// A queue, with more to say about it.
    pub fn builder(environment: SharedEnvironment) -> WorkqueueBuilder<T> {
        WorkqueueBuilder {
            environment,
            retries: RetrySettings::default(),
            limit: Some(RateLimit::default()),
            group: None,
        }
    }

    /// Adds a key, unless it is ready already; nothing happens after [`shut_down`](Self::shut_down).
    pub fn add(&self, key: T) {
        self.add_with(key, Priority::NORMAL);
    }

    /// Adds a key with a priority. One that is ready already gets the higher of both.
    pub fn add_with(&self, key: T, priority: Priority) {
        let key = self.named(key);
        self.with(|state, now| state.schedule.add(key, priority, now));
    }

    /// Adds a key when `delay` is over. Of two delays of a key the one that is over first counts; that it is added in
    /// between changes neither.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.add_after_with(key, delay, Priority::NORMAL);
    }

    /// The same with a priority.
    pub fn add_after_with(&self, key: T, delay: Duration, priority: Priority) {
        let key = self.named(key);
        self.with(|state, now| state.schedule.add_after(key, priority, delay, now));
    }

    /// Waits for the next key; none once the queue is shut down and nothing is left in it.
    ///
    /// Nothing is lost where this is given up before it has returned.
    pub async fn next(&self) -> Option<Work<T>> {
        // Without a word to those who wait, as long as nobody has to.
        if let Some(work) = self.next_ready() {
            return Some(work);
        }
        let mut awaiting = Awaiting { shared: &self.shared, is_first: false };
        loop {
            let mut ready = pin!(self.shared.ready.notified());
            // From here on nothing that becomes ready is missed.
            ready.as_mut().enable();
            let taken = self.take(&mut awaiting.is_first);
            sync::between();
            match taken {
                Taken::Key(work) => return Some(work),
                Taken::Over => return None,
                Taken::Nothing => ready.await,
                Taken::NothingUntil(due) => tokio::select! {
                    biased;
                    () = ready => {}
                    () = self.shared.sooner.notified() => {}
                    () = self.shared.environment.sleep_until(due) => {}
                },
            }
        }
    }

    /// The next key, if one is ready.
    pub(crate) fn next_ready(&self) -> Option<Work<T>> {
        self.with(|state, now| match state.schedule.next(now) {
            Next::Key(number, key, priority) => Some(Work::new(self.clone(), number, key, priority)),
            Next::Over | Next::Later(_) => None,
        })
    }

    /// Takes what is next; `is_first` says whether whoever asks is the one that waits for the first delay, and is to.
    fn take(&self, is_first: &mut bool) -> Taken<T> {
        self.with(|state, now| match state.schedule.next(now) {
            Next::Key(number, key, priority) => Taken::Key(Work::new(self.clone(), number, key, priority)),
            Next::Over => Taken::Over,
            Next::Later(Some(due)) if *is_first || !state.is_awaited => {
                state.is_awaited = true;
                *is_first = true;
                Taken::NothingUntil(due)
            }
            Next::Later(_) => {
                state.is_awaited &= !*is_first;
                *is_first = false;
                Taken::Nothing
            }
        })
    }

    /// How often a key has failed in a row, as far as that is remembered: for twice the longest wait.
    pub fn failures(&self, key: &T) -> u32 {
        let hash = self.shared.hasher.hash_one(key);
        self.with(|state, _| state.schedule.failures(key, hash))
    }

    /// Forgets the failures of a key, and with them the retry that it waits for.
    pub fn forget(&self, key: &T) {
        let hash = self.shared.hasher.hash_one(key);
        self.with(|state, now| state.schedule.forget(key, hash, now));
    }

    /// How many keys are ready.
    pub fn len(&self) -> usize {
        self.with(|state, _| state.schedule.len())
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys something is known of: those that are ready, delayed or worked on, and those whose failures are
    /// remembered.
    pub fn known(&self) -> usize {
        self.with(|state, _| state.schedule.known())
    }

    /// What it has done, and how it is.
    pub fn figures(&self) -> WorkqueueStats {
        self.with(|state, now| state.schedule.figures(now))
    }

    /// Takes no more keys. What is ready is still given out, and so is what was added while it is worked on; then
    /// [`next`](Self::next) answers none. What is delayed is let go of: returns how many keys that were.
    pub fn shut_down(&self) -> usize {
        self.with(|state, now| state.schedule.close(now))
    }

    /// Whether it takes no more keys.
    pub fn is_shut_down(&self) -> bool {
        self.with(|state, _| state.schedule.is_closed())
    }

    /// Shuts down, and waits until all that is ready has been given out and all work has ended, for `patience` at most.
    /// Returns how many keys were delayed, and let go of.
    ///
    /// # Errors
    ///
    /// What is left when that is over. It goes on, unless the workers end.
    pub async fn drain(&self, patience: Duration) -> Result<usize, NotDrained> {
        let delayed = self.shut_down();
        let environment = &self.shared.environment;
        let mut over = pin!(environment.sleep_until(environment.now() + patience));
        let mut is_over = false;
        loop {
            let mut emptied = pin!(self.shared.emptied.notified());
            emptied.as_mut().enable();
            let WorkqueueStats { depth: queued, running, longest_running, .. } = self.figures();
            if queued == 0 && running == 0 {
                return Ok(delayed);
            }
            if is_over {
                return Err(NotDrained { queued, running, longest_running, delayed, patience });
            }
            tokio::select! {
                biased;
                () = emptied => {}
                () = &mut over => is_over = true,
            }
        }
    }

    /// The key with what the user's code says of it, which runs before the lock is held.
    fn named(&self, key: T) -> Named<T> {
        let hash = self.shared.hasher.hash_one(&key);
        let group = self.shared.group.as_ref().map_or(0, |group| group(&key));
        Named { key, hash, group }
    }

    /// Has a look or a hand at the state, in which all has happened by then whose time has come; and calls those whom
    /// that concerns.
    fn with<R>(&self, act: impl FnOnce(&mut State<T>, Instant) -> R) -> R {
        let mut state = self.shared.lock();
        // In this order, so that nobody has an earlier time than one before.
        let now = self.shared.environment.now();
        let (was_over, was_done) = state.ended();
        state.schedule.wake(now);
        let due = state.schedule.next_due();
        let result = act(&mut state, now);
        let (is_over, is_done) = state.ended();
        let is_sooner = state.schedule.next_due().is_some_and(|next| due.is_none_or(|due| next < due));
        let is_awaited = state.is_awaited;
        let (fresh, gone) = (state.schedule.fresh(), state.schedule.gone());
        drop(state);
        drop(gone);
        for _ in 0..fresh {
            self.shared.ready.notify_one();
        }
        // Somebody is to wait for the first delay, and until that.
        match is_awaited {
            _ if !is_sooner => {}
            true => self.shared.sooner.notify_one(),
            false => self.shared.ready.notify_one(),
        }
        if is_over && !was_over {
            self.shared.ready.notify_waiters();
        }
        if is_done && !was_done {
            self.shared.emptied.notify_waiters();
        }
        result
    }
}

impl<T: Clone + Eq> State<T> {
    /// Whether nothing will be ready any more, and whether nothing is worked on either.
    fn ended(&self) -> (bool, bool) {
        let is_over = self.schedule.is_over();
        (is_over, is_over && self.schedule.is_empty())
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Workqueue<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T: Clone + Eq + Hash> fmt::Debug for Workqueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkqueueStats { depth, delayed, running, .. } = self.figures();
        let mut debug = f.debug_struct("Workqueue");
        debug.field("depth", &depth).field("delayed", &delayed).field("running", &running).finish_non_exhaustive()
    }
}

/// What somebody has who asks for a key.
enum Taken<T: Clone + Eq + Hash> {
    Key(Work<T>),
    Over,
    /// Nothing; another one waits for the first delay, if there is one.
    Nothing,
    /// Nothing before the first delay is over, and nobody else waits for that.
    NothingUntil(Instant),
}

/// One that waits for a key.
struct Awaiting<'a, T> {
    shared: &'a Shared<T>,
    /// Whether it waits for the first delay too.
    is_first: bool,
}

impl<T> Drop for Awaiting<'_, T> {
    fn drop(&mut self) {
        if !self.is_first {
            return;
        }
        let mut state = self.shared.lock();
        state.is_awaited = false;
        let is_delayed = state.schedule.next_due().is_some();
        drop(state);
        if is_delayed {
            // Another one is to wait for that.
            self.shared.ready.notify_one();
        }
    }
}

/// A key that is worked on, until this is dropped. It derefs to the key.
///
/// Dropped as it is, it ends without a word on how it went: client-go's `Done`. [`finish`](Self::finish) is `Forget` and
/// `Done`, [`retry`](Self::retry) `AddRateLimited` and `Done`.
#[must_use = "the work on the key ends when this is dropped"]
pub struct Work<T: Clone + Eq + Hash> {
    queue: Workqueue<T>,
    number: Number,
    key: T,
    priority: Priority,
    /// Whether it has ended as done.
    is_done: bool,
}

impl<T: Clone + Eq + Hash> Work<T> {
    fn new(queue: Workqueue<T>, number: Number, key: T, priority: Priority) -> Self {
        Self { queue, number, key, priority, is_done: false }
    }

    /// The key.
    pub fn key(&self) -> &T {
        &self.key
    }

    /// The priority that it was given out with.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Ends the work as done: the failures of the key are forgotten, and with them a retry that it waits for.
    pub fn finish(mut self) {
        self.is_done = true;
    }

    /// Ends the work as failed: the key is added again after a wait, which is returned. That doubles with each failure,
    /// and is longer where all keys together fail too often.
    pub fn retry(self) -> Duration {
        let random = self.queue.shared.environment.random();
        self.queue.with(|state, now| state.schedule.retry(self.number, self.priority, now, random))
    }

    /// Ends the work as done, and has the key worked on again when `delay` is over at the latest.
    pub fn requeue_after(self, delay: Duration) {
        self.queue.with(|state, _| state.schedule.forget_number(self.number));
        self.queue.add_after_with(self.key.clone(), delay, self.priority);
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

/// The metrics of some queues, under client-go's names; to be registered once for all queues of a program.
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
/// It keeps no queue alive: one that is gone is gone from the next scrape. Two queues of one name would be the same series
/// twice, which a scrape refuses: give each its own.
#[cfg(feature = "metrics")]
#[derive(Default)]
pub struct WorkqueueMetrics(metrics::Queues);

#[cfg(feature = "metrics")]
impl WorkqueueMetrics {
    /// These and those of `queue`, with `name` as their label.
    #[must_use]
    pub fn with<T>(mut self, name: impl Into<String>, queue: &Workqueue<T>) -> Self
    where
        T: Clone + Eq + Hash + Send + 'static,
    {
        let queue = Arc::downgrade(&queue.shared);
        self.0.add(name.into(), Box::new(move || Some(Workqueue { shared: queue.upgrade()? }.figures())));
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

/// A queue was not empty when it was to be.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "after {patience:?} {queued} keys were still queued and {running} worked on, the longest for {longest_running:?}; they go on \
     as long as their workers do: drain again, or drop the workers"
)]
pub struct NotDrained {
    /// Keys that were ready, or to be worked on again.
    pub queued: usize,
    /// Keys that were worked on.
    pub running: usize,
    /// How long the longest of these had taken so far.
    pub longest_running: Duration,
    /// Keys that were delayed, and let go of.
    pub delayed: usize,
    /// How long it was waited.
    pub patience: Duration,
}

debug_as_message!(NotDrained);
