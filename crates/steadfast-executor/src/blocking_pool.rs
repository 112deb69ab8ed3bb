//! Thread pool for blocking code, grown on demand, so that a stuck job delays no other job.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "shuttle")]
use crate::injected_fault::InjectedExecutorFault;
use crate::injected_fault::{Fault, inject};
use crate::sync::{Condvar, Instant, Mutex, MutexGuard, spawn_thread};

/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(10);

/// Run time after which a job counts as stuck.
pub(crate) const STUCK_AFTER: Duration = Duration::from_secs(10);

/// Job for a thread of a [`BlockingPool`].
pub type Job = Box<dyn FnOnce() + Send>;

/// Statistics of the threads for blocking code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockingThreads {
    /// Number of threads, including idle ones. Idle threads end after 10 s, those of an informer after 20 s.
    pub threads: usize,
    /// Threads that run a job.
    pub running: usize,
    /// Jobs that have run for more than 10 s.
    pub stuck: usize,
}

/// Handle of the thread pool; cheap to clone.
#[derive(Clone)]
pub struct BlockingPool {
    name: &'static str,
    fault: Fault,
    shared: Arc<Shared>,
}

/// Runs consecutive jobs on one dedicated thread.
///
/// Allocators keep memory for each thread. A task that changed threads with each job would spread its memory over many
/// heaps.
pub struct ThreadAffinity {
    pool: BlockingPool,
    number: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Jobs for which a thread was woken or created, and jobs for which no thread could be created.
    jobs: VecDeque<QueuedJob>,
    /// Threads by their numbers.
    threads: BTreeMap<u64, Thread>,
    /// Idle threads without an affinity, most recently used last. The most recent thread is used first. If one thread
    /// is enough, the others end, and memory is not spread over the heaps of many threads.
    idle: Vec<u64>,
    /// Start times of running jobs.
    running: BTreeMap<u64, Instant>,
    next: u64,
    /// Number of jobs for which no thread could be created. The next free thread takes one.
    unserved: usize,
    closed: bool,
}

struct QueuedJob {
    job: Job,
    affinity: Option<u64>,
}

#[derive(Default)]
struct Thread {
    called: Arc<Condvar>,
    /// Affinity of the thread's last job. The thread serves only this affinity until it has been idle for a while.
    affinity: Option<u64>,
    /// Jobs of the affinity.
    jobs: VecDeque<Job>,
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn take_job(&mut self, number: u64) -> Option<Job> {
        let thread = self.threads.get_mut(&number)?;
        if let Some(job) = thread.jobs.pop_front() {
            return Some(job);
        }
        // A thread with an affinity stays reserved for its task. A job without a thread ends the reservation, because it
        // would otherwise wait forever.
        if thread.affinity.is_some() && !self.closed && self.unserved == 0 {
            return None;
        }
        thread.affinity = None;
        let QueuedJob { job, affinity } = self.jobs.pop_front()?;
        self.unserved = self.unserved.saturating_sub(1);
        thread.affinity = affinity;
        Some(job)
    }

    /// Registers a thread as idle and returns its wake-up condition, or `None` if the thread must end.
    fn register_idle(&mut self, number: u64, fault: Fault) -> Option<Arc<Condvar>> {
        let thread = self.threads.get(&number).filter(|_| !self.closed)?;
        if thread.affinity.is_none() || inject!(fault, ReservedThreadListed) {
            self.idle.push(number);
        }
        Some(thread.called.clone())
    }

    /// Returns true if no job has woken the thread since the thread registered as idle.
    fn is_idle(&self, number: u64) -> bool {
        let pinned = self.threads.get(&number).filter(|thread| thread.affinity.is_some());
        !self.closed && pinned.map_or_else(|| self.idle.contains(&number), |thread| thread.jobs.is_empty())
    }

    /// Detaches a thread from its affinity. Returns true if the thread had an affinity.
    fn release_thread(&mut self, number: u64) -> bool {
        self.threads.get_mut(&number).is_some_and(|thread| thread.affinity.take().is_some())
    }
}

