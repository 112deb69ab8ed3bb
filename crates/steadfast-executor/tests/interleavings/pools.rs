//! Scenarios of the blocking pool and of the helper pool.

use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::mpsc::channel;
use shuttle::thread;
use steadfast_executor::{BlockingPool, HelperPool, InjectedExecutorFault, fail_thread_starts};

use crate::check;
use crate::clock::RunningClock;

/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(10);

/// Submits jobs from two threads while idle threads end.
pub(crate) fn jobs(fault: Option<InjectedExecutorFault>) {
    let pool = BlockingPool::named("test").with_fault(fault);
    let clock = RunningClock::start(IDLE);
    let runs: Arc<[AtomicUsize; 4]> = Arc::default();
    let submitters: Vec<_> = (0..2)
        .map(|submitter| {
            let (pool, runs) = (pool.clone(), runs.clone());
            thread::spawn(move || {
                for job in [submitter * 2, submitter * 2 + 1] {
                    let (runs, (done, finished)) = (runs.clone(), channel());
                    pool.run(Box::new(move || {
                        runs[job].fetch_add(1, Ordering::SeqCst);
                        done.send(()).expect("the scenario waits");
                    }));
                    finished.recv().expect("each job runs");
                }
            })
        })
        .collect();
    for thread in submitters {
        thread.join().expect("no panic");
    }
    clock.stop();
    pool.close();
    assert!(runs.iter().all(|runs| runs.load(Ordering::SeqCst) == 1), "each job runs once");
}

/// Runs jobs with and without an affinity, without the passing of time.
pub(crate) fn reserved_thread(fault: Option<InjectedExecutorFault>) {
    let pool = BlockingPool::named("test").with_fault(fault);
    let affinity = pool.affinity();
    let (done, finished) = channel();
    let mut threads = Vec::new();
    for _ in 0..3 {
        let (pinned, other) = (done.clone(), done.clone());
        affinity.run(Box::new(move || pinned.send(Some(thread::current().id())).expect("the scenario waits")));
        pool.run(Box::new(move || other.send(None).expect("the scenario waits")));
        for _ in 0..2 {
            threads.extend(finished.recv().expect("each job runs"));
        }
    }
    threads.dedup();
    assert_eq!(threads.len(), 1, "all jobs of the affinity run on one thread");
    pool.close();
}

/// Runs jobs while the start of a thread fails.
fn failed_thread_start(fault: Option<InjectedExecutorFault>) {
    let pool = BlockingPool::named("test").with_fault(fault);
    let affinity = pool.affinity();
    let (done, finished) = channel();
    let job = || -> Box<dyn FnOnce() + Send> {
        let done = done.clone();
        Box::new(move || done.send(()).expect("the scenario waits"))
    };
    affinity.run(job());
    fail_thread_starts(1);
    pool.run(job());
    // The reservation of an idle thread ends with time.
    let clock = RunningClock::start(IDLE);
    for _ in 0..2 {
        finished.recv().expect("a free thread runs the job");
    }
    clock.stop();
    pool.close();
}

/// Closes the pool while its threads run jobs, wait for jobs, and end.
pub(crate) fn closing(fault: Option<InjectedExecutorFault>) {
    let pool = BlockingPool::named("test").with_fault(fault);
    let (done, finished) = channel();
    let pinned = done.clone();
    pool.affinity().run(Box::new(move || pinned.send(()).expect("the scenario waits")));
    pool.run(Box::new(move || done.send(()).expect("the scenario waits")));
    finished.recv().expect("a job runs");
    pool.close();
    finished.recv().expect("a job that was submitted before the end runs");
}

/// Offers work to one helper from two threads.
pub(crate) fn helper_limit(fault: Option<InjectedExecutorFault>) {
    let pool = Arc::new(HelperPool::new(1).with_fault(fault));
    let running = Arc::new(AtomicUsize::new(0));
    let violations = Arc::new(AtomicUsize::new(0));
    let offering: Vec<_> = (0..2)
        .map(|_| {
            let (pool, running, violations) = (pool.clone(), running.clone(), violations.clone());
            thread::spawn(move || {
                let (done, finished) = channel::<()>();
                pool.run(Box::new(move || {
                    let _done = &done;
                    if running.fetch_add(1, Ordering::SeqCst) > 0 {
                        violations.fetch_add(1, Ordering::SeqCst);
                    }
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    false
                }));
                finished.recv().expect_err("the work is run or dropped");
            })
        })
        .collect();
    for thread in offering {
        thread.join().expect("no panic");
    }
    assert_eq!(violations.load(Ordering::SeqCst), 0, "more helpers than the limit");
    // A free helper runs the next work. The last helper counts as free only after its work was dropped.
    loop {
        let (done, finished) = channel();
        pool.run(Box::new(move || done.send(()).is_err()));
        if finished.recv().is_ok() {
            break;
        }
        thread::yield_now();
    }
}

#[test]
fn each_job_runs_once() {
    check(jobs);
}

#[test]
fn affinity_keeps_its_thread() {
    check(reserved_thread);
}

#[test]
fn job_without_thread_waits_for_one() {
    check(failed_thread_start);
}

#[test]
fn closing_ends_idle_threads() {
    check(closing);
}

#[test]
fn helpers_stay_below_limit() {
    check(helper_limit);
}
