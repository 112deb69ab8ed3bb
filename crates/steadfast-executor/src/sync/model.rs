//! Locks, atomics, threads and the clock of the model checker `shuttle`, with the interface of those of the machine.
//!
//! `shuttle` has no clock, and its timed waits never time out. Here, time passes only in [`advance_clock`], and a timed
//! wait ends at its deadline. A test can therefore combine each timeout with each interleaving. Waits without a timeout
//! end only by a notification, so a lost notification is a deadlock, which `shuttle` reports.

use std::ops::{Deref, DerefMut, Sub};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;
use std::{io, mem};

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, Thread};

pub(crate) use shuttle::sync::atomic::AtomicUsize;

/// Clock and limits of one execution. Never locked across a point at which the model checker may switch threads.
#[derive(Default)]
struct World {
    /// Time since the start of the execution.
    now: Duration,
    /// Threads in timed waits.
    sleepers: Vec<Arc<Waiter>>,
    /// Number of thread starts that still fail.
    failing_thread_starts: usize,
}

shuttle::lazy_static! {
    // The model checker creates one for each execution.
    static ref WORLD: parking_lot::Mutex<World> = parking_lot::Mutex::default();
}

/// Advances the clock of the current execution, and wakes each thread whose deadline has passed.
pub fn advance_clock(duration: Duration) {
    let due: Vec<_> = {
        let mut world = WORLD.lock();
        world.now += duration;
        let now = ModelInstant(world.now);
        let (due, sleepers) = mem::take(&mut world.sleepers).into_iter().partition(|sleeper| sleeper.is_due(now));
        world.sleepers = sleepers;
        due
    };
    for sleeper in due {
        sleeper.thread.unpark();
    }
}

/// Lets the next `count` thread starts of the current execution fail.
pub fn fail_thread_starts(count: usize) {
    WORLD.lock().failing_thread_starts = count;
}

/// Instant of the clock that [`advance_clock`] advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ModelInstant(Duration);

impl ModelInstant {
    pub(crate) fn now() -> Self {
        Self(WORLD.lock().now)
    }

    pub(crate) fn elapsed(self) -> Duration {
        Self::now() - self
    }
}

impl Sub for ModelInstant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Starts a thread. The execution fails as a deadlock if the thread never ends.
///
/// # Errors
///
/// Returns an error if a test has requested one with [`fail_thread_starts`].
pub(crate) fn spawn_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    {
        let mut world = WORLD.lock();
        if world.failing_thread_starts > 0 {
            world.failing_thread_starts -= 1;
            return Err(io::Error::other("the test lets this thread start fail"));
        }
    }
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
    // Dropping the handle would detach the thread, and a detached thread may stay blocked at the end of the execution.
    mem::forget(thread);
    Ok(())
}

#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, locked: Some(self.lock_inner()) }
    }

    pub(crate) fn is_locked(&self) -> bool {
        matches!(self.0.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn lock_inner(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` only while a condition variable waits.
    locked: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.locked.as_ref().expect("the mutex is locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.locked.as_mut().expect("the mutex is locked")
    }
}

/// Thread that waits for a condition variable.
struct Waiter {
    thread: Thread,
    deadline: Option<ModelInstant>,
    is_notified: AtomicBool,
}

impl Waiter {
    fn is_due(&self, now: ModelInstant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

pub(crate) struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

#[derive(Default)]
pub(crate) struct Condvar {
    waiters: Mutex<Vec<Arc<Waiter>>>,
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_until(guard, None);
    }

    pub(crate) fn wait_while<T>(&self, guard: &mut MutexGuard<'_, T>, mut condition: impl FnMut(&mut T) -> bool) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        self.wait_until(guard, Some(ModelInstant(ModelInstant::now().0 + timeout)))
    }

    pub(crate) fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let deadline = ModelInstant(ModelInstant::now().0 + timeout);
        while condition(guard) {
            if self.wait_until(guard, Some(deadline)).timed_out() {
                return WaitTimeoutResult(condition(guard));
            }
        }
        WaitTimeoutResult(false)
    }

    /// Notifies one of the waiting threads, selected by the model checker.
    pub(crate) fn notify_one(&self) {
        let notified = {
            let mut waiters = self.waiters.lock();
            if waiters.is_empty() {
                return;
            }
            let chosen = thread_rng().gen_range(0..waiters.len());
            let waiter = waiters.swap_remove(chosen);
            waiter.is_notified.store(true, Ordering::SeqCst);
            waiter
        };
        notified.thread.unpark();
    }

    pub(crate) fn notify_all(&self) {
        let notified = mem::take(&mut *self.waiters.lock());
        for waiter in notified {
            waiter.is_notified.store(true, Ordering::SeqCst);
            waiter.thread.unpark();
        }
    }

    fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Option<ModelInstant>) -> WaitTimeoutResult {
        let waiter = Arc::new(Waiter { thread: thread::current(), deadline, is_notified: AtomicBool::new(false) });
        // Registered before the mutex is released, so a later notification finds this thread.
        self.waiters.lock().push(waiter.clone());
        if deadline.is_some() {
            WORLD.lock().sleepers.push(waiter.clone());
        }
        guard.locked = None;
        let is_notified = || waiter.is_notified.load(Ordering::SeqCst);
        let timed_out = loop {
            if is_notified() {
                break false;
            }
            if waiter.is_due(ModelInstant::now()) {
                let mut waiters = self.waiters.lock();
                // Notified in the meantime. Otherwise a later notification must go to another thread.
                if is_notified() {
                    break false;
                }
                waiters.retain(|other| !Arc::ptr_eq(other, &waiter));
                break true;
            }
            // No switch of threads happens between the checks and this call, so no wake-up is lost.
            thread::park();
        };
        guard.locked = Some(guard.mutex.lock_inner());
        WaitTimeoutResult(timed_out)
    }
}