impl BlockingPool {
    /// Creates an empty pool with this thread name.
    pub fn named(name: &'static str) -> Self {
        Self { name, fault: Fault::default(), shared: Arc::default() }
    }

    /// Injects a fault into this pool and into the executors that use it.
    #[cfg(feature = "shuttle")]
    #[must_use]
    pub fn with_fault(mut self, fault: Option<InjectedExecutorFault>) -> Self {
        self.fault.injected = fault;
        self
    }

    pub(crate) fn fault(&self) -> Fault {
        self.fault
    }

    /// Runs `job` on an idle thread, or on a new one.
    pub fn run(&self, job: Job) {
        self.call(self.shared.lock(), QueuedJob { job, affinity: None });
    }

    /// Creates an affinity without a thread.
    pub fn affinity(&self) -> ThreadAffinity {
        ThreadAffinity { pool: self.clone(), number: self.shared.lock().number() }
    }

    fn call(&self, mut state: MutexGuard<'_, State>, call: QueuedJob) {
        if inject!(self.fault, JobQueuedLate) {
            return self.call_before_queueing(state, call);
        }
        state.jobs.push_back(call);
        self.wake_or_start_thread(&mut state);
    }

    /// Injected fault: wakes a thread for `call` before `call` is queued.
    fn call_before_queueing(&self, mut state: MutexGuard<'_, State>, call: QueuedJob) {
        self.wake_or_start_thread(&mut state);
        drop(state);
        self.shared.lock().jobs.push_back(call);
    }

    /// Wakes an idle thread for the newest job, or starts a thread.
    fn wake_or_start_thread(&self, state: &mut State) {
        let idle = state.idle.pop();
        if let Some(thread) = idle.and_then(|number| state.threads.get(&number)) {
            thread.called.notify_one();
            return;
        }
        let number = state.number();
        let pool = self.clone();
        match spawn_thread(self.name, move || pool.work(number)) {
            // The lock is held during the spawn, so the new thread finds its entry.
            Ok(()) => drop(state.threads.insert(number, Thread::default())),
            Err(error) => {
                state.unserved += 1;
                let threads = state.threads.len();
                tracing::error!(%error, threads, "cannot start a thread for a blocking task; the task waits for a free thread");
            }
        }
    }

    /// Returns the number of threads by state.
    pub fn count(&self) -> BlockingThreads {
        let state = self.shared.lock();
        BlockingThreads {
            threads: state.threads.len(),
            running: state.running.len(),
            stuck: state.running.values().filter(|started_at| started_at.elapsed() > STUCK_AFTER).count(),
        }
    }

    /// Ends idle threads. Stuck threads end after their job.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        // Idle threads check `closed` when they wake, and then end.
        state.closed = true;
        state.idle.clear();
        if inject!(self.fault, CloseNotNotified) {
            return;
        }
        for thread in state.threads.values() {
            thread.called.notify_one();
        }
    }

    fn work(&self, number: u64) {
        let mut state = self.shared.lock();
        loop {
            if let Some(job) = state.take_job(number) {
                let run = state.number();
                state.running.insert(run, Instant::now());
                drop(state);
                // Callers catch panics of their jobs. This catch keeps the thread alive if a caller does not.
                drop(catch_unwind(AssertUnwindSafe(job)));
                state = self.shared.lock();
                state.running.remove(&run);
                continue;
            }
            let Some(called) = state.register_idle(number, self.fault) else { break };
            let is_idle = if inject!(self.fault, IdleExitUnchecked) {
                called.wait_for(&mut state, IDLE).timed_out()
            } else {
                called.wait_while_for(&mut state, |state| state.is_idle(number), IDLE);
                // A job has woken the thread, but another thread may have finished first and taken the job.
                state.is_idle(number)
            };
            if is_idle && !state.release_thread(number) {
                state.idle.retain(|idle| *idle != number);
                break;
            }
        }
        state.threads.remove(&number);
    }
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool").field("name", &self.name).field("threads", &self.count()).finish_non_exhaustive()
    }
}

