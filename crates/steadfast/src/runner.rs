//! Runner of one handler: its queue, calls and panics, independent of other handlers (C7, C8).

mod call_context;
mod call_times;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
#[cfg(feature = "metrics")]
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use steadfast_core::event::{Change, Event};
use steadfast_core::fault_injection::{FaultInjection, inject};
use steadfast_core::queue::{Delivery, DeliveryQueue};
use steadfast_core::{Instant, Object, ObjectKey};
use steadfast_executor::drop_contained;
use tokio::sync::{Notify, watch};

use crate::environment::SharedEnvironment;
use crate::handler::{BoxedAsyncHandler, Call, Handler};
use crate::handler_options::{HandlerOptions, Mode};
#[cfg(feature = "metrics")]
use crate::handler_stats::HandlerReading;
use crate::handler_stats::HandlerStats;
use call_times::CallTimes;

/// Number of retries of a call that panicked, before its event is counted and skipped (C3).
const MAX_RETRIES: u32 = 3;

/// One handler, of one or more informers.
pub(crate) struct Runner<K> {
    /// Names of the informers, for display.
    informer: String,
    /// Name from the handler's builder.
    name: Option<Arc<str>>,
    concurrency: usize,
    environment: SharedEnvironment,
    state: Mutex<State<K>>,
    /// Wakes the reader of a stream.
    pulled: Notify,
    initial_objects: watch::Sender<InitialObjects>,
    /// Written under the lock of `state`, so that no call starts afterwards.
    closed: AtomicBool,
    returned: AtomicU64,
    panicked: AtomicU64,
    skipped: AtomicU64,
    missed: AtomicU64,
    call_times: CallTimes,
    /// Wakes the tasks that wait for the end of all calls.
    quiet: Notify,
    /// Number of the handler within its first informer, for logs.
    number: OnceLock<usize>,
    /// Subscriptions to the informers, detached at the close.
    subscriptions: OnceLock<Vec<Weak<dyn Detach>>>,
}

/// Subscription of a handler to one informer.
pub(crate) trait Detach: Send + Sync {
    /// Detaches the subscription. Returns false if it was detached before.
    fn detach(&self) -> bool;
}

struct State<K> {
    /// Call mode; `None` after the close, so that values held by the handler are dropped.
    mode: Option<Mode<K>>,
    queue: DeliveryQueue<K>,
    /// Objects to drop without a lock held, because their `Drop` is user code.
    unwanted: Vec<Object<K>>,
    /// Number of informers whose initial objects were not queued yet.
    views_left: usize,
    /// Number of informers with an open subscription.
    subscribed: usize,
    /// Number of workers with an event whose call has not started.
    waiting: usize,
    /// Number of running calls.
    running: usize,
    /// Number of running calls that wait for the end of the other calls.
    leaving: usize,
    /// True if events were merged since the queue was last empty, although each event should be delivered.
    is_behind: bool,
    /// True if the merged events must be logged.
    must_log_behind: bool,
    /// Undelivered events at the close.
    undelivered_calls: usize,
    /// Time since which each worker's event was queued. A finished worker leaves an empty slot.
    queued_since: Vec<Option<Instant>>,
}

/// Progress of a handler with its initial objects (C9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitialObjects {
    Incomplete,
    /// All initial objects were processed.
    Complete,
    /// The handler was closed before all initial objects were processed.
    GivenUp,
}

