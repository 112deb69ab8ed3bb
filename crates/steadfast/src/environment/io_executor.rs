//! Thread that serves sockets and timers and runs the informers, and a standby thread that replaces a blocked thread.
//!
//! Sockets and informers share one thread, so that an event reaches its informer without a thread switch. An informer
//! also runs user code of unknown duration: `Deserialize` implementations, transforms, index functions, `Drop`. The
//! standby thread therefore checks at intervals if an informer is still in the same step. If so, the standby thread
//! takes over all other work, and leaves the first thread to that step. An informer that blocks repeatedly moves to a
//! thread of its own until its steps have been short for a while.
//!
//! The sockets can change threads because informers run *between* two entries of the runtime, not inside: see
//! [`Inner::lead`]. The first thread takes the sockets back after its step, so that one thread creates and replaces the
//! objects. Allocators keep the freed memory of each thread, so a change of threads would double the memory.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use std::{io, thread};

use futures::future::BoxFuture;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use super::Task;
use super::blocking_pool::{BlockingPool, BlockingThreads, STUCK_AFTER, ThreadAffinity};

/// Interval of the standby thread's checks. A step that lasts from one check to the next is blocking. Such a step
/// delays the other tasks for at most twice this time.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum number of steps before the sockets are served again.
const MAX_STEPS: u32 = 16;
/// Time after which no step starts before the sockets are served again.
const MAX_TURN_DURATION: Duration = Duration::from_millis(2);

/// Number of blocking steps in close succession after which a task moves to a thread of its own. A single blocking step
/// may be due to a large list, or to an overloaded machine.
const MAX_BLOCKING_STEPS: u32 = 4;
const BLOCKING_STEPS_WINDOW: Duration = Duration::from_secs(1);

/// Maximum duration of a prompt step.
const MAX_PROMPT_STEP_DURATION: Duration = CHECK_INTERVAL;

/// Time of only prompt steps after which a task returns from a thread of its own.
const PROMPT_PERIOD_BEFORE_RETURN: Duration = Duration::from_secs(1);

/// Handle of the threads. The threads end when the handle is dropped.
pub(super) struct IoExecutor {
    inner: Arc<Inner>,
}

struct Inner {
    handle: Handle,
    state: Mutex<State>,
    /// Interrupts the runtime of the leading thread.
    interrupt: Notify,
    /// Wakes the standby thread.
    standby_wake: Condvar,
    /// Wakes the first thread, which waits to lead again.
    first_may_lead: Condvar,
    pool: BlockingPool,
}

struct State {
    /// `None` after the shutdown.
    runtime: Option<Arc<Runtime>>,
    /// Number of changes of the leading thread so far. Identifies the current leading thread.
    leader_epoch: u64,
    /// True while the leading thread is inside the runtime.
    serving: bool,
    first: FirstThread,
    /// Relieved threads that are still in their step, with the time of the change.
    relieved_threads: BTreeMap<u64, Instant>,
    /// Task of the current step.
    current_task: Option<Arc<UserTask>>,
    /// Number of started steps.
    steps: u64,
    /// True while the standby thread sleeps until the next step.
    standby_is_asleep: bool,
    ready: VecDeque<Arc<UserTask>>,
    closed: bool,
}

/// State of the first thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstThread {
    /// Leading, or in the step in which it was relieved.
    Working,
    /// Relieved, finished with its step, and waiting to lead again.
    WantsToLead,
}

