//! Thread that drives the reactor and runs the informers, and a standby thread that replaces a blocked thread.
//!
//! Sockets and informers share one thread, so that an event reaches its informer without a thread switch. An informer
//! also runs user code of unknown duration: `Deserialize` implementations, transforms, index functions, `Drop`. The
//! standby thread therefore checks at intervals if an informer is still in the same step. If so, the standby thread
//! takes over all other work, and leaves the first thread to that step. An informer that blocks repeatedly moves to a
//! thread of its own until its steps have been short for a while.
//!
//! The sockets can change threads because informers run *between* two entries of the reactor, not inside: see
//! [`Inner::lead`]. The first thread takes the sockets back after its step, so that one thread creates and replaces the
//! objects. Allocators keep the freed memory of each thread, so a change of threads would double the memory.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::blocking_pool::{BlockingPool, BlockingThreads, STUCK_AFTER};
use crate::injected_fault::inject;
use crate::reactor::{Reactor, ReactorHandle};
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, spawn_thread};
use crate::user_task::{MAX_PROMPT_STEP_DURATION, TaskScheduler, UserTask};

/// Interval of the standby thread's checks. A step that lasts from one check to the next is blocking. Such a step
/// delays the other tasks for at most twice this time.
const CHECK_INTERVAL: Duration = MAX_PROMPT_STEP_DURATION;

/// Maximum number of steps before the sockets are served again.
const MAX_STEPS: u32 = 16;
/// Time after which no step starts before the sockets are served again.
const MAX_TURN_DURATION: Duration = Duration::from_millis(2);

/// Name of the first thread.
const FIRST_THREAD: &str = "steadfast-io";
/// Name of the standby thread, and of a thread that has replaced a blocked one.
const STANDBY_THREAD: &str = "steadfast-relief";

/// Handle of the threads. The threads end when the handle is dropped.
pub struct IoExecutor<R: Reactor> {
    inner: Arc<Inner<R>>,
}

struct Inner<R: Reactor> {
    handle: R::Handle,
    state: Mutex<State<R>>,
    /// Wakes the standby thread.
    standby_wake: Condvar,
    /// Wakes the first thread, which waits to lead again.
    first_may_lead: Condvar,
    pool: BlockingPool,
}

struct State<R: Reactor> {
    /// `None` after the shutdown.
    reactor: Option<Arc<R>>,
    /// Number of changes of the leading thread so far. Identifies the current leading thread.
    leader_epoch: u64,
    /// True while the leading thread is inside the reactor, or on its way into it, and no step is ready.
    serving: bool,
    first: FirstThread,
    /// Relieved threads that are still in their step, with the time of the change.
    relieved_threads: BTreeMap<u64, Instant>,
    /// Task of the current step.
    current_task: Option<Arc<UserTask<Inner<R>>>>,
    /// Number of started steps.
    steps: u64,
    /// True while the standby thread sleeps until the next step.
    standby_is_asleep: bool,
    ready: VecDeque<Arc<UserTask<Inner<R>>>>,
    closed: bool,
}

/// State of the first thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstThread {
    /// Leading, or in the step during which another thread took over.
    Working,
    /// Relieved, finished with its step, and waiting to lead again.
    WantsToLead,
}

impl<R: Reactor> IoExecutor<R> {
    /// Starts two threads that drive `reactor`; further threads of `pool` start on demand.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system cannot create a thread.
    pub fn new(reactor: R, pool: BlockingPool) -> io::Result<Self> {
        let handle = reactor.handle();
        let state = State {
            reactor: Some(Arc::new(reactor)),
            leader_epoch: 0,
            serving: false,
            first: FirstThread::Working,
            relieved_threads: BTreeMap::new(),
            current_task: None,
            steps: 0,
            standby_is_asleep: false,
            ready: VecDeque::new(),
            closed: false,
        };
        let inner = Arc::new(Inner {
            handle,
            state: Mutex::new(state),
            standby_wake: Condvar::new(),
            first_may_lead: Condvar::new(),
            pool,
        });
        inner.start_thread(FIRST_THREAD, Inner::run_first_thread).inspect_err(|_| shut_down(inner.lock()))?;
        // If the second thread cannot be created, dropping this handle ends the first.
        let executor = Self { inner };
        executor.inner.start_thread(STANDBY_THREAD, Inner::relieve_stalls)?;
        Ok(executor)
    }

    /// Returns the handle of the reactor.
    pub fn handle(&self) -> &R::Handle {
        &self.inner.handle
    }

    /// Returns the number of threads that were left to a blocked task, apart from the pool's threads.
    pub fn relieved(&self) -> BlockingThreads {
        let state = self.inner.lock();
        let stuck = state.relieved_threads.values().filter(|since| since.elapsed() > STUCK_AFTER).count();
        BlockingThreads { threads: state.relieved_threads.len(), running: state.relieved_threads.len(), stuck }
    }