impl<K: Send + Sync + 'static> Runner<K> {
    pub(crate) fn new(
        informer: String,
        mode: Mode<K>,
        options: HandlerOptions<K>,
        environment: SharedEnvironment,
        faults: FaultInjection,
        informers: usize,
    ) -> Arc<Self> {
        let HandlerOptions { name, concurrency, each, .. } = options;
        let concurrency = if inject!(faults, OverlappingCalls) { 8 } else { concurrency.max(1) };
        let queue = match each {
            Some(bound) => DeliveryQueue::each(bound),
            None => DeliveryQueue::new(),
        }
        .with_faults(faults);
        let state = State {
            mode: Some(mode),
            queue,
            unwanted: Vec::new(),
            views_left: informers,
            subscribed: informers,
            waiting: 0,
            running: 0,
            leaving: 0,
            is_behind: false,
            must_log_behind: false,
            undelivered_calls: 0,
            queued_since: Vec::new(),
        };
        Arc::new(Self {
            informer,
            name,
            concurrency,
            environment,
            state: Mutex::new(state),
            pulled: Notify::new(),
            initial_objects: watch::Sender::new(InitialObjects::Incomplete),
            closed: AtomicBool::new(false),
            returned: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            call_times: CallTimes::default(),
            quiet: Notify::new(),
            number: OnceLock::new(),
            subscriptions: OnceLock::new(),
        })
    }

    /// Sets the handler's number within its first informer.
    pub(crate) fn set_number(&self, number: usize) {
        let _ = self.number.set(number);
    }

    /// Sets the subscriptions to the informers.
    pub(crate) fn set_subscriptions(&self, subscriptions: Vec<Weak<dyn Detach>>) {
        let _ = self.subscriptions.set(subscriptions);
    }

    /// Queues changes. If `viewed` is true, the initial objects of one more informer are complete. The caller must then
    /// [start](Self::start) the handler without a lock held.
    pub(crate) fn push(&self, changes: impl IntoIterator<Item = Change<K>>, viewed: bool) {
        let now = self.environment.now();
        let mut state = self.lock();
        if self.is_closed() {
            return;
        }
        let before = state.queue.missed();
        for change in changes {
            // The replaced object's `Drop` is user code. `start` drops the object after the lock is released.
            if let Some(unwanted) = state.queue.push(change, now) {
                state.unwanted.push(unwanted);
            }
        }
        let missed = state.queue.missed() - before;
        if missed > 0 {
            self.missed.fetch_add(missed, Ordering::Relaxed);
            state.must_log_behind |= !std::mem::replace(&mut state.is_behind, true);
        }
        state.views_left -= usize::from(viewed);
        self.report_initial_objects(&state);
    }

    /// Starts workers for queued events, up to the handler's concurrency.
    pub(crate) fn start(self: &Arc<Self>) {
        let (unwanted, must_log_behind) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.unwanted), std::mem::take(&mut state.must_log_behind))
        };
        drop_contained(unwanted);
        if must_log_behind {
            let (informer, handler) = (&self.informer, self.label());
            tracing::warn!(
                %informer, %handler,
                "a handler to which each event is delivered has fallen behind its bound; until it has caught up, \
                 events are merged and counted, and the last state of each object is kept"
            );
        }
        loop {
            let (mode, delivery, place) = {
                let mut state = self.lock();
                let mode = match &state.mode {
                    None => return,
                    Some(Mode::Pulled) => break,
                    Some(mode) => mode.clone(),
                };
                // A running worker takes the next event itself, so nothing is lost.
                if state.waiting + state.running >= self.concurrency {
                    return;
                }
                let Some(delivery) = state.queue.pop() else { return };
                state.waiting += 1;
                let place = state.occupy_queued_slot(delivery.since);
                (mode, delivery, place)
            };
            let worker = Worker { runner: self.clone(), phase: WorkerPhase::Waiting, place };
            match mode {
                Mode::Sync(handler) => {
                    self.environment.run_blocking(Box::new(move || worker.run(&*handler, delivery)));
                }
                Mode::Async(handler, runtime) => {
                    runtime.spawn(async move { worker.run_async(&*handler, delivery).await });
                }
                Mode::Pulled => {}
            }
        }
        self.pulled.notify_one();
    }

    /// Takes the next event for a stream.
    pub(crate) fn pull(&self) -> PullResult<K> {
        let mut state = self.lock();
        let Some(delivery) = state.queue.pop() else {
            return if self.is_closed() { PullResult::End } else { PullResult::Nothing };
        };
        // A stream has no call to wait for: the event is finished once the reader receives the event.
        state.queue.done(&delivery.key);
        self.report_initial_objects(&state);
        PullResult::Event(delivery.event.private())
    }

    /// Waits until an event may be available to a stream.
    pub(crate) async fn pulled(&self) {
        self.pulled.notified().await;
    }

    /// Accepts no more changes and starts no more calls. Running calls continue.
    ///
    /// Queued events are dropped, except for a stream, whose reader can still take them.
    pub(crate) fn close(&self) {
        let is_released;
        {
            let mut state = self.lock();
            if self.is_closed() {
                return;
            }
            self.closed.store(true, Ordering::Release);
            // Popped events whose calls have not started are never delivered.
            state.undelivered_calls = state.waiting;
            let mode = state.mode.take();
            let queue = if matches!(mode, Some(Mode::Pulled)) {
                None
            } else {
                state.undelivered_calls += state.queue.undelivered();
                Some(std::mem::replace(&mut state.queue, DeliveryQueue::new()))
            };
            is_released = (mode, queue);
            self.give_up_initial_objects();
        }
        for subscription in self.subscriptions.get().into_iter().flatten().filter_map(Weak::upgrade) {
            subscription.detach();
        }
        drop_contained(is_released);
        self.pulled.notify_one();
    }

    /// Ends one subscription. The end of the last subscription also ends the handler. `viewed` is true if the initial
    /// objects of its informer were queued.
    pub(crate) fn leave(&self, viewed: bool) {
        let is_last = {
            let mut state = self.lock();
            state.subscribed = state.subscribed.saturating_sub(1);
            state.subscribed == 0
        };
        if is_last {
            self.close();
        } else if !viewed {
            // The initial objects of this informer will never be queued.
            self.give_up_initial_objects();
        }
    }

    fn give_up_initial_objects(&self) {
        self.initial_objects.send_if_modified(|initial_objects| {
            let waited = *initial_objects == InitialObjects::Incomplete;
            if waited {
                *initial_objects = InitialObjects::GivenUp;
            }
            waited
        });
    }

    /// Closes the handler and returns the number of its undelivered events. No later count includes these events.
    pub(crate) fn remove(&self) -> usize {
        self.close();
        let (undelivered_calls, queue) = {
            let mut state = self.lock();
            let undelivered_calls = std::mem::take(&mut state.undelivered_calls) + state.queue.undelivered();
            (undelivered_calls, std::mem::replace(&mut state.queue, DeliveryQueue::new()))
        };
        drop_contained(queue);
        undelivered_calls
    }

    /// Closes the handler and waits until no call is running. From within such a call, waits only for calls that do not
    /// wait here themselves.
    pub(crate) async fn remove_and_wait(&self) -> usize {
        let undelivered_calls = self.remove();
        // A call that waits for its own end would deadlock, as would two calls that wait for each other.
        let leaving = call_context::is_in_call_of(self.number()).then(|| WaitingCallGuard::new(self));
        loop {
            let mut quiet = pin!(self.quiet.notified());
            // Registered before the check, so that no notification is lost.
            quiet.as_mut().enable();
            let over = {
                let state = self.lock();
                state.running <= leaving.as_ref().map_or(0, |_| state.leaving)
            };
            if over {
                return undelivered_calls;
            }
            quiet.await;
        }
    }

    /// Returns a process-wide identifier of the handler.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns the number of undelivered events.
    pub(crate) fn undelivered(&self) -> usize {
        let state = self.lock();
        let waiting = if self.is_closed() { state.undelivered_calls } else { state.waiting };
        waiting + state.queue.undelivered()
    }

    /// Returns true if no event is queued and no call is running.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().queue.is_empty()
    }

    /// Returns true if the handler has processed all its initial objects (C9).
    pub(crate) fn is_synced(&self) -> bool {
        *self.initial_objects.borrow() == InitialObjects::Complete
    }

    /// Waits until the handler is synced and returns true, or returns false if it is closed first.
    pub(crate) async fn until_synced(&self) -> bool {
        // The sender lives as long as `self`.
        let initial_objects = self
            .initial_objects
            .subscribe()
            .wait_for(|initial_objects| *initial_objects != InitialObjects::Incomplete)
            .await
            .map(|initial_objects| *initial_objects);
        initial_objects.is_ok_and(|initial_objects| initial_objects == InitialObjects::Complete)
    }

    pub(crate) fn stats(&self) -> HandlerStats {
        let state = self.lock();
        HandlerStats {
            returned: self.returned.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            missed: self.missed.load(Ordering::Relaxed),
            entries: state.queue.len(),
            running: state.running,
        }
    }

    /// Returns the memory of the queue in bytes.
    pub(crate) fn footprint(&self) -> usize {
        self.lock().queue.footprint()
    }

    /// Returns the handler's name, or else its number, for logs.
    fn label(&self) -> Arc<str> {
        self.name.clone().unwrap_or_else(|| self.number.get().copied().unwrap_or_default().to_string().into())
    }

    /// Returns the handler's current state. `ordinal` distinguishes it from other handlers of the informer.
    #[cfg(feature = "metrics")]
    pub(crate) fn read(&self, ordinal: usize) -> HandlerReading {
        let now = self.environment.now();
        let oldest = {
            let state = self.lock();
            let waiting = state.queue.waiting_since();
            state.queued_since.iter().copied().flatten().chain(waiting).min()
        };
        HandlerReading {
            ordinal,
            name: self.name.clone(),
            counts: self.stats(),
            synced: self.is_synced(),
            lag: oldest.map_or(Duration::ZERO, |since| now.since(since)),
            durations: self.call_times.read(),
        }
    }

    fn report_initial_objects(&self, state: &State<K>) {
        if state.views_left == 0 && state.queue.initial_left() == 0 && !self.is_closed() {
            self.initial_objects.send_if_modified(|initial_objects| {
                std::mem::replace(initial_objects, InitialObjects::Complete) == InitialObjects::Incomplete
            });
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, State<K>> {
        // No user code runs under this lock, so no panic leaves the state inconsistent.
        self.state.lock()
    }

    /// Counts a call. Returns true if its event is finished: delivered, or dropped after its retries.
    fn is_over(&self, made: &std::thread::Result<()>, key: &ObjectKey, retry: u32) -> bool {
        if made.is_ok() {
            self.returned.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        self.panicked.fetch_add(1, Ordering::Relaxed);
        let again = retry < MAX_RETRIES && !self.is_closed();
        let (informer, handler) = (&self.informer, self.label());
        if again {
            tracing::warn!(
                %informer, %handler, %key, retry,
                "a handler panicked; it is retried with the same event"
            );
        } else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                %informer, %handler, %key, retries = retry,
                "a handler panicked again; the event is skipped and counted"
            );
        }
        !again
    }
}

