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
    work: Condvar,
}

#[derive(Default)]
struct State {
    /// Jobs that idle threads have been woken for, one each, and such that no thread could be had for.
    jobs: VecDeque<Job>,
    idle: usize,
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
        if state.idle >= state.jobs.len() {
            self.shared.work.notify_one();
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
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }

    fn work(&self) {
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
            state.idle += 1;
            let idle = |state: &mut State| state.jobs.is_empty() && !state.closed;
            let waited = self.shared.work.wait_timeout_while(state, IDLE, idle);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.idle -= 1;
            if state.jobs.is_empty() {
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
    use std::sync::mpsc;
    use std::time::Duration;

    use super::Crew;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn stuck_jobs_delay_no_other() {
        let crew = Crew::named("test");
        let (release, held) = mpsc::channel::<()>();
        let held = std::sync::Arc::new(std::sync::Mutex::new(held));
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
                std::thread::yield_now();
            }
        }
        assert!(crew.count().threads < 50, "{:?}", crew.count());
    }

    #[test]
    fn idle_threads_end_at_closing() {
        let crew = Crew::named("test");
        crew.run(Box::new(|| {}));
        crew.close();
        while crew.count().threads > 0 {
            std::thread::yield_now();
        }
    }
}
