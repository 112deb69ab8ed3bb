//! Runs one handler: its queue, its calls, its panics; nobody else waits for it (C7, C8).

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use steadfast_core::ObjectKey;
use steadfast_core::breach::{Breach, Breaches};
use steadfast_core::event::Change;
use steadfast_core::queue::{Delivery, DeliveryQueue};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::environment::SharedEnvironment;
use crate::handler::{BoxedAsyncHandler, Call, Handler};

/// How often a call that panicked is made again before its event is counted and skipped (C3).
const RETRIES: u32 = 3;

/// How a handler is called.
pub(crate) enum Mode<K> {
    /// On threads taken on demand.
    Sync(Arc<dyn Handler<K>>),
    /// On the runtime that was current at registration.
    Async(Arc<dyn BoxedAsyncHandler<K>>, Handle),
    /// Not at all: someone takes the events when they like, woken by this.
    Pulled(tokio::sync::Notify),
}

/// The counts of a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerCounts {
    /// Calls that returned.
    pub returned: u64,
    /// Calls that panicked.
    pub panicked: u64,
    /// Events given up after their retries.
    pub skipped: u64,
    /// Entries that wait or are being told.
    pub entries: usize,
    /// Calls that are running.
    pub running: usize,
}

/// One handler of an informer.
pub(crate) struct Runner<K> {
    mode: Mode<K>,
    concurrency: usize,
    environment: SharedEnvironment,
    state: Mutex<State<K>>,
    /// Whether the handler has returned from every object of its first view (C9).
    synced: watch::Sender<bool>,
    closed: AtomicBool,
    returned: AtomicU64,
    panicked: AtomicU64,
    skipped: AtomicU64,
}

struct State<K> {
    queue: DeliveryQueue<K>,
    /// The whole first view is in the queue, or was.
    viewed: bool,
    workers: usize,
}

impl<K: Send + Sync + 'static> Runner<K> {
    pub(crate) fn new(
        mode: Mode<K>,
        concurrency: usize,
        environment: SharedEnvironment,
        breaches: Breaches,
    ) -> Arc<Self> {
        let concurrency = if breaches.commit(Breach::OverlappingCalls) { 8 } else { concurrency.max(1) };
        Arc::new(Self {
            mode,
            concurrency,
            environment,
            state: Mutex::new(State { queue: DeliveryQueue::new(breaches), viewed: false, workers: 0 }),
            synced: watch::Sender::new(false),
            closed: AtomicBool::new(false),
            returned: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        })
    }

    /// Takes in changes; `viewed` says that the first view is complete with them.
    pub(crate) fn push(self: &Arc<Self>, changes: impl IntoIterator<Item = Change<K>>, viewed: bool) {
        if self.is_closed() {
            return;
        }
        {
            let mut state = self.lock();
            changes.into_iter().for_each(|change| state.queue.push(change));
            state.viewed |= viewed;
            self.tell_sync(&state);
        }
        self.start();
    }

    /// Starts workers for what waits, as many as the handler allows.
    fn start(self: &Arc<Self>) {
        if let Mode::Pulled(notify) = &self.mode {
            notify.notify_one();
            return;
        }
        loop {
            let delivery = {
                let mut state = self.lock();
                if state.workers >= self.concurrency {
                    return;
                }
                let Some(delivery) = state.queue.pop() else { return };
                state.workers += 1;
                delivery
            };
            let worker = Worker { runner: self.clone(), finished: false };
            match &self.mode {
                Mode::Sync(handler) => {
                    let handler = handler.clone();
                    self.environment.run_blocking(Box::new(move || worker.run(&*handler, delivery)));
                }
                Mode::Async(handler, runtime) => {
                    let handler = handler.clone();
                    runtime.spawn(async move { worker.run_async(&*handler, delivery).await });
                }
                Mode::Pulled(_) => {}
            }
        }
    }

    /// Takes the next event for someone who pulls.
    pub(crate) fn pull(&self) -> Option<Delivery<K>> {
        let mut state = self.lock();
        let delivery = state.queue.pop()?;
        state.queue.done(&delivery.key);
        self.tell_sync(&state);
        Some(delivery)
    }

    /// What wakes someone who pulls.
    pub(crate) fn pulled(&self) -> Option<&tokio::sync::Notify> {
        match &self.mode {
            Mode::Pulled(notify) => Some(notify),
            Mode::Sync(_) | Mode::Async(..) => None,
        }
    }

    /// The call for `key` is over; takes the next one for the same worker.
    fn next(&self, key: &ObjectKey) -> Option<Delivery<K>> {
        let mut state = self.lock();
        state.queue.done(key);
        self.tell_sync(&state);
        if self.is_closed() {
            return None;
        }
        state.queue.pop()
    }

    /// Takes no more changes and makes no more calls; those running are left to themselves.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Mode::Pulled(notify) = &self.mode {
            notify.notify_one();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// What was not told.
    pub(crate) fn undelivered(&self) -> usize {
        self.lock().queue.undelivered()
    }

    /// Whether nothing waits and no call runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().queue.is_empty()
    }

    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    pub(crate) fn counts(&self) -> HandlerCounts {
        let state = self.lock();
        HandlerCounts {
            returned: self.returned.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            entries: state.queue.len(),
            running: state.workers,
        }
    }

    fn tell_sync(&self, state: &State<K>) {
        if state.viewed && state.queue.initial_left() == 0 {
            self.synced.send_if_modified(|synced| !std::mem::replace(synced, true));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<K>> {
        // No handler runs under this lock, so a poisoned one is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the call that panicked is made again.
    fn panicked(&self, key: &ObjectKey, retry: u32) -> bool {
        self.panicked.fetch_add(1, Ordering::Relaxed);
        let again = retry < RETRIES && !self.is_closed();
        if again {
            tracing::warn!(%key, retry, "a handler panicked; it is called again with the same event");
        } else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%key, retries = retry, "a handler panicked again; the event is skipped and counted");
        }
        again
    }
}