    /// Spawns a task that may block its thread.
    pub fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) -> UserTaskHandle<R> {
        let task = UserTask::new(self.inner.clone(), future);
        let handle = UserTaskHandle { task: Arc::downgrade(&task) };
        self.inner.schedule(task, false);
        handle
    }
}

impl<R: Reactor> Drop for IoExecutor<R> {
    fn drop(&mut self) {
        let fault = self.inner.pool.fault();
        self.inner.lock().closed = true;
        if !inject!(fault, ShutdownMissesLeader) {
            self.inner.handle.interrupt();
        }
        self.inner.standby_wake.notify_all();
        if !inject!(fault, ShutdownMissesFirst) {
            self.inner.first_may_lead.notify_all();
        }
    }
}

impl<R: Reactor> fmt::Debug for IoExecutor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoExecutor").field("relieved", &self.relieved()).finish_non_exhaustive()
    }
}

/// Handle of a task. Dropping the handle detaches the task.
pub struct UserTaskHandle<R: Reactor> {
    task: Weak<UserTask<Inner<R>>>,
}

impl<R: Reactor> UserTaskHandle<R> {
    /// Aborts the task at its next await point. Does nothing if the task has ended.
    ///
    /// The task's future is dropped on a thread of the executor, unless the executor was dropped before.
    pub fn abort(&self) {
        if let Some(task) = self.task.upgrade() {
            task.abort();
        }
    }
}

impl<R: Reactor> fmt::Debug for UserTaskHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserTaskHandle").finish_non_exhaustive()
    }
}

impl<R: Reactor> TaskScheduler for Inner<R> {
    fn schedule(self: &Arc<Self>, task: Arc<UserTask<Self>>, on_own_thread: bool) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            // The task is dropped without the lock: the `Drop` of its future is user code.
            drop(task);
            return;
        }
        if on_own_thread {
            drop(state);
            task.schedule_on_own_thread();
            return;
        }
        state.ready.push_back(task);
        // Outside the reactor, the leading thread checks `ready` before it enters the reactor again.
        if state.serving {
            drop(state);
            self.handle.interrupt();
        }
    }

    fn enter<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.handle.enter(poll)
    }

    fn pool(&self) -> &BlockingPool {
        &self.pool
    }
}

impl<R: Reactor> Inner<R> {
    fn start_thread(self: &Arc<Self>, name: &str, run: impl FnOnce(&Arc<Self>) + Send + 'static) -> io::Result<()> {
        let inner = self.clone();
        spawn_thread(name, move || run(&inner))
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock()
    }

    /// Main loop of the first thread, which leads unless a step blocks it.
    fn run_first_thread(self: &Arc<Self>) {
        let mut leader_epoch = 0;
        loop {
            self.lead(leader_epoch);
            let mut state = self.lock();
            if state.closed {
                return;
            }
            state.first = FirstThread::WantsToLead;
            if state.serving {
                self.handle.interrupt();
            }
            while state.first == FirstThread::WantsToLead {
                if state.closed {
                    return;
                }
                self.first_may_lead.wait(&mut state);
            }
            leader_epoch = state.leader_epoch;
        }
    }

    /// Serves the sockets and runs ready steps, alternately. Returns when another thread has taken over, when the first
    /// thread wants to lead again, or at shutdown.
    ///
    /// No thread is inside the reactor during a step, so the thread that takes over can enter it.
    fn lead(self: &Arc<Self>, leader_epoch: u64) {
        let fault = self.pool.fault();
        let mut steps = 0;
        let mut started_at = Instant::now();
        // Task of the last step. This may be the last reference to the task, and the `Drop` of its future is user code.
        // The variable is therefore declared before the guard of the lock, and is emptied only without the lock.
        let mut last_task: Option<Arc<UserTask<Self>>> = None;
        let mut state = self.lock();
        loop {
            if state.leader_epoch != leader_epoch {
                state.relieved_threads.remove(&leader_epoch);
                return;
            }
            state.current_task = None;
            if state.closed {
                break;
            }
            if std::mem::replace(&mut state.first, FirstThread::Working) == FirstThread::WantsToLead {
                state.leader_epoch += 1;
                drop(state);
                if !inject!(fault, HandbackNotNotified) {
                    self.first_may_lead.notify_one();
                }
                return;
            }
            // Each turn runs at least one step, so that the steps always progress.
            let may_step = steps == 0 || (steps < MAX_STEPS && started_at.elapsed() < MAX_TURN_DURATION);
            let next = if may_step { state.ready.pop_front() } else { None };
            if let Some(task) = next {
                steps += 1;
                state.steps += 1;
                state.current_task = Some(task.clone());
                let standby_is_asleep = std::mem::take(&mut state.standby_is_asleep);
                drop(state);
                drop(last_task.take());
                if standby_is_asleep && !inject!(fault, StandbyNotWoken) {
                    self.standby_wake.notify_one();
                }
                task.step();
                if !inject!(fault, TaskDroppedUnderLock) {
                    last_task = Some(task);
                }
            } else {
                let Some(reactor) = state.reactor.clone() else { break };
                let idle = state.ready.is_empty();
                state.serving = idle && !inject!(fault, LateServingFlag);
                drop(state);
                drop(last_task.take());
                if inject!(fault, LateServingFlag) {
                    self.lock().serving = idle;
                }
                // With ready steps, the reactor only polls the sockets once. Without ready steps, the reactor sleeps
                // until a socket or a step is ready.
                if idle {
                    reactor.serve_until_interrupted();
                } else {
                    reactor.serve_ready();
                }
                steps = 0;
                started_at = Instant::now();
            }
            state = self.lock();
            if state.leader_epoch == leader_epoch {
                state.serving = false;
            }
        }
        shut_down(state);
    }

