//! Supervision of long-lived tasks: a task that ends unexpectedly is logged, counted and restarted with backoff.
//!
//! If a task fails repeatedly, the program's liveness check fails until a run of the task lasts long enough. A restart
//! of the whole program may help if a restart of the task does not.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep};

use crate::engine_event::{EngineEvent, EventCallback};

/// Delay before the first restart of a task. Each further delay doubles.
const RESTART_INITIAL_DELAY: Duration = Duration::from_secs(1);

/// Maximum delay before a restart.
const RESTART_MAX_DELAY: Duration = Duration::from_secs(60);

/// Minimum duration of a successful run. Afterwards the delay starts over, and the task is healthy again.
const HEALTHY_RUN: Duration = Duration::from_secs(60);

/// Number of failures within [`FAILURE_WINDOW`] that makes a task unhealthy.
const MAX_FAILURES: usize = 5;

/// Period in which failures are counted.
const FAILURE_WINDOW: Duration = Duration::from_secs(600);

/// Starts long-lived tasks and restarts tasks that end. Clones share the tasks.
#[derive(Clone)]
pub struct Supervisor {
    shared: Arc<SupervisedTasks>,
}

struct SupervisedTasks {
    report: Arc<EventCallback>,
    tasks: Mutex<BTreeMap<u64, TaskHealth>>,
    /// Restarts by task name, including stopped tasks, since a counter must not decrease.
    restarts: Mutex<BTreeMap<String, u64>>,
}

/// Record of one supervised task.
struct TaskHealth {
    name: String,
    failures: VecDeque<Instant>,
    /// Number of consecutive failures since the last lasting run.
    consecutive_failures: u32,
    started: Option<Instant>,
    last_failure: String,
}

/// A supervised task. Dropping the value stops the task.
pub struct Supervised {
    task: JoinHandle<()>,
    id: u64,
    shared: Arc<SupervisedTasks>,
}

impl Supervisor {
    /// Creates a supervisor that reports failures to `report`.
    pub fn new(report: Arc<EventCallback>) -> Self {
        Self { shared: Arc::new(SupervisedTasks { report, tasks: Mutex::default(), restarts: Mutex::default() }) }
    }

    /// Runs the futures that `task` returns, one after another, on the current runtime. A future that finishes counts
    /// as a failure, and its value is the reason. Waits before the next future starts.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn spawn<F, T>(&self, name: impl Into<String>, mut task: F) -> Supervised
    where
        F: FnMut() -> T + Send + 'static,
        T: Future<Output = String> + Send + 'static,
    {
        let id = self.shared.register(name.into());
        let shared = self.shared.clone();
        let supervised = tokio::spawn(async move {
            loop {
                shared.record_start(id);
                // The closure that creates the future can panic as well.
                let reason = match catch_unwind(AssertUnwindSafe(&mut task)) {
                    Ok(run) => {
                        // The run is aborted together with this task.
                        let mut run = AbortOnDrop(tokio::spawn(run));
                        (&mut run.0).await.unwrap_or_else(failure_reason)
                    }
                    Err(panic) => format!("panicked: {}", panic_message(&*panic)),
                };
                let delay = shared.record_failure(id, reason);
                sleep(delay).await;
            }
        });
        Supervised { task: supervised, id, shared: self.shared.clone() }
    }

    /// Returns the repeatedly failing tasks, with the reason of the last failure. Empty if all tasks are healthy.
    pub fn unhealthy(&self) -> Vec<(String, String)> {
        let now = Instant::now();
        let tasks = self.shared.tasks.lock();
        let unhealthy = tasks.values().filter(|health| health.is_unhealthy(now));
        unhealthy.map(|health| (health.name.clone(), health.last_failure.clone())).collect()
    }

    /// Returns the number of restarts of each task, by name.
    pub fn restarts(&self) -> BTreeMap<String, u64> {
        self.shared.restarts.lock().clone()
    }
}

impl SupervisedTasks {
    fn register(&self, name: String) -> u64 {
        self.restarts.lock().entry(name.clone()).or_default();
        let mut tasks = self.tasks.lock();
        let id = tasks.last_key_value().map_or(0, |(last, _)| last + 1);
        let health = TaskHealth {
            name,
            failures: VecDeque::new(),
            consecutive_failures: 0,
            started: None,
            last_failure: String::new(),
        };
        tasks.insert(id, health);
        id
    }

    fn record_start(&self, id: u64) {
        if let Some(health) = self.tasks.lock().get_mut(&id) {
            health.started = Some(Instant::now());
        }
    }