/// A call that is running, and the right to make the next ones.
struct Worker<K: Send + Sync + 'static> {
    runner: Arc<Runner<K>>,
    finished: bool,
}

impl<K: Send + Sync + 'static> Worker<K> {
    fn run(mut self, handler: &dyn Handler<K>, first: Delivery<K>) {
        let mut next = Some(first);
        while let Some(Delivery { key, event }) = next {
            let mut retry = 0;
            loop {
                let event = event.clone();
                let call = Call { retry };
                match std::panic::catch_unwind(AssertUnwindSafe(|| handler.handle(event, call))) {
                    Ok(()) => {
                        self.runner.returned.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    Err(_) if self.runner.panicked(&key, retry) => retry += 1,
                    Err(_) => break,
                }
            }
            next = self.runner.next(&key);
        }
        self.finished = true;
    }

    async fn run_async(mut self, handler: &dyn BoxedAsyncHandler<K>, first: Delivery<K>) {
        let mut next = Some(first);
        while let Some(Delivery { key, event }) = next {
            let mut retry = 0;
            loop {
                let event = event.clone();
                let call = Call { retry };
                let made = AssertUnwindSafe(async { handler.handle(event, call).await }).catch_unwind().await;
                match made {
                    Ok(()) => {
                        self.runner.returned.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    Err(_) if self.runner.panicked(&key, retry) => retry += 1,
                    Err(_) => break,
                }
            }
            next = self.runner.next(&key);
        }
        self.finished = true;
    }
}

impl<K: Send + Sync + 'static> Drop for Worker<K> {
    fn drop(&mut self) {
        self.runner.lock().workers -= 1;
        if self.runner.is_closed() {
            return;
        }
        if self.finished {
            // A change may have come between the last look into the queue and the line above.
            self.runner.start();
        } else {
            tracing::error!("the async runtime of a handler has ended; the handler is told nothing more");
            self.runner.close();
        }
    }
}
