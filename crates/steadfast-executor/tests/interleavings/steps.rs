//! Scenarios of tasks that do not block: wake-ups, aborts, and the shutdown.

use std::sync::Arc;

use parking_lot::Mutex;
use shuttle::sync::mpsc::channel;
use shuttle::thread;
use steadfast_executor::InjectedExecutorFault;

use crate::check;
use crate::tasks::{ExecutorUnderTest, Inbox};

/// Wakes two tasks from the reactor, from another thread, and from each other.
pub(crate) fn wake_ups(fault: Option<InjectedExecutorFault>) {
    let executor = ExecutorUnderTest::start(fault);
    let (done, finished) = channel();
    let inboxes = [Inbox::default(), Inbox::default()];
    for (own, other) in [(0, 1), (1, 0)] {
        let (own, other, done) = (inboxes[own].clone(), inboxes[other].clone(), done.clone());
        executor.spawn(async move {
            own.receive(1).await;
            other.send();
            own.receive(2).await;
            done.send(()).expect("the scenario waits");
        });
    }
    let from_thread = {
        let inboxes = inboxes.clone();
        thread::spawn(move || inboxes.iter().for_each(Inbox::send))
    };
    for inbox in inboxes {
        executor.sockets.deliver(move || inbox.send());
    }
    for _ in 0..2 {
        finished.recv().expect("each task receives all messages");
    }
    from_thread.join().expect("no panic");
    executor.end();
}

/// Records the thread that drops it.
struct DropRecorder(Arc<Mutex<Vec<String>>>, shuttle::sync::mpsc::Sender<()>);

impl Drop for DropRecorder {
    fn drop(&mut self) {
        self.0.lock().push(thread::current().name().unwrap_or_default().to_owned());
        // The scenario may have ended after another violation.
        let _ = self.1.send(());
    }
}

/// Aborts a task from two threads while another thread wakes it.
pub(crate) fn aborts(fault: Option<InjectedExecutorFault>) {
    let executor = ExecutorUnderTest::start(fault);
    let (inbox, dropped_by) = (Inbox::default(), Arc::default());
    let (dropped, drops) = channel();
    let recorder = DropRecorder(Arc::clone(&dropped_by), dropped);
    let messages = inbox.clone();
    let task = Arc::new(executor.spawn(async move {
        let _recorder = recorder;
        // More messages than the scenario sends.
        messages.receive(usize::MAX).await;
    }));
    let waking = thread::spawn(move || inbox.send());
    let aborting = {
        let task = task.clone();
        thread::spawn(move || task.abort())
    };
    task.abort();
    drops.recv().expect("the future is dropped");
    assert!(drops.recv().is_err(), "the future is dropped once");
    waking.join().expect("no panic");
    aborting.join().expect("no panic");
    let by = std::mem::take(&mut *dropped_by.lock());
    assert!(by.iter().all(|name| name.starts_with("steadfast-")), "dropped by the thread {by:?}");
    executor.end();
}

/// Wakes another task when it is dropped.
struct WakeOnDrop(Inbox);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.send();
    }
}

/// Ends a task by its last reference. The `Drop` of its future uses the executor.
pub(crate) fn last_reference(fault: Option<InjectedExecutorFault>) {
    let executor = ExecutorUnderTest::start(fault);
    let (done, finished) = channel();
    let inbox = Inbox::default();
    let on_drop = WakeOnDrop(inbox.clone());
    executor.spawn(async move {
        inbox.receive(1).await;
        done.send(()).expect("the scenario waits");
    });
    executor.spawn(async move {
        let _on_drop = on_drop;
        // Keeps no waker, so nothing can wake this task again.
        std::future::pending::<()>().await;
    });
    finished.recv().expect("the other task is woken");
    executor.end();
}

/// Drops the executor while tasks are queued, idle, and woken.
pub(crate) fn shutdown(fault: Option<InjectedExecutorFault>) {
    let executor = ExecutorUnderTest::start(fault);
    executor.run_short_task();
    let inbox = Inbox::default();
    for count in [1, 2] {
        executor.spawn(inbox.receive(count));
    }
    let waking = thread::spawn(move || inbox.send());
    executor.end();
    waking.join().expect("no panic");
}

#[test]
fn each_wake_up_is_followed_by_step() {
    check(wake_ups);
}

#[test]
fn aborted_future_is_dropped_once() {
    check(aborts);
}

#[test]
fn futures_are_dropped_without_lock() {
    check(last_reference);
}

#[test]
fn shutdown_ends_all_threads() {
    check(shutdown);
}