impl<K> State<K> {
    /// Returns a slot in `queued_since` for a worker. The number of slots never exceeds the number of concurrent
    /// workers.
    fn occupy_queued_slot(&mut self, since: Instant) -> usize {
        let free = self.queued_since.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.queued_since.push(None);
            self.queued_since.len() - 1
        });
        self.queued_since[place] = Some(since);
        place
    }
}

/// Result of a read from a stream's queue.
pub(crate) enum PullResult<K> {
    /// An event.
    Event(Event<K>),
    /// No event yet.
    Nothing,
    /// No further events.
    End,
}

/// Marks a call as waiting for the end of the other calls.
struct WaitingCallGuard<'a, K: Send + Sync + 'static>(&'a Runner<K>);

impl<'a, K: Send + Sync + 'static> WaitingCallGuard<'a, K> {
    fn new(runner: &'a Runner<K>) -> Self {
        runner.lock().leaving += 1;
        runner.quiet.notify_waiters();
        Self(runner)
    }
}

impl<K: Send + Sync + 'static> Drop for WaitingCallGuard<'_, K> {
    fn drop(&mut self) {
        self.0.lock().leaving -= 1;
    }
}

/// Permission to make calls, one at a time.
struct Worker<K: Send + Sync + 'static> {
    runner: Arc<Runner<K>>,
    phase: WorkerPhase,
    /// Slot in `queued_since`.
    place: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WorkerPhase {
    Waiting,
    Running,
    Over,
}

