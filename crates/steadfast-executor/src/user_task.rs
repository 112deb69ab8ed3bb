//! Task that may block its thread: its future, its state, and its wake-ups.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::blocking_pool::{BlockingPool, ThreadAffinity};
use crate::injected_fault::inject;
use crate::sync::{Instant, Mutex, MutexGuard};

/// Number of blocking steps in close succession after which a task moves to a thread of its own. A single blocking step
/// may be due to a large list, or to an overloaded machine.
pub(crate) const MAX_BLOCKING_STEPS: u32 = 4;
const BLOCKING_STEPS_WINDOW: Duration = Duration::from_secs(1);

/// Maximum duration of a prompt step.
pub(crate) const MAX_PROMPT_STEP_DURATION: Duration = Duration::from_millis(20);

/// A task returns from its own thread to the shared thread if all its steps were prompt for this time.
const PROMPT_PERIOD_BEFORE_RETURN: Duration = Duration::from_secs(1);

/// Future of a task.
pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Scheduler of tasks: selects the thread for each step.
pub(crate) trait TaskScheduler: Send + Sync + Sized + 'static {
    /// Schedules one step of `task`, on the task's own thread if requested. Drops `task` after the shutdown.
    fn schedule(self: &Arc<Self>, task: Arc<UserTask<Self>>, on_own_thread: bool);

    /// Runs `poll` on this thread, with the sockets and timers of this scheduler as the current ones.
    fn enter<T>(&self, poll: impl FnOnce() -> T) -> T;

    /// Returns the pool of the tasks' own threads.
    fn pool(&self) -> &BlockingPool;
}

/// Task that may block its thread.
pub(crate) struct UserTask<S> {
    scheduler: Arc<S>,
    /// Selects the thread for the task's steps after it has moved to a thread of its own.
    affinity: ThreadAffinity,
    step: Mutex<UserTaskState>,
    /// `None` after the end. Locked during a step, and only then.
    future: Mutex<Option<TaskFuture>>,
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

impl<S: TaskScheduler> UserTask<S> {
    /// Creates a task that waits for a thread. The caller schedules its first step.
    pub(crate) fn new(scheduler: Arc<S>, future: TaskFuture) -> Arc<Self> {
        let step = UserTaskState { task_state: TaskState::Ready, blocking_steps: None, last_long_step: None };
        let affinity = scheduler.pool().affinity();
        Arc::new(Self { scheduler, affinity, step: Mutex::new(step), future: Mutex::new(Some(future)) })
    }

    fn lock(&self) -> MutexGuard<'_, UserTaskState> {
        self.step.lock()
    }

    /// Records that the task blocks other tasks.
    pub(crate) fn record_blocking_step(&self) {
        let now = Instant::now();
        let mut step = self.lock();
        let before =
            step.blocking_steps.filter(|(_, last)| now - *last < BLOCKING_STEPS_WINDOW).map_or(0, |(times, _)| times);
        step.blocking_steps = Some((before + 1, now));
        if before + 1 >= MAX_BLOCKING_STEPS {
            step.last_long_step = Some(now);
        }
    }

    /// Ends the task at its next step, and schedules that step.
    pub(crate) fn abort(self: &Arc<Self>) {
        let (idle, on_own_thread) = {
            let mut step = self.lock();
            let idle = step.task_state == TaskState::Idle;
            if step.task_state != TaskState::Finished {
                step.task_state = TaskState::Aborted;
            }
            (idle, step.last_long_step.is_some())
        };
        if idle && inject!(self.scheduler.pool().fault(), AbortOnCaller) {
            drop(self.future.lock().take());
            return;
        }
        // A queued or running task ends at its next step. An idle task needs a step to end, because its future must not
        // be dropped on the caller's thread.
        if idle {
            self.scheduler.schedule(self.clone(), on_own_thread);
        }
    }

    /// Runs a step on this thread, and schedules another one if the task was woken during the step.
    pub(crate) fn step(self: &Arc<Self>) {
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
            } else if step.task_state != TaskState::Aborted || inject!(self.scheduler.pool().fault(), AbortOverwritten)
            {
                step.task_state = if is_ready { TaskState::Ready } else { TaskState::Idle };
            }
            (is_ready, step.last_long_step.is_some())
        };
        if is_ready {
            self.scheduler.schedule(self.clone(), on_own_thread);
        }
    }

    /// Schedules a step on the task's own thread.
    ///
    /// The affinity runs one step after the other, on one thread.
    pub(crate) fn schedule_on_own_thread(self: &Arc<Self>) {
        let next = self.clone();
        self.affinity.run(Box::new(move || next.step_on_own_thread()));
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

    /// Polls the future once. Returns true if the task has finished.
    fn poll(self: &Arc<Self>) -> bool {
        debug_assert!(!self.future.is_locked(), "one thread at a time is in a step of a task");
        let mut future = self.future.lock();
        let aborted = self.lock().task_state == TaskState::Aborted;
        // The future's `Drop` is user code, and its panic must not end the thread of this step.
        let Some(polled) = future.as_mut().filter(|_| !aborted) else {
            let ended = future.take();
            self.scheduler.enter(|| drop(catch_unwind(AssertUnwindSafe(|| drop(ended)))));
            return true;
        };
        let waker = Waker::from(self.clone());
        let poll_result = self
            .scheduler
            .enter(|| catch_unwind(AssertUnwindSafe(|| polled.as_mut().poll(&mut Context::from_waker(&waker)))));
        if matches!(poll_result, Ok(Poll::Pending)) {
            return false;
        }
        if poll_result.is_err() {
            tracing::error!("a task panicked and has ended");
        }
        let ended = future.take();
        self.scheduler.enter(|| drop(catch_unwind(AssertUnwindSafe(|| drop(ended)))));
        true
    }
}

impl<S: TaskScheduler> Wake for UserTask<S> {
    fn wake(self: Arc<Self>) {
        let fault = self.scheduler.pool().fault();
        let on_own_thread = {
            let mut step = self.lock();
            match step.task_state {
                TaskState::Idle => step.task_state = TaskState::Ready,
                TaskState::Stepping if inject!(fault, WakeInStepQueued) => step.task_state = TaskState::Ready,
                TaskState::Stepping if inject!(fault, WakeInStepLost) => return,
                TaskState::Stepping => {
                    step.task_state = TaskState::SteppingAgain;
                    return;
                }
                _ => return,
            }
            step.last_long_step.is_some()
        };
        let scheduler = self.scheduler.clone();
        scheduler.schedule(self, on_own_thread);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.clone().wake();
    }
}
