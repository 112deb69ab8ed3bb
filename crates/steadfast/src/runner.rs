//! Runs one handler: its queue, its calls, its panics; nobody else waits for it (C7, C8).

mod inside;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use steadfast_core::breach::{Breach, Breaches};
use steadfast_core::event::{Change, Event};
use steadfast_core::queue::{Delivery, DeliveryQueue};
use steadfast_core::{Instant, Object, ObjectKey};
use tokio::sync::{Notify, watch};

use crate::environment::SharedEnvironment;
use crate::handler::{BoxedAsyncHandler, Call, Handler};
use crate::handler_counts::HandlerCounts;
#[cfg(feature = "metrics")]
use crate::handler_counts::HandlerReading;
use crate::roster::Seat;
use crate::screen::Screen;
use crate::wishes::{Mode, Wishes};

/// How often a call that panicked is made again before its event is counted and skipped (C3).
const RETRIES: u32 = 3;

/// One handler of an informer.
pub(crate) struct Runner<K> {
    /// The informer's name, for people.
    informer: String,
    concurrency: usize,
    pub(crate) screen: Option<Screen<K>>,
    pub(crate) resync: Option<Duration>,
    environment: SharedEnvironment,
    breaches: Breaches,
    state: Mutex<State<K>>,
    /// Wakes whoever pulls.
    pulled: Notify,
    view: watch::Sender<View>,
    /// Written under the lock of `state`, so that no call begins once it is set.
    closed: AtomicBool,
    returned: AtomicU64,
    panicked: AtomicU64,
    skipped: AtomicU64,
    missed: AtomicU64,
    /// Wakes whoever waits for the end of its calls.
    quiet: Notify,
    /// Its place among the handlers of its informer, given up when it is closed.
    seat: OnceLock<Seat>,
}

struct State<K> {
    /// How the handler is called; nothing once it is closed, so that what the handler holds is let go.
    mode: Option<Mode<K>>,
    queue: DeliveryQueue<K>,
    /// What is held for nobody any more, to be dropped where no lock is held: its `Drop` is the user's.
    unwanted: Vec<Object<K>>,
    /// The whole first view is in the queue, or was.
    viewed: bool,
    /// Workers that were given an event and have not begun to tell it.
    waiting: usize,
    /// Calls that have begun and are not over.
    running: usize,
    /// Those of them that wait for the end of the others.
    leaving: usize,
    /// Whether events were merged though each was to be delivered, since nothing waited; and whether that is to be logged.
    is_behind: bool,
    falls_behind: bool,
    /// What was not delivered when the handler was closed.
    untold: usize,
    /// Since when what each worker tells waited; a worker that is over has left its place.
    telling: Vec<Option<Instant>>,
}

/// How far a handler is with the objects of its first view (C9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Incomplete,
    /// It has returned from every one of them.
    Complete,
    /// It was closed before.
    GivenUp,
}

