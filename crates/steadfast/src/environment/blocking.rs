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
    /// Threads there are, idle ones included; they end after 10 s without work, those of an informer after 20.
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

/// Has jobs that come one after the other done by one thread, which does nothing else.
///
/// Allocators keep memory by threads: what changes threads with each job spreads what it frees over as many heaps.
pub(super) struct Seat {
    crew: Crew,
    number: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Jobs that threads have been called for, one each, and such that no thread could be had for.
    jobs: VecDeque<Call>,
    /// By their numbers.
    threads: BTreeMap<u64, Thread>,
    /// The idle threads that have no seat, the one that worked last at the end. It is called first: where one thread does
    /// for all that comes, the others end, and memory is not spread over as many heaps as there were threads once.
    idle: Vec<u64>,
    /// When each running job began.
    running: BTreeMap<u64, Instant>,
    next: u64,
    /// How many jobs no thread could be had for: whoever is done first takes one.
    unserved: usize,
    closed: bool,
}

struct Call {
    job: Job,
    seat: Option<u64>,
}

#[derive(Default)]
struct Thread {
    called: Arc<Condvar>,
    /// The seat of its last job; it does nothing else until it has been idle there for long.
    seat: Option<u64>,
    /// What it is to do for that seat.
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
        if thread.seat.is_some() && !self.closed && self.unserved == 0 {
            return None;
        }
        thread.seat = None;
        let Call { job, seat } = self.jobs.pop_front()?;
        self.unserved = self.unserved.saturating_sub(1);
        thread.seat = seat;
        Some(job)
    }

    /// What calls a thread that has nothing to do; none if it is to end.
    fn sit_idle(&mut self, number: u64) -> Option<Arc<Condvar>> {
        let thread = self.threads.get(&number).filter(|_| !self.closed)?;
        if thread.seat.is_none() {
            self.idle.push(number);
        }
        Some(thread.called.clone())
    }

    /// Whether nobody has called a thread since.
    fn is_idle(&self, number: u64) -> bool {
        let seated = self.threads.get(&number).filter(|thread| thread.seat.is_some());
        !self.closed && seated.map_or_else(|| self.idle.contains(&number), |thread| thread.jobs.is_empty())
    }

    /// Makes a thread one for all jobs, and returns whether it was not.
    fn leave_seat(&mut self, number: u64) -> bool {
        self.threads.get_mut(&number).is_some_and(|thread| thread.seat.take().is_some())
    }
}

impl Crew {
    /// Threads of this name, none so far.
    pub(super) fn named(name: &'static str) -> Self {
        Self { name, shared: Arc::default() }
    }

    /// Runs `job` on an idle thread, or on a new one.
    pub(super) fn run(&self, job: Job) {
        self.call(self.shared.lock(), Call { job, seat: None });
    }

    /// A seat, that has no thread so far.
    pub(super) fn seat(&self) -> Seat {
        Seat { crew: self.clone(), number: self.shared.lock().number() }
    }

    fn call(&self, mut state: MutexGuard<'_, State>, call: Call) {
        state.jobs.push_back(call);
        let idle = state.idle.pop();
        if let Some(thread) = idle.and_then(|number| state.threads.get(&number)) {
            thread.called.notify_one();
            return;
        }
        let number = state.number();
        let crew = self.clone();
        match thread::Builder::new().name(self.name.to_owned()).spawn(move || crew.work(number)) {
            Ok(_) => drop(state.threads.insert(number, Thread::default())),
            Err(error) => {
                state.unserved += 1;
                let threads = state.threads.len();
                tracing::error!(%error, threads, "no thread for what may block; it waits until another one ends");
            }
        }
    }

    /// How many threads there are, and what they do.
    pub(super) fn count(&self) -> BlockingThreads {
        let state = self.shared.lock();
        BlockingThreads {
            threads: state.threads.len(),
            running: state.running.len(),
            stuck: state.running.values().filter(|begun| begun.elapsed() > STUCK).count(),
        }
    }

    /// Lets idle threads end; those that are stuck end whenever their job does.
    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        state.idle.clear();
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
                // Whoever hands a job in contains its panics; a thread must outlive one that slipped through.
                drop(catch_unwind(AssertUnwindSafe(job)));
                state = self.shared.lock();
                state.running.remove(&run);
                continue;
            }
            let Some(called) = state.sit_idle(number) else { break };
            let waited = called.wait_timeout_while(state, IDLE, |state| state.is_idle(number));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            // Where somebody has called, another thread may have been done first, and have taken the job.
            if state.is_idle(number) && !state.leave_seat(number) {
                state.idle.retain(|idle| *idle != number);
                break;
            }
        }
        state.threads.remove(&number);
    }
}

impl Seat {
    /// Runs `job` on the thread of the one before, if there is one yet.
    ///
    /// The one before has nothing more to do than to return: this one waits for that.
    pub(super) fn run(&self, job: Job) {
        let mut state = self.crew.shared.lock();
        let seat = Some(self.number);
        if let Some(thread) = state.threads.values_mut().find(|thread| thread.seat == seat) {
            thread.jobs.push_back(job);
            thread.called.notify_one();
        } else {
            self.crew.call(state, Call { job, seat });
        }
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
    fn what_has_a_seat_is_done_by_one_thread_that_does_nothing_else() {
        let crew = Crew::named("test");
        let seat = crew.seat();
        let (done, finished) = mpsc::channel();
        let tell = |seated: bool| -> super::Job {
            let done = done.clone();
            Box::new(move || done.send((seated, thread::current().id())).expect("the test waits"))
        };
        let (mut seated, mut others) = (HashSet::new(), HashSet::new());
        for _ in 0..1000 {
            // Called as soon as the one before has told, which has yet to return.
            seat.run(tell(true));
            crew.run(tell(false));
            for (is_seated, thread) in finished.iter().take(2) {
                if is_seated {
                    seated.insert(thread)
                } else {
                    others.insert(thread)
                };
            }
        }
        assert_eq!(seated.len(), 1);
        assert!(seated.is_disjoint(&others), "{seated:?}, {others:?}");
        assert_eq!(crew.count().stuck, 0);
    }

    #[test]
    fn idle_threads_end_at_closing() {
        let crew = Crew::named("test");
        crew.run(Box::new(|| {}));
        crew.seat().run(Box::new(|| {}));
        crew.close();
        while crew.count().threads > 0 {
            thread::yield_now();
        }
    }
}
