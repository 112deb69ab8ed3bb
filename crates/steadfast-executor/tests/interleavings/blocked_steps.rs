//! Scenarios of steps that block their thread.

use std::task::Poll;
use std::time::Duration;

use shuttle::sync::mpsc::channel;
use shuttle::thread;
use steadfast_executor::{InjectedExecutorFault, fail_thread_starts};

use crate::check;
use crate::clock::RunningClock;
use crate::tasks::{ExecutorUnderTest, Inbox, OWN};

/// Interval of the standby thread's checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Blocks a step until another task has received a socket event and a wake-up.
fn run_next_to_blocked_step(executor: &ExecutorUnderTest) {
    let (release, finished) = executor.spawn_blocking_task();
    let (done, received) = channel();
    let inbox = Inbox::default();
    let receiving = inbox.receive(2);
    executor.spawn(async move {
        receiving.await;
        done.send(()).expect("the scenario waits");
    });
    inbox.send();
    executor.sockets.deliver(move || inbox.send());
    received.recv().expect("the other task continues during the blocked step");
    drop(release);
    finished.recv().expect("the blocked step continues");
}

/// Blocks a step, and runs other tasks in the meantime and afterwards.
pub(crate) fn relief(fault: Option<InjectedExecutorFault>) {
    let executor = ExecutorUnderTest::start(fault);
    let clock = RunningClock::start(CHECK_INTERVAL);
    run_next_to_blocked_step(&executor);
    executor.run_short_task();
    clock.stop();
    executor.end();
}

/// Blocks a step while the first starts of a replacement fail.
fn relief_without_threads(fault: Option<InjectedExecutorFault>) {
    let executor = ExecutorUnderTest::start(fault);
    fail_thread_starts(2);
    let clock = RunningClock::start(CHECK_INTERVAL);
    run_next_to_blocked_step(&executor);
    clock.stop();
    executor.end();
}

/// Checks that the first thread leads again after its blocked step, without a further event.
pub(crate) fn handback(fault: Option<InjectedExecutorFault>) {
    let executor = ExecutorUnderTest::start(fault);
    let clock = RunningClock::start(CHECK_INTERVAL);
    let (release, finished) = executor.spawn_blocking_task();
    executor.run_short_task();
    drop(release);
    finished.recv().expect("the blocked step continues");
    // No step runs any more, so no thread is relieved again.
    clock.stop();
    loop {
        let (name, names) = channel();
        executor.spawn(async move {
            let own = thread::current().name().unwrap_or_default().to_owned();
            name.send(own).expect("the scenario waits");
        });
        if names.recv().expect("the task runs") == "steadfast-io" {
            break;
        }
        thread::yield_now();
    }
    executor.end();
}

/// Drops the executor during a blocked step, which ends only after the shutdown of the reactor.
pub(crate) fn shutdown_in_step(fault: Option<InjectedExecutorFault>) {
    let executor = ExecutorUnderTest::start(fault);
    let clock = RunningClock::start(CHECK_INTERVAL);
    let (release, _finished) = executor.spawn_blocking_task();
    let remains = executor.drop_executor();
    remains.sockets.wait_for_shutdown();
    drop(release);
    clock.stop();
    remains.end();
}

/// Drops the executor while the first thread returns from its blocked step.
pub(crate) fn shutdown_after_step(fault: Option<InjectedExecutorFault>) {
    let executor = ExecutorUnderTest::start(fault);
    let clock = RunningClock::start(CHECK_INTERVAL);
    let (release, _finished) = executor.spawn_blocking_task();
    executor.run_short_task();
    drop(release);
    executor.end();
    clock.stop();
}

/// Wakes a task during its blocked step, which lasts until another task has run.
pub(crate) fn woken_in_step(fault: Option<InjectedExecutorFault>) {
    let executor = ExecutorUnderTest::start(fault);
    let clock = RunningClock::start(CHECK_INTERVAL);
    let (release, held) = channel::<()>();
    let (started, starts) = channel();
    let (done, finished) = channel();
    let inbox = Inbox::default();
    let messages = inbox.clone();
    executor.spawn(std::future::poll_fn(move |context| {
        // The message wakes this task during the step.
        let mut receiving = std::pin::pin!(messages.receive(1));
        if receiving.as_mut().poll(context).is_ready() {
            done.send(()).expect("the scenario waits");
            return Poll::Ready(());
        }
        started.send(()).expect("the scenario waits");
        let _ = held.recv();
        Poll::Pending
    }));
    starts.recv().expect("the step starts");
    inbox.send();
    executor.run_short_task();
    drop(release);
    finished.recv().expect("the task is polled again");
    clock.stop();
    executor.end();
}

/// Ends the current step of a task, and requests another one.
fn end_step() -> impl Future<Output = ()> {
    let mut has_ended = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut has_ended, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Blocks the steps of one task until the task has a thread of its own.
fn own_thread(fault: Option<InjectedExecutorFault>) {
    let executor = ExecutorUnderTest::start(fault);
    let (release, held) = channel::<()>();
    let (started, starts) = channel();
    executor.spawn(async move {
        loop {
            let name = thread::current().name().unwrap_or_default().to_owned();
            if started.send(name).is_err() || held.recv().is_err() {
                return;
            }
            end_step().await;
        }
    });
    let mut blocking_steps = 0;
    loop {
        let name = starts.recv().expect("the task starts a step");
        if name == OWN {
            // No relief is necessary now, so no time passes.
            executor.run_short_task();
            break;
        }
        // A clock of its own thread could advance by more than a second, after which the count starts again.
        executor.run_short_task_over_time(CHECK_INTERVAL);
        blocking_steps += 1;
        release.send(()).expect("the step waits");
    }
    assert!(blocking_steps >= 4, "a thread of its own after {blocking_steps} blocking steps");
    drop((release, starts));
    executor.end();
}

#[test]
fn blocked_step_stops_no_other_task() {
    check(relief);
}

#[test]
fn relief_repeats_failed_thread_starts() {
    check(relief_without_threads);
}

#[test]
fn first_thread_leads_again() {
    check(handback);
}

#[test]
fn shutdown_does_not_wait_for_step() {
    check(shutdown_in_step);
}

#[test]
fn shutdown_ends_relieved_threads() {
    check(shutdown_after_step);
}

#[test]
fn wake_up_in_blocked_step_is_kept() {
    check(woken_in_step);
}

#[test]
fn often_blocking_task_gets_own_thread() {
    check(own_thread);
}