    /// Records and reports a failure. Returns the delay before the restart.
    fn record_failure(&self, id: u64, reason: String) -> Duration {
        let now = Instant::now();
        let (task, delay) = {
            let mut tasks = self.tasks.lock();
            // The task was stopped concurrently, so the delay never elapses.
            let Some(health) = tasks.get_mut(&id) else { return RESTART_MAX_DELAY };
            // A long run ends a series of failures.
            if health.started.take().is_some_and(|started| now.duration_since(started) >= HEALTHY_RUN) {
                health.consecutive_failures = 0;
            }
            let delay =
                RESTART_INITIAL_DELAY.saturating_mul(1 << health.consecutive_failures.min(16)).min(RESTART_MAX_DELAY);
            health.consecutive_failures = health.consecutive_failures.saturating_add(1);
            health.failures.push_back(now);
            if health.failures.len() > MAX_FAILURES {
                health.failures.pop_front();
            }
            health.last_failure.clone_from(&reason);
            (health.name.clone(), delay)
        };
        *self.restarts.lock().entry(task.clone()).or_default() += 1;
        // Reported without holding a lock: writing the event to a terminal may be slow.
        (self.report)(EngineEvent::TaskEnded { task, reason, delay });
        delay
    }
}

impl TaskHealth {
    fn is_unhealthy(&self, now: Instant) -> bool {
        let recent = self.failures.iter().filter(|at| now.duration_since(**at) < FAILURE_WINDOW).count();
        // A task that has run long enough since its failures counts as healthy again.
        let has_lasted = self.started.is_some_and(|started| now.duration_since(started) >= HEALTHY_RUN);
        recent >= MAX_FAILURES && !has_lasted
    }
}

impl Supervised {
    /// Stops the task and waits until the current run is dropped.
    pub async fn stop(mut self) {
        self.task.abort();
        // The result of a cancelled task contains no information.
        drop((&mut self.task).await);
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.task.abort();
        // Removed from the health report: a stopped task is not unhealthy.
        self.shared.tasks.lock().remove(&self.id);
    }
}

/// Aborts a task on drop.
struct AbortOnDrop(JoinHandle<String>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn failure_reason(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => format!("panicked: {}", panic_message(&*panic)),
        Err(error) => error.to_string(),
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn supervisor() -> (Supervisor, Arc<Mutex<Vec<EngineEvent>>>) {
        let engine_events = Arc::new(Mutex::new(Vec::new()));
        let event_log = engine_events.clone();
        (Supervisor::new(Arc::new(move |event| event_log.lock().push(event))), engine_events)
    }

    /// Spawns a task that panics in its first `failures` runs.
    fn spawn(supervisor: &Supervisor, failures: u32) -> (Supervised, Arc<AtomicU32>) {
        let runs = Arc::new(AtomicU32::new(0));
        let run_counter = runs.clone();
        let task = supervisor.spawn("cluster east", move || {
            let run = run_counter.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(run >= failures, "injected {run}");
                std::future::pending().await
            }
        });
        (task, runs)
    }

    #[tokio::test(start_paused = true)]
    async fn panicking_task_is_reported_and_restarted() {
        let (supervisor, engine_events) = supervisor();
        let (_task, runs) = spawn(&supervisor, 2);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(runs.load(Ordering::Relaxed), 3);
        let task_ended = |reason: &str, seconds| EngineEvent::TaskEnded {
            task: "cluster east".to_owned(),
            reason: reason.to_owned(),
            delay: Duration::from_secs(seconds),
        };
        assert_eq!(
            *engine_events.lock(),
            [task_ended("panicked: injected 0", 1), task_ended("panicked: injected 1", 2)]
        );
        assert_eq!(supervisor.restarts()["cluster east"], 2);
        assert!(supervisor.unhealthy().is_empty(), "two failures are below the limit");
    }

    #[tokio::test(start_paused = true)]
    async fn returning_task_is_restarted_with_reason() {
        let (supervisor, engine_events) = supervisor();
        let _task = supervisor.spawn("x", || async { "its queue was closed".to_owned() });
        sleep(Duration::from_millis(500)).await;
        assert!(matches!(&engine_events.lock()[..], [EngineEvent::TaskEnded { reason, .. }]
                if reason == "its queue was closed"));
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_failures_are_unhealthy_until_long_run() {
        let (supervisor, _) = supervisor();
        let (_task, runs) = spawn(&supervisor, 5);
        // Delays of 1, 2, 4, 8 and 16 s.
        sleep(Duration::from_millis(15_500)).await;
        assert_eq!(supervisor.unhealthy(), [("cluster east".to_owned(), "panicked: injected 4".to_owned())]);
        sleep(Duration::from_secs(16 + 55)).await;
        assert_eq!(
            (runs.load(Ordering::Relaxed), supervisor.unhealthy().len()),
            (6, 1),
            "the run has not lasted long enough"
        );
        sleep(Duration::from_secs(10)).await;
        assert!(supervisor.unhealthy().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn stopped_task_is_dropped() {
        struct DropSignal(Arc<AtomicU32>);
        impl Drop for DropSignal {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (supervisor, dropped) = (supervisor().0, Arc::new(AtomicU32::new(0)));
        let signals = dropped.clone();
        let task = supervisor.spawn("x", move || {
            let signals = DropSignal(signals.clone());
            async move {
                let _signals = signals;
                std::future::pending().await
            }
        });
        sleep(Duration::from_millis(1)).await;
        task.stop().await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert!(supervisor.shared.tasks.lock().is_empty());
    }
}