impl ThreadAffinity {
    /// Runs `job` on the thread of the previous job, if the affinity has one.
    ///
    /// The previous job must be at its end, because `job` waits until the previous job returns.
    pub fn run(&self, job: Job) {
        let mut state = self.pool.shared.lock();
        let affinity = Some(self.number);
        if let Some(thread) = state.threads.values_mut().find(|thread| thread.affinity == affinity) {
            thread.jobs.push_back(job);
            thread.called.notify_one();
        } else {
            self.pool.call(state, QueuedJob { job, affinity });
        }
    }
}

impl fmt::Debug for ThreadAffinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadAffinity").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(not(feature = "shuttle"))]
#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Arc, Barrier, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::BlockingPool;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn stuck_jobs_delay_no_other() {
        let pool = BlockingPool::named("test");
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(parking_lot::Mutex::new(held));
        for _ in 0..20 {
            let held = held.clone();
            pool.run(Box::new(move || held.lock().recv().unwrap_or_default()));
        }
        let (done, finished) = mpsc::channel();
        pool.run(Box::new(move || done.send(()).expect("the test waits")));
        finished.recv_timeout(LONG).expect("a job runs although twenty others do not end");
        assert!(pool.count().running >= 20);
        drop(release);
    }

    #[test]
    fn thread_is_reused_and_survives_panic() {
        let pool = BlockingPool::named("test");
        for round in 0..50 {
            let (done, finished) = mpsc::channel::<()>();
            pool.run(Box::new(move || {
                let _done = done;
                assert!(round % 2 == 0, "a handler panics");
            }));
            finished.recv_timeout(LONG).expect_err("the job drops its sender at its end");
            // The thread counts as idle only after it waits again.
            while pool.count().running > 0 {
                thread::yield_now();
            }
        }
        assert!(pool.count().threads < 50, "{:?}", pool.count());
    }

    #[test]
    fn sequential_jobs_use_one_thread() {
        let pool = BlockingPool::named("test");
        let (done, finished) = mpsc::channel();
        let ended = |jobs: usize| -> HashSet<_> {
            let threads = finished.iter().take(jobs).collect();
            // A thread waits again in the same step in which its job ends.
            while pool.count().running > 0 {
                thread::yield_now();
            }
            threads
        };
        let all = Arc::new(Barrier::new(8));
        for _ in 0..8 {
            let (all, done) = (all.clone(), done.clone());
            pool.run(Box::new(move || {
                all.wait();
                done.send(thread::current().id()).expect("the test waits");
            }));
        }
        assert_eq!(ended(8).len(), 8);
        let mut threads = HashSet::new();
        for _ in 0..100 {
            let done = done.clone();
            pool.run(Box::new(move || done.send(thread::current().id()).expect("the test waits")));
            threads.extend(ended(1));
        }
        assert_eq!(threads.len(), 1);
    }

    #[test]
    fn seat_jobs_run_on_dedicated_thread() {
        let pool = BlockingPool::named("test");
        let affinity = pool.affinity();
        let (done, finished) = mpsc::channel();
        let tell = |pinned: bool| -> super::Job {
            let done = done.clone();
            Box::new(move || done.send((pinned, thread::current().id())).expect("the test waits"))
        };
        let (mut pinned, mut others) = (HashSet::new(), HashSet::new());
        for _ in 0..1000 {
            // Called directly after the previous job has signalled, before it has returned.
            affinity.run(tell(true));
            pool.run(tell(false));
            for (is_seated, thread) in finished.iter().take(2) {
                if is_seated {
                    pinned.insert(thread)
                } else {
                    others.insert(thread)
                };
            }
        }
        assert_eq!(pinned.len(), 1);
        assert!(pinned.is_disjoint(&others), "{pinned:?}, {others:?}");
        assert_eq!(pool.count().stuck, 0);
    }

    #[test]
    fn idle_threads_end_at_closing() {
        let pool = BlockingPool::named("test");
        pool.run(Box::new(|| {}));
        pool.affinity().run(Box::new(|| {}));
        pool.close();
        while pool.count().threads > 0 {
            thread::yield_now();
        }
    }
}