    /// Takes over the role of the leading thread if that thread is blocked.
    fn relieve_stalls(self: &Arc<Self>) {
        let fault = self.pool.fault();
        let mut state = self.lock();
        let mut is_reported = false;
        // Number of steps at the last check that found no step running.
        let mut idle = None;
        loop {
            if state.closed {
                // The leading thread handles the shutdown, unless it is in a step, which may never end.
                if state.current_task.is_some() && !inject!(fault, ShutdownWaitsForStep) {
                    state.leader_epoch += 1;
                    shut_down(state);
                }
                return;
            }
            let steps_at_check = state.steps;
            if state.current_task.is_none() {
                // A wake-up for each step would cost more than polling. The thread sleeps only if no step was started
                // between two checks.
                if idle.replace(steps_at_check) == Some(steps_at_check) {
                    state.standby_is_asleep = true;
                    self.standby_wake.wait(&mut state);
                } else {
                    self.standby_wake.wait_for(&mut state, CHECK_INTERVAL);
                }
                continue;
            }
            let wait = self.standby_wake.wait_for(&mut state, CHECK_INTERVAL);
            if state.closed || state.steps != steps_at_check || !wait.timed_out() {
                continue;
            }
            let Some(task) = state.current_task.clone() else { continue };
            drop(state);
            if let Err(error) = self.start_thread(STANDBY_THREAD, Self::relieve_stalls) {
                if !std::mem::replace(&mut is_reported, true) {
                    tracing::error!(%error, "cannot start a thread; an informer blocks the current thread, and all other tasks wait");
                }
                drop(task);
                state = self.lock();
                continue;
            }
            state = self.lock();
            // The step may have ended while the lock was released. After the shutdown, the new standby thread must find
            // the step, so that it shuts down the reactor.
            let is_open = !state.closed || inject!(fault, StandbyMissesShutdown);
            let is_blocked = is_open && state.steps == steps_at_check && state.current_task.take().is_some();
            if (is_blocked || inject!(fault, TakeoverUnchecked)) && !state.closed {
                let relieved_epoch = state.leader_epoch;
                state.relieved_threads.insert(relieved_epoch, Instant::now());
                if !inject!(fault, EpochNotAdvanced) {
                    state.leader_epoch += 1;
                }
                let leader_epoch = state.leader_epoch;
                drop(state);
                task.record_blocking_step();
                drop(task);
                self.lead(leader_epoch);
            } else {
                // Not under the lock: the `Drop` of the task's future is user code.
                drop(state);
                drop(task);
            }
            return;
        }
    }
}