impl IoExecutor {
    /// Starts two threads; further threads of `pool` start on demand.
    pub(super) fn new(pool: BlockingPool) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let state = State {
            leader_epoch: 0,
            serving: false,
            first: FirstThread::Working,
            relieved_threads: BTreeMap::new(),
            current_task: None,
            steps: 0,
            standby_is_asleep: false,
            ready: VecDeque::new(),
            closed: false,
            runtime: None,
        };
        let inner = Arc::new(Inner {
            handle: runtime.handle().clone(),
            state: Mutex::new(state),
            interrupt: Notify::new(),
            standby_wake: Condvar::new(),
            first_may_lead: Condvar::new(),
            pool,
        });
        inner.lock().runtime = Some(Arc::new(runtime));
        inner.start_thread("steadfast-io", Inner::run_first_thread).inspect_err(|_| shut_down(inner.lock()))?;
        // If the second thread cannot be created, dropping this handle ends the first.
        let executor = Self { inner };
        executor.inner.start_thread("steadfast-relief", Inner::relieve_stalls)?;
        Ok(executor)
    }

    /// Returns the runtime of the sockets.
    pub(super) fn handle(&self) -> &Handle {
        &self.inner.handle
    }

    /// Returns the number of threads that were left to a blocked task, apart from the pool's threads.
    pub(super) fn relieved(&self) -> BlockingThreads {
        let state = self.inner.lock();
        let stuck = state.relieved_threads.values().filter(|since| since.elapsed() > STUCK_AFTER).count();
        BlockingThreads { threads: state.relieved_threads.len(), running: state.relieved_threads.len(), stuck }
    }

    /// Spawns a task that may block its thread.
    pub(super) fn spawn(&self, future: BoxFuture<'static, ()>) -> Task {
        let step =
            Mutex::new(UserTaskState { task_state: TaskState::Ready, blocking_steps: None, last_long_step: None });
        let future = Mutex::new(Some(future));
        let task =
            Arc::new(UserTask { executor: self.inner.clone(), affinity: self.inner.pool.affinity(), step, future });
        let running = Arc::downgrade(&task);
        self.inner.queue(task, false);
        Task::new(move || {
            if let Some(task) = running.upgrade() {
                task.abort();
            }
        })
    }
}

impl Drop for IoExecutor {
    fn drop(&mut self) {
        self.inner.lock().closed = true;
        self.inner.interrupt.notify_one();
        self.inner.standby_wake.notify_all();
        self.inner.first_may_lead.notify_all();
    }
}