impl<K: Send + Sync + 'static> Runner<K> {
    pub(crate) fn new(
        informer: &str,
        mode: Mode<K>,
        wishes: Wishes<K>,
        environment: SharedEnvironment,
        breaches: Breaches,
    ) -> Arc<Self> {
        let Wishes { concurrency, filter, resync, each } = wishes;
        let concurrency = if breaches.commit(Breach::OverlappingCalls) { 8 } else { concurrency.max(1) };
        let queue = match each {
            Some(bound) => DeliveryQueue::each(bound, breaches),
            None => DeliveryQueue::new(breaches),
        };
        let state = State {
            mode: Some(mode),
            queue,
            unwanted: Vec::new(),
            viewed: false,
            waiting: 0,
            running: 0,
            leaving: 0,
            is_behind: false,
            falls_behind: false,
            untold: 0,
            telling: Vec::new(),
        };
        Arc::new(Self {
            informer: informer.to_owned(),
            concurrency,
            screen: filter.map(Screen::new),
            resync,
            environment,
            breaches,
            state: Mutex::new(state),
            pulled: Notify::new(),
            view: watch::Sender::new(View::Incomplete),
            closed: AtomicBool::new(false),
            returned: AtomicU64::new(0),
            panicked: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            quiet: Notify::new(),
            seat: OnceLock::new(),
        })
    }

    /// Takes its place among the handlers of its informer.
    pub(crate) fn sit_down(&self, seat: Seat) {
        let seat = self.seat.get_or_init(|| seat);
        if self.is_closed() {
            seat.give_up();
        }
    }

    /// Takes in changes; `viewed` says that the first view is complete with them. Whoever has pushed is to
    /// [start](Self::start) the handler, when no lock is held any more.
    pub(crate) fn push(&self, changes: impl IntoIterator<Item = Change<K>>, viewed: bool) {
        let now = self.environment.now();
        let mut state = self.lock();
        if self.is_closed() {
            return;
        }
        let before = state.queue.missed();
        for change in changes {
            if let Some(unwanted) = state.queue.push(change, now) {
                state.unwanted.push(unwanted);
            }
        }
        let missed = state.queue.missed() - before;
        if missed > 0 {
            self.missed.fetch_add(missed, Ordering::Relaxed);
            state.falls_behind |= !std::mem::replace(&mut state.is_behind, true);
        }
        state.viewed |= viewed;
        self.tell_view(&state);
    }

    /// Starts workers for what waits, as many as the handler allows.
    pub(crate) fn start(self: &Arc<Self>) {
        let (unwanted, falls_behind) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.unwanted), std::mem::take(&mut state.falls_behind))
        };
        drop_contained(unwanted);
        if falls_behind {
            let informer = &self.informer;
            tracing::warn!(
                %informer,
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
                if state.waiting + state.running >= self.concurrency {
                    return;
                }
                let Some(delivery) = state.queue.pop() else { return };
                state.waiting += 1;
                let place = state.tell(delivery.since);
                (mode, delivery, place)
            };
            let worker = Worker { runner: self.clone(), stage: Stage::Waiting, place };
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

    /// Takes the next event for someone who pulls.
    pub(crate) fn pull(&self) -> Pull<K> {
        let mut state = self.lock();
        let Some(delivery) = state.queue.pop() else {
            return if self.is_closed() { Pull::End } else { Pull::Nothing };
        };
        state.queue.done(&delivery.key);
        self.tell_view(&state);
        Pull::Event(delivery.event)
    }

    /// Waits until there may be something to pull.
    pub(crate) async fn pulled(&self) {
        self.pulled.notified().await;
    }

    /// Takes no more changes and begins no more calls; those running are left to themselves.
    ///
    /// What waits is let go of, unless someone pulls it, who may yet take it.
    pub(crate) fn close(&self) {
        let given_up;
        {
            let mut state = self.lock();
            if self.is_closed() {
                return;
            }
            self.closed.store(true, Ordering::Release);
            state.untold = state.waiting;
            let mode = state.mode.take();
            let queue = if matches!(mode, Some(Mode::Pulled)) {
                None
            } else {
                state.untold += state.queue.undelivered();
                Some(std::mem::replace(&mut state.queue, DeliveryQueue::new(self.breaches)))
            };
            let filter = self.screen.as_ref().and_then(Screen::end);
            given_up = (mode, queue, filter);
            self.view.send_if_modified(|view| {
                let waited = *view == View::Incomplete;
                if waited {
                    *view = View::GivenUp;
                }
                waited
            });
        }
        if let Some(seat) = self.seat.get() {
            seat.give_up();
        }
        drop_contained(given_up);
        self.pulled.notify_one();
    }

    /// Closes the handler for whoever wants nothing more of it; returns what it was not given, which no later count has.
    pub(crate) fn remove(&self) -> usize {
        self.close();
        let (untold, queue) = {
            let mut state = self.lock();
            let untold = std::mem::take(&mut state.untold) + state.queue.undelivered();
            (untold, std::mem::replace(&mut state.queue, DeliveryQueue::new(self.breaches)))
        };
        drop_contained(queue);
        untold
    }

    /// Closes the handler, and waits until no call of it runs. Whoever asks from within such a call waits for the others
    /// that do not.
    pub(crate) async fn remove_and_wait(&self) -> usize {
        let untold = self.remove();
        let leaving = inside::is_in_call_of(self.number()).then(|| Leaving::new(self));
        loop {
            let mut quiet = pin!(self.quiet.notified());
            quiet.as_mut().enable();
            let over = {
                let state = self.lock();
                state.running <= leaving.as_ref().map_or(0, |_| state.leaving)
            };
            if over {
                return untold;
            }
            quiet.await;
        }
    }

    /// What tells it from all other handlers there are.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// What was not delivered.
    pub(crate) fn undelivered(&self) -> usize {
        let state = self.lock();
        let waiting = if self.is_closed() { state.untold } else { state.waiting };
        waiting + state.queue.undelivered()
    }

    /// Whether nothing waits and no call runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().queue.is_empty()
    }

    /// Whether the handler has returned from every object of its first view (C9).
    pub(crate) fn is_synced(&self) -> bool {
        *self.view.borrow() == View::Complete
    }

    /// Waits until the handler is synced or closed; returns which.
    pub(crate) async fn until_synced(&self) -> bool {
        // The sender lives as long as `self`.
        let view = self.view.subscribe().wait_for(|view| *view != View::Incomplete).await.map(|view| *view);
        view.is_ok_and(|view| view == View::Complete)
    }

    pub(crate) fn counts(&self) -> HandlerCounts {
        let state = self.lock();
        HandlerCounts {
            returned: self.returned.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            missed: self.missed.load(Ordering::Relaxed),
            entries: state.queue.len(),
            running: state.running,
        }
    }

    /// What waits takes up, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        self.lock().queue.footprint()
    }

    /// What tells this handler from the others of its informer; used again once it is closed.
    #[cfg(feature = "metrics")]
    fn place(&self) -> usize {
        self.seat.get().map_or(0, Seat::place)
    }

    /// The handler as it is now.
    #[cfg(feature = "metrics")]
    pub(crate) fn read(&self) -> HandlerReading {
        let now = self.environment.now();
        let oldest = {
            let state = self.lock();
            let waiting = state.queue.waiting_since();
            state.telling.iter().copied().flatten().chain(waiting).min()
        };
        HandlerReading {
            ordinal: self.place(),
            counts: self.counts(),
            synced: self.is_synced(),
            lag: oldest.map_or(Duration::ZERO, |since| now.since(since)),
        }
    }

    fn tell_view(&self, state: &State<K>) {
        if state.viewed && state.queue.initial_left() == 0 && !self.is_closed() {
            self.view.send_if_modified(|view| std::mem::replace(view, View::Complete) == View::Incomplete);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<K>> {
        // No handler runs under this lock, so a poisoned one is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and tells whether its event is done with: delivered, or given up after its retries.
    fn is_over(&self, made: &std::thread::Result<()>, key: &ObjectKey, retry: u32) -> bool {
        if made.is_ok() {
            self.returned.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        self.panicked.fetch_add(1, Ordering::Relaxed);
        let again = retry < RETRIES && !self.is_closed();
        if again {
            tracing::warn!(%key, retry, "a handler panicked; it is called again with the same event");
        } else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%key, retries = retry, "a handler panicked again; the event is skipped and counted");
        }
        !again
    }
}

impl<K> State<K> {
    /// A place in `telling` for a worker: as many as run at once, and no more.
    fn tell(&mut self, since: Instant) -> usize {
        let free = self.telling.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.telling.push(None);
            self.telling.len() - 1
        });
        self.telling[place] = Some(since);
        place
    }
}