impl<K: Send + Sync + 'static> Worker<K> {
    fn run(mut self, handler: &dyn Handler<K>, first: Delivery<K>) {
        let mut next = self.begin(first);
        while let Some(Delivery { key, event, changes, missed, .. }) = next {
            // The handler alone reads these handles, so what it decodes is dropped after the call.
            let event = event.private();
            for retry in 0.. {
                let (event, call) = (event.clone(), Call { retry, changes, missed });
                let inside = call_context::enter(self.runner.number());
                let timer = self.runner.call_times.start(&self.runner.environment);
                let made = std::panic::catch_unwind(AssertUnwindSafe(|| handler.handle(event, call)));
                drop(timer);
                drop(inside);
                if self.runner.is_over(&made, &key, retry) {
                    break;
                }
            }
            drop_contained(event);
            next = self.next(&key);
        }
    }

    async fn run_async(mut self, handler: &dyn BoxedAsyncHandler<K>, first: Delivery<K>) {
        let mut next = self.begin(first);
        while let Some(Delivery { key, event, changes, missed, .. }) = next {
            // The handler alone reads these handles, so what it decodes is dropped after the call.
            let event = event.private();
            for retry in 0.. {
                let (event, call) = (event.clone(), Call { retry, changes, missed });
                let made = call_context::run(self.runner.number(), async { handler.handle(event, call).await });
                let timer = self.runner.call_times.start(&self.runner.environment);
                let made = AssertUnwindSafe(made).catch_unwind().await;
                drop(timer);
                if self.runner.is_over(&made, &key, retry) {
                    break;
                }
            }
            drop_contained(event);
            next = self.next(&key);
        }
    }

    /// Starts the first call, unless the handler was closed before.
    fn begin(&mut self, first: Delivery<K>) -> Option<Delivery<K>> {
        let mut state = self.runner.lock();
        state.waiting -= 1;
        if self.runner.is_closed() {
            state.queued_since[self.place] = None;
            self.phase = WorkerPhase::Over;
            return None;
        }
        state.running += 1;
        self.phase = WorkerPhase::Running;
        Some(first)
    }

    /// Ends the call for `key` and starts the next one, if any.
    fn next(&mut self, key: &ObjectKey) -> Option<Delivery<K>> {
        let mut state = self.runner.lock();
        // The key is free from here on: the next event of this object may be taken by any worker.
        state.queue.done(key);
        self.runner.report_initial_objects(&state);
        let next = if self.runner.is_closed() { None } else { state.queue.pop() };
        state.queued_since[self.place] = next.as_ref().map(|delivery| delivery.since);
        if next.is_none() {
            // Decreased under the same lock as the queue check, so that a later push finds this worker finished and
            // starts another.
            state.running -= 1;
            state.is_behind = false;
            self.phase = WorkerPhase::Over;
            self.runner.quiet.notify_waiters();
        }
        next
    }
}

impl<K: Send + Sync + 'static> Drop for Worker<K> {
    fn drop(&mut self) {
        {
            let mut state = self.runner.lock();
            match self.phase {
                WorkerPhase::Over => return,
                WorkerPhase::Waiting => state.waiting -= 1,
                WorkerPhase::Running => {
                    state.running -= 1;
                    self.runner.quiet.notify_waiters();
                }
            }
            state.queued_since[self.place] = None;
            if self.phase == WorkerPhase::Waiting && self.runner.is_closed() {
                return;
            }
        }
        if !self.runner.is_closed() {
            let (informer, handler) = (&self.runner.informer, self.runner.label());
            tracing::error!(
                %informer, %handler,
                "the async runtime of a handler has ended; the handler receives no further events"
            );
            self.runner.close();
        }
        // The event of this worker is undelivered.
        self.runner.lock().undelivered_calls += 1;
    }
}
