//! Threads for code that may block, taken on demand: one that is stuck delays nobody.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread without work is kept.
const IDLE: Duration = Duration::from_secs(10);

/// After how long a job counts as stuck.
pub(super) const STUCK: Duration = Duration::from_secs(10);

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// How many threads run code that may block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockingThreads {
    /// Threads there are, idle ones included; they end after 10 s without work.
    pub threads: usize,
    /// Threads that run a job.
    pub running: usize,
    /// Jobs that have run for more than 10 s.
    pub stuck: usize,
}

/// The threads, as one value; cheap to clone.
#[derive(Clone)]
pub(super) struct Crew {
    name: &'static str,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Jobs that threads have been called for, one each, and such that no thread could be had for.
    jobs: VecDeque<Job>,
    /// What calls each idle thread, that of the one that worked last at the end. It is called first: where one thread does
    /// for all that comes, the others end, and memory is not spread over as many heaps as there were threads once.
    idle: Vec<Arc<Condvar>>,
    threads: usize,
    /// When each running job began.
    running: BTreeMap<u64, Instant>,
    next: u64,
    closed: bool,
}

impl Crew {
    /// Threads of this name, none so far.
    pub(super) fn named(name: &'static str) -> Self {
        Self { name, shared: Arc::default() }
    }

    /// Runs `job` on an idle thread, or on a new one.
    pub(super) fn run(&self, job: Job) {
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        if let Some(idle) = state.idle.pop() {
            idle.notify_one();
            return;
        }
        let crew = self.clone();
        match thread::Builder::new().name(self.name.to_owned()).spawn(move || crew.work()) {
            Ok(_) => state.threads += 1,
            Err(error) => {
                let threads = state.threads;
                tracing::error!(%error, threads, "no thread for what may block; it waits until another one ends");
            }
        }
    }

    /// How many threads there are, and what they do.
    pub(super) fn count(&self) -> BlockingThreads {
        let state = self.shared.lock();
        BlockingThreads {
            threads: state.threads,
            running: state.running.len(),
            stuck: state.running.values().filter(|begun| begun.elapsed() > STUCK).count(),
        }
    }

    /// Lets idle threads end; those that are stuck end whenever their job does.
    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        for idle in state.idle.drain(..) {
            idle.notify_one();
        }
    }

    fn work(&self) {
        let call = Arc::new(Condvar::new());
        let mut state = self.shared.lock();
        loop {
            while let Some(job) = state.jobs.pop_front() {
                let number = state.next;
                state.next += 1;
                state.running.insert(number, Instant::now());
                drop(state);
                // Whoever hands a job in contains its panics; a thread must outlive one that slipped through.
                drop(catch_unwind(AssertUnwindSafe(job)));
                state = self.shared.lock();
                state.running.remove(&number);
            }
            if state.closed {
                break;
            }
            state.idle.push(call.clone());
            let is_idle = |state: &mut State| state.idle.iter().any(|idle| Arc::ptr_eq(idle, &call));
            let waited = call.wait_timeout_while(state, IDLE, is_idle);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            // Nobody has called. Where somebody has, another thread may have been done first, and have taken the job.
            if is_idle(&mut state) {
                state.idle.retain(|idle| !Arc::ptr_eq(idle, &call));
                break;
            }
        }
        state.threads -= 1;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Arc, Barrier, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::Crew;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn stuck_jobs_delay_no_other() {
        let crew = Crew::named("test");
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        for _ in 0..20 {
            let held = held.clone();
            crew.run(Box::new(move || drop(held.lock().map(|held| held.recv()))));
        }
        let (done, finished) = mpsc::channel();
        crew.run(Box::new(move || done.send(()).expect("the test waits")));
        finished.recv_timeout(LONG).expect("a job ran beside twenty that do not end");
        assert!(crew.count().running >= 20);
        drop(release);
    }

    #[test]
    fn a_thread_is_used_again_and_survives_a_panic() {
        let crew = Crew::named("test");
        for round in 0..50 {
            let (done, finished) = mpsc::channel::<()>();
            crew.run(Box::new(move || {
                let _done = done;
                assert!(round % 2 == 0, "a handler panics");
            }));
            finished.recv_timeout(LONG).expect_err("the job drops its sender at its end");
            // The thread counts as idle only once it waits again.
            while crew.count().running > 0 {
                thread::yield_now();
            }
        }
        assert!(crew.count().threads < 50, "{:?}", crew.count());
    }

    #[test]
    fn what_comes_one_after_the_other_is_done_by_one_thread_however_many_there_are() {
        let crew = Crew::named("test");
        let (done, finished) = mpsc::channel();
        let ended = |jobs: usize| -> HashSet<_> {
            let threads = finished.iter().take(jobs).collect();
            // It waits again in the moment in which its job is none that runs.
            while crew.count().running > 0 {
                thread::yield_now();
            }
            threads
        };
        let all = Arc::new(Barrier::new(8));
        for _ in 0..8 {
            let (all, done) = (all.clone(), done.clone());
            crew.run(Box::new(move || {
                all.wait();
                done.send(thread::current().id()).expect("the test waits");
            }));
        }
        assert_eq!(ended(8).len(), 8);
        let mut threads = HashSet::new();
        for _ in 0..100 {
            let done = done.clone();
            crew.run(Box::new(move || done.send(thread::current().id()).expect("the test waits")));
            threads.extend(ended(1));
        }
        assert_eq!(threads.len(), 1);
    }

    #[test]
    fn idle_threads_end_at_closing() {
        let crew = Crew::named("test");
        crew.run(Box::new(|| {}));
        crew.close();
        while crew.count().threads > 0 {
            thread::yield_now();
        }
    }
}