/// What there is to pull.
pub(crate) enum Pull<K> {
    /// This.
    Event(Event<K>),
    /// Nothing now.
    Nothing,
    /// Nothing, now or later.
    End,
}

/// Drops what may hold the user's own objects; what their `Drop` breaks stays with them.
pub(crate) fn drop_contained<T>(dropped: T) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| drop(dropped))).is_err() {
        tracing::error!("dropping an object or a handler panicked");
    }
}

/// A call that waits for the end of the others.
struct Leaving<'a, K: Send + Sync + 'static>(&'a Runner<K>);

impl<'a, K: Send + Sync + 'static> Leaving<'a, K> {
    fn new(runner: &'a Runner<K>) -> Self {
        runner.lock().leaving += 1;
        runner.quiet.notify_waiters();
        Self(runner)
    }
}

impl<K: Send + Sync + 'static> Drop for Leaving<'_, K> {
    fn drop(&mut self) {
        self.0.lock().leaving -= 1;
    }
}

/// The right to make calls, one after the other.
struct Worker<K: Send + Sync + 'static> {
    runner: Arc<Runner<K>>,
    stage: Stage,
    /// Its place in `telling`.
    place: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Running,
    Over,
}

impl<K: Send + Sync + 'static> Worker<K> {
    fn run(mut self, handler: &dyn Handler<K>, first: Delivery<K>) {
        let mut next = self.begin(first);
        while let Some(Delivery { key, event, changes, missed, .. }) = next {
            for retry in 0.. {
                let (event, call) = (event.clone(), Call { retry, changes, missed });
                let inside = inside::enter(self.runner.number());
                let made = std::panic::catch_unwind(AssertUnwindSafe(|| handler.handle(event, call)));
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
            for retry in 0.. {
                let (event, call) = (event.clone(), Call { retry, changes, missed });
                let made = inside::run(self.runner.number(), async { handler.handle(event, call).await });
                let made = AssertUnwindSafe(made).catch_unwind().await;
                if self.runner.is_over(&made, &key, retry) {
                    break;
                }
            }
            drop_contained(event);
            next = self.next(&key);
        }
    }

    /// The first call begins, unless the handler was closed before its worker came to it.
    fn begin(&mut self, first: Delivery<K>) -> Option<Delivery<K>> {
        let mut state = self.runner.lock();
        state.waiting -= 1;
        if self.runner.is_closed() {
            state.telling[self.place] = None;
            self.stage = Stage::Over;
            return None;
        }
        state.running += 1;
        self.stage = Stage::Running;
        Some(first)
    }

    /// The call for `key` is over; the next one begins, if there is one.
    fn next(&mut self, key: &ObjectKey) -> Option<Delivery<K>> {
        let mut state = self.runner.lock();
        state.queue.done(key);
        self.runner.tell_view(&state);
        let next = if self.runner.is_closed() { None } else { state.queue.pop() };
        state.telling[self.place] = next.as_ref().map(|delivery| delivery.since);
        if next.is_none() {
            // Under the same lock as the look into the queue: what comes later finds this worker gone.
            state.running -= 1;
            state.is_behind = false;
            self.stage = Stage::Over;
            self.runner.quiet.notify_waiters();
        }
        next
    }
}

impl<K: Send + Sync + 'static> Drop for Worker<K> {
    fn drop(&mut self) {
        {
            let mut state = self.runner.lock();
            match self.stage {
                Stage::Over => return,
                Stage::Waiting => state.waiting -= 1,
                Stage::Running => {
                    state.running -= 1;
                    self.runner.quiet.notify_waiters();
                }
            }
            state.telling[self.place] = None;
            if self.stage == Stage::Waiting && self.runner.is_closed() {
                return;
            }
        }
        if !self.runner.is_closed() {
            tracing::error!("the async runtime of a handler has ended; the handler is given nothing more");
            self.runner.close();
        }
        // The event that this worker had.
        self.runner.lock().untold += 1;
    }
}