/// Shuts down the reactor with all sockets, and drops the queued tasks.
fn shut_down<R: Reactor>(mut state: MutexGuard<'_, State<R>>) {
    let (reactor, current_task) = (state.reactor.take(), state.current_task.take());
    let ready = std::mem::take(&mut state.ready);
    drop(state);
    // Outside the lock: the `Drop` of a task's future is user code.
    drop((current_task, ready));
    if let Some(reactor) = reactor.and_then(Arc::into_inner) {
        reactor.shut_down();
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Poll;
    use std::thread;

    use super::*;
    use crate::tokio_reactor::TokioReactor;
    use crate::user_task::MAX_BLOCKING_STEPS;

    const LONG: Duration = Duration::from_secs(20);

    /// Name of a task's own thread.
    const OWN: &str = "of its own";

    fn executor() -> IoExecutor<TokioReactor> {
        IoExecutor::new(TokioReactor::new().expect("a runtime"), BlockingPool::named(OWN)).expect("threads")
    }

    /// Spawns a task that blocks in its first step until the returned value is dropped.
    fn hang(executor: &IoExecutor<TokioReactor>) -> mpsc::Sender<()> {
        let (release, held) = mpsc::channel::<()>();
        let (started, hangs) = mpsc::channel();
        let task = async move {
            started.send(()).expect("the test waits");
            let _ = held.recv();
        };
        executor.spawn(Box::pin(task));
        hangs.recv_timeout(LONG).expect("the task starts");
        release
    }

    /// Verifies that both a task and the runtime make progress.
    fn runs_tasks(executor: &IoExecutor<TokioReactor>) {
        let (done, finished) = mpsc::channel();
        let served = done.clone();
        executor.handle().runtime().spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            served.send("served").expect("the test waits");
        });
        executor.spawn(Box::pin(async move {
            tokio::task::yield_now().await;
            done.send("stepped").expect("the test waits");
        }));
        let mut all = [finished.recv_timeout(LONG), finished.recv_timeout(LONG)]
            .map(|result| result.expect("the executor runs steps"));
        all.sort_unstable();
        assert_eq!(all, ["served", "stepped"]);
    }

    #[test]
    fn hanging_tasks_block_no_other_task() {
        let executor = executor();
        let mut held = Vec::new();
        for _ in 0..5 {
            runs_tasks(&executor);
            held.push(hang(&executor));
        }
        runs_tasks(&executor);
        let BlockingThreads { threads, running, stuck } = executor.relieved();
        assert!((5..=6).contains(&running) && threads == running && stuck == 0, "{running} of {threads}");
        drop(held);
        runs_tasks(&executor);
    }

    #[test]
    fn first_thread_leads_again_after_its_step() {
        let executor = executor();
        for _ in 0..3 {
            let release = hang(&executor);
            let started_at = Instant::now();
            for held in [true, false] {
                if !held {
                    release.send(()).expect("the task hangs");
                }
                let name = || thread::current().name().map(str::to_owned);
                loop {
                    let (sender, poll_result) = mpsc::channel();
                    executor.spawn(Box::pin(async move { sender.send(name()).expect("the test waits") }));
                    let by = poll_result.recv_timeout(LONG).expect("the executor runs steps").expect("a thread name");
                    assert!(started_at.elapsed() < LONG, "by {by}");
                    if (by == "steadfast-io") != held {
                        break;
                    }
                }
            }
            runs_tasks(&executor);
        }
        assert_eq!(executor.relieved().threads, 0);
    }

    #[test]
    fn often_blocking_task_gets_own_thread() {
        let executor = executor();
        let (release, held) = mpsc::channel::<()>();
        let (sender, threads) = mpsc::channel();
        let name = || thread::current().name().unwrap_or_default().to_owned();
        executor.spawn(Box::pin(async move {
            while sender.send(name()).is_ok() && held.recv().is_ok() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }));
        for time in 0.. {
            let name = threads.recv_timeout(LONG).expect("the executor runs steps");
            if name == OWN {
                assert!(time >= MAX_BLOCKING_STEPS, "after {time} times");
                break;
            }
            runs_tasks(&executor);
            release.send(()).expect("the task waits");
        }
    }

    #[test]
    fn wake_during_step_schedules_another_step() {
        let executor = executor();
        let (done, finished) = mpsc::channel();
        let mut steps = 0;
        executor.spawn(Box::pin(std::future::poll_fn(move |context| {
            steps += 1;
            context.waker().wake_by_ref();
            context.waker().wake_by_ref();
            if steps < 1000 {
                return Poll::Pending;
            }
            done.send(steps).expect("the test waits");
            Poll::Ready(())
        })));
        assert_eq!(finished.recv_timeout(LONG), Ok(1000));
    }

    #[test]
    fn panicking_or_aborted_task_is_dropped_alone() {
        let executor = executor();
        for aborted in [false, true] {
            let (held, dropped) = mpsc::channel::<()>();
            let task = executor.spawn(Box::pin(async move {
                let _held = held;
                assert!(aborted, "on purpose");
                std::future::pending::<()>().await;
            }));
            if aborted {
                task.abort();
                task.abort();
            }
            assert_eq!(dropped.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
        }
        runs_tasks(&executor);
    }

    #[test]
    fn drop_ends_threads_despite_hanging_task() {
        for hangs in [false, true] {
            let executor = executor();
            let release = hangs.then(|| hang(&executor));
            let (held, dropped) = mpsc::channel::<()>();
            executor.handle().runtime().spawn(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
            let inner = Arc::downgrade(&executor.inner);
            drop(executor);
            assert_eq!(dropped.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected), "the runtime ends");
            drop(release);
            let started_at = Instant::now();
            while inner.strong_count() > 0 {
                assert!(started_at.elapsed() < LONG, "a thread ends");
                thread::yield_now();
            }
        }
    }
}
