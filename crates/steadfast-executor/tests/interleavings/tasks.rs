//! Executor of a test, and tasks that check how they are polled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
// Each operation on this type is a point at which the model checker may switch threads.
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::thread;
use steadfast_executor::{BlockingPool, InjectedExecutorFault, IoExecutor, UserTaskHandle, advance_clock};

use crate::simulated_reactor::{SimulatedReactor, Sockets};

/// Name of a task's own thread.
pub(crate) const OWN: &str = "of its own";

/// Executor under test. A violation inside a task is recorded, because the executor catches panics of tasks.
pub(crate) struct ExecutorUnderTest {
    executor: IoExecutor<SimulatedReactor>,
    pub(crate) sockets: Sockets,
    pool: BlockingPool,
    violations: Arc<Mutex<Vec<String>>>,
}

impl ExecutorUnderTest {
    pub(crate) fn start(fault: Option<InjectedExecutorFault>) -> Self {
        let (reactor, sockets) = SimulatedReactor::new();
        let pool = BlockingPool::named(OWN).with_fault(fault);
        let executor = IoExecutor::new(reactor, pool.clone()).expect("threads");
        Self { executor, sockets, pool, violations: Arc::default() }
    }

    /// Spawns a future, and checks that one thread at a time polls it.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> UserTaskHandle<SimulatedReactor> {
        self.executor.spawn(Box::pin(Watched {
            future: Box::pin(future),
            is_polled: AtomicBool::new(false),
            violations: self.violations.clone(),
        }))
    }

    /// Runs a short task, and advances the clock by `tick` until the task has ended.
    pub(crate) fn run_short_task_over_time(&self, tick: Duration) {
        let (done, finished) = channel();
        self.spawn(async move { done.send(()).expect("the scenario waits") });
        while finished.try_recv().is_err() {
            advance_clock(tick);
            thread::yield_now();
        }
    }

    /// Spawns a task that ends in its first step, and waits for its end.
    pub(crate) fn run_short_task(&self) {
        let (done, finished) = channel();
        self.spawn(async move { done.send(()).expect("the scenario waits") });
        finished.recv().expect("the task runs");
    }

    /// Spawns a task whose first step lasts until the returned value is dropped. Returns in that step.
    pub(crate) fn spawn_blocking_task(&self) -> (Sender<()>, Receiver<()>) {
        let (release, held) = channel::<()>();
        let (started, starts) = channel();
        let (done, finished) = channel();
        self.spawn(async move {
            started.send(()).expect("the scenario waits");
            let _ = held.recv();
            // The scenario may have ended its wait with the shutdown.
            let _ = done.send(());
        });
        starts.recv().expect("the task starts");
        (release, finished)
    }

    /// Drops the executor.
    pub(crate) fn drop_executor(self) -> Remains {
        let Self { executor, sockets, pool, violations } = self;
        drop(executor);
        Remains { sockets, pool, violations }
    }

    /// Drops the executor, and checks for violations. The model checker checks that all threads end.
    pub(crate) fn end(self) {
        self.drop_executor().end();
    }
}

/// State that remains after the executor was dropped.
pub(crate) struct Remains {
    pub(crate) sockets: Sockets,
    pool: BlockingPool,
    violations: Arc<Mutex<Vec<String>>>,
}

impl Remains {
    pub(crate) fn end(self) {
        self.sockets.wait_for_shutdown();
        self.pool.close();
        let violations = std::mem::take(&mut *self.violations.lock());
        assert!(violations.is_empty(), "{violations:?}");
    }
}

/// Future that records a violation if two threads poll it at once.
struct Watched {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_polled: AtomicBool,
    violations: Arc<Mutex<Vec<String>>>,
}

impl Future for Watched {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_polled.swap(true, Ordering::SeqCst) {
            self.violations.lock().push("two threads poll one task".to_owned());
        }
        let polled = self.future.as_mut().poll(context);
        self.is_polled.store(false, Ordering::SeqCst);
        polled
    }
}

/// Messages for one task.
#[derive(Clone, Default)]
pub(crate) struct Inbox(Arc<shuttle::sync::Mutex<InboxState>>);

#[derive(Default)]
struct InboxState {
    messages: usize,
    waker: Option<Waker>,
}

impl Inbox {
    /// Adds a message, and wakes the task.
    pub(crate) fn send(&self) {
        let waker = {
            let mut state = self.0.lock().expect("no panic under the lock");
            state.messages += 1;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Receives `count` messages.
    pub(crate) fn receive(&self, count: usize) -> impl Future<Output = ()> + Send + use<> {
        let inbox = self.clone();
        let mut received = 0;
        std::future::poll_fn(move |context| {
            let mut state = inbox.0.lock().expect("no panic under the lock");
            let taken = state.messages.min(count - received);
            state.messages -= taken;
            received += taken;
            if received >= count {
                return Poll::Ready(());
            }
            let previous = state.waker.replace(context.waker().clone());
            drop(state);
            drop(previous);
            Poll::Pending
        })
    }
}