impl Inner {
    fn start_thread(self: &Arc<Self>, name: &str, run: impl FnOnce(&Arc<Self>) + Send + 'static) -> io::Result<()> {
        let inner = self.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || run(&inner)).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn queue(self: &Arc<Self>, task: Arc<UserTask>, on_own_thread: bool) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            // The task is dropped without the lock: the `Drop` of its future is user code.
            drop(task);
            return;
        }
        if on_own_thread {
            drop(state);
            let next = task.clone();
            task.affinity.run(Box::new(move || next.step_on_own_thread()));
            return;
        }
        state.ready.push_back(task);
        // Outside the runtime, the leading thread checks `ready` before it enters the runtime again.
        if state.serving {
            drop(state);
            self.interrupt.notify_one();
        }
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
                self.interrupt.notify_one();
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

    /// Serves the sockets and runs ready steps, alternately. Returns when the thread is relieved, when the first thread
    /// wants to lead again, or at shutdown.
    ///
    /// No thread is inside the runtime during a step, so a relieving thread can enter it.
    fn lead(self: &Arc<Self>, leader_epoch: u64) {
        let mut steps = 0;
        let mut started_at = Instant::now();
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
                self.first_may_lead.notify_one();
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
                if standby_is_asleep {
                    self.standby_wake.notify_one();
                }
                task.step();
                drop(task);
            } else {
                let Some(runtime) = state.runtime.clone() else { break };
                let idle = state.ready.is_empty();
                state.serving = idle;
                drop(state);
                // With ready steps, the runtime only polls the sockets once. Without ready steps, the runtime sleeps
                // until a socket or a step is ready.
                if idle {
                    runtime.block_on(self.interrupt.notified());
                } else {
                    runtime.block_on(tokio::task::yield_now());
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

    /// Checks if the leading thread is blocked, and relieves it.
    fn relieve_stalls(self: &Arc<Self>) {
        let mut state = self.lock();
        let mut is_reported = false;
        // Number of steps at the last check that found no step running.
        let mut idle = None;
        loop {
            if state.closed {
                // The leading thread handles the shutdown, unless it is in a step, which may never end.
                if state.current_task.is_some() {
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
            match self.start_thread("steadfast-relief", Self::relieve_stalls) {
                Ok(()) => {}
                Err(error) => {
                    if !std::mem::replace(&mut is_reported, true) {
                        tracing::error!(%error, "cannot start a thread; an informer blocks the current thread, and all other tasks wait");
                    }
                    state = self.lock();
                    continue;
                }
            }
            state = self.lock();
            // The step may have ended while the lock was released.
            if state.steps == steps_at_check && state.current_task.take().is_some() && !state.closed {
                let relieved_epoch = state.leader_epoch;
                state.relieved_threads.insert(relieved_epoch, Instant::now());
                state.leader_epoch += 1;
                let leader_epoch = state.leader_epoch;
                drop(state);
                task.record_blocking_step();
                drop(task);
                self.lead(leader_epoch);
            }
            return;
        }
    }
}

/// Shuts down the runtime with all sockets, and drops the queued tasks.
fn shut_down(mut state: MutexGuard<'_, State>) {
    let (runtime, current_task) = (state.runtime.take(), state.current_task.take());
    let ready = std::mem::take(&mut state.ready);
    drop(state);
    // Outside the lock: the `Drop` of a task's future is user code.
    drop((current_task, ready));
    if let Some(runtime) = runtime.and_then(Arc::into_inner) {
        // Waiting for threads that resolve names could take long.
        runtime.shutdown_background();
    }
}

/// A task that may block its thread.
struct UserTask {
    executor: Arc<Inner>,
    /// Selects the thread for the task's steps after it has moved to a thread of its own.
    affinity: ThreadAffinity,
    step: Mutex<UserTaskState>,
    /// `None` after the end. Locked during a step, and only then.
    future: Mutex<Option<BoxFuture<'static, ()>>>,
}

struct UserTaskState {
    task_state: TaskState,
    /// Number of blocking steps in close succession, and the time of the last.
    blocking_steps: Option<(u32, Instant)>,
    /// Time of the last long step, if the task runs on a thread of its own.
    last_long_step: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TaskState {
    /// Waits for a wake-up.
    Idle,
    /// Waits for a thread.
    Ready,
    Stepping,
    /// In a step, and woken again during it.
    SteppingAgain,
    /// Must end in this step or the next.
    Aborted,
    Finished,
}

impl UserTask {
    fn lock(&self) -> MutexGuard<'_, UserTaskState> {
        self.step.lock()
    }

    /// Records that the task blocks other tasks.
    fn record_blocking_step(&self) {
        let now = Instant::now();
        let mut step = self.lock();
        let before =
            step.blocking_steps.filter(|(_, last)| now - *last < BLOCKING_STEPS_WINDOW).map_or(0, |(times, _)| times);
        step.blocking_steps = Some((before + 1, now));
        if before + 1 >= MAX_BLOCKING_STEPS {
            step.last_long_step = Some(now);
        }
    }

    fn abort(self: &Arc<Self>) {
        let (idle, on_own_thread) = {
            let mut step = self.lock();
            let idle = step.task_state == TaskState::Idle;
            if step.task_state != TaskState::Finished {
                step.task_state = TaskState::Aborted;
            }
            (idle, step.last_long_step.is_some())
        };
        // A queued or running task ends at its next step. An idle task needs a step to end, because its future must not
        // be dropped on the caller's thread.
        if idle {
            self.executor.queue(self.clone(), on_own_thread);
        }
    }

    fn step(self: &Arc<Self>) {
        {
            let mut step = self.lock();
            match step.task_state {
                TaskState::Ready => step.task_state = TaskState::Stepping,
                TaskState::Aborted => {}
                _ => return,
            }
        }
        let is_finished = self.poll();
        let (is_ready, on_own_thread) = {
            let mut step = self.lock();
            // A wake-up during the step must not be lost. An abort needs one more step, which drops the future.
            let is_ready = match step.task_state {
                _ if is_finished => false,
                TaskState::SteppingAgain | TaskState::Aborted => true,
                _ => false,
            };
            if is_finished {
                step.task_state = TaskState::Finished;
            } else if step.task_state != TaskState::Aborted {
                step.task_state = if is_ready { TaskState::Ready } else { TaskState::Idle };
            }
            (is_ready, step.last_long_step.is_some())
        };
        if is_ready {
            self.executor.queue(self.clone(), on_own_thread);
        }
    }

    /// Runs a step on the task's own thread.
    fn step_on_own_thread(self: &Arc<Self>) {
        let started_at = Instant::now();
        self.step();
        let ended = Instant::now();
        let mut step = self.lock();
        if ended - started_at > MAX_PROMPT_STEP_DURATION {
            step.last_long_step = Some(ended);
        } else if step.last_long_step.is_some_and(|last| ended - last > PROMPT_PERIOD_BEFORE_RETURN) {
            step.last_long_step = None;
        }
    }

    /// Runs a step. Returns true if the task has finished.
    fn poll(self: &Arc<Self>) -> bool {
        let mut future = self.future.lock();
        let aborted = self.lock().task_state == TaskState::Aborted;
        // The future's `Drop` is user code, and its panic must not end the leading thread.
        let Some(polled) = future.as_mut().filter(|_| !aborted) else {
            let ended = future.take();
            drop(catch_unwind(AssertUnwindSafe(|| drop(ended))));
            return true;
        };
        let _current = self.executor.handle.enter();
        let waker = Waker::from(self.clone());
        let poll_result = catch_unwind(AssertUnwindSafe(|| polled.as_mut().poll(&mut Context::from_waker(&waker))));
        if matches!(poll_result, Ok(Poll::Pending)) {
            return false;
        }
        if poll_result.is_err() {
            tracing::error!("a task panicked and has ended");
        }
        let ended = future.take();
        drop(catch_unwind(AssertUnwindSafe(|| drop(ended))));
        true
    }
}

impl Wake for UserTask {
    fn wake(self: Arc<Self>) {
        let on_own_thread = {
            let mut step = self.lock();
            match step.task_state {
                TaskState::Idle => step.task_state = TaskState::Ready,
                TaskState::Stepping => {
                    step.task_state = TaskState::SteppingAgain;
                    return;
                }
                _ => return,
            }
            step.last_long_step.is_some()
        };
        let executor = self.executor.clone();
        executor.queue(self, on_own_thread);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.clone().wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Name of a task's own thread.
    const OWN: &str = "of its own";

    fn executor() -> IoExecutor {
        IoExecutor::new(BlockingPool::named(OWN)).expect("threads")
    }

    /// Spawns a task that blocks in its first step until the returned value is dropped.
    fn hang(executor: &IoExecutor) -> mpsc::Sender<()> {
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
    fn runs_tasks(executor: &IoExecutor) {
        let (done, finished) = mpsc::channel();
        let served = done.clone();
        executor.handle().spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            served.send("served").expect("the test waits");
        });
        executor.spawn(Box::pin(async move {
            tokio::task::yield_now().await;
            done.send("stepped").expect("the test waits");
        }));
        let mut all = [finished.recv_timeout(LONG), finished.recv_timeout(LONG)]
            .map(|result| result.expect("the executor may_step"));
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
                    let by = poll_result.recv_timeout(LONG).expect("the executor may_step").expect("a thread name");
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
            let name = threads.recv_timeout(LONG).expect("the executor may_step");
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
            executor.handle().spawn(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
            let inner = Arc::downgrade(&executor.inner);
            drop(executor);
            assert_eq!(dropped.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected), "the runtime ends");
            drop(release);
            let started_at = Instant::now();
            while inner.strong_count() > 0 {
                assert!(started_at.elapsed() < LONG, "a thread may_step");
                thread::yield_now();
            }
        }
    }
}
