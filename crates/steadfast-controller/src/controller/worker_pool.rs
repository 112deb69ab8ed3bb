//! Pool of workers: each takes a key, checks the caches, runs the reconcile, and applies its action.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use steadfast::environment::{Instant, SharedEnvironment};
use steadfast::{Connection, ObjectKey, WriteRecording};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::coop::consume_budget;

use super::action::{Action, NextReconcile};
use super::diagnostic::ControllerDiagnostic;
use super::diagnostics::Diagnostics;
use super::hot_loop::HotLoopLimiter;
use super::lifecycle::Lifecycle;
use super::source::Attachment;
use super::staleness_gate::{GateChange, StalenessGate};
use super::stall_detector::StallDetector;
use super::stats::{ControllerStats, Counters};
use super::write_tracker::WriteTracker;
use crate::election::Sharding;
use crate::panics::message;
use crate::workqueue::{Work, Workqueue};

/// A worker that blocks its thread for this long is replaced, so that other keys do not wait for it.
const REPLACE_WORKER_AFTER: Duration = Duration::from_secs(10);

/// Requeue delay of a key after a panic in a destructor.
const DROP_PANIC_REQUEUE_DELAY: Duration = Duration::from_secs(1);

/// A prepared reconcile of a key.
pub(super) enum PreparedReconcile {
    /// The reconcile can run.
    Reconcile(BoxFuture<'static, Result<Action, Failed>>),
    /// The object does not exist, so nothing is done.
    Missing,
    /// The object cannot be decoded.
    Undecodable,
}

/// A reconcile returned an error.
pub(super) struct Failed {
    /// The error, with its sources.
    pub(super) error: String,
    /// Action returned by the error policy.
    pub(super) action: Action,
}

/// Prepares the reconcile of a key.
pub(super) type Prepare = Box<dyn Fn(&ObjectKey) -> PreparedReconcile + Send + Sync>;

/// State shared by all workers of a controller.
pub(super) struct WorkerPool {
    pub(super) connection: Connection,
    /// Attached sources, which continue with successors of stopped informers.
    pub(super) attachments: Vec<Arc<dyn Attachment>>,
    pub(super) queue: Workqueue<ObjectKey>,
    pub(super) prepare: Prepare,
    pub(super) gate: StalenessGate,
    pub(super) write_tracker: WriteTracker,
    /// Present if keys are distributed among processes.
    pub(super) sharding: Option<Sharding>,
    pub(super) diagnostics: Diagnostics,
    pub(super) counters: Arc<Counters>,
    pub(super) hot_loops: HotLoopLimiter,
    pub(super) lifecycle: Lifecycle,
    pub(super) timeout: Option<Duration>,
    /// Maximum number of concurrent reconciles.
    pub(super) concurrency: usize,
    pub(super) runtime: Handle,
    pub(super) detectors: Mutex<Vec<Arc<StallDetector>>>,
    /// Number of running workers.
    pub(super) workers: AtomicUsize,
    /// Notified when a worker exits.
    pub(super) worker_exited: watch::Sender<()>,
}

/// Outcome of a reconcile.
enum Outcome {
    Succeeded(Action),
    Failed(Failed),
    Panicked(String),
    TimedOut(Duration),
    Cancelled,
}

impl WorkerPool {
    fn environment(&self) -> &SharedEnvironment {
        self.connection.environment()
    }

    /// Spawns one more worker.
    pub(super) fn spawn_worker(self: &Arc<Self>) {
        let detector = Arc::new(StallDetector::new(self.environment().clone()));
        self.detectors.lock().push(detector.clone());
        // Counted before the spawn, so that `stop` never observes zero workers while one is starting.
        self.workers.fetch_add(1, Ordering::AcqRel);
        let worker = Worker { pool: self.clone(), detector };
        self.runtime.spawn(async move { worker.work().await });
    }

    /// Checks for blocked reconciles, missing writes and doubtful caches. Runs once a second. Blocking time before
    /// `observed_since` does not count.
    pub(super) fn check(self: &Arc<Self>, observed_since: Instant) {
        let now = self.environment().now();
        let detectors = self.detectors.lock().clone();
        let mut blocked = 0;
        for detector in &detectors {
            let Some((key, lasting, is_new)) = detector.blocked(now, observed_since) else { continue };
            blocked += 1;
            if is_new {
                self.diagnostics.report(&ControllerDiagnostic::Blocked { key, elapsed: lasting });
            }
            // A blocked thread cannot be cancelled. A replacement keeps the concurrency, up to twice the configured
            // number of workers.
            let has_capacity = || self.workers.load(Ordering::Acquire) < 2 * self.concurrency;
            if lasting >= REPLACE_WORKER_AFTER && !self.lifecycle.is_stopping() && has_capacity() && detector.replace()
            {
                self.spawn_worker();
            }
        }
        self.counters.blocked.store(blocked, Ordering::Relaxed);
        self.write_tracker.check();
        for attachment in &self.attachments {
            attachment.renew(self.gate.requires_fresh_successors());
        }
        self.gate.renew();
        self.check_caches();
    }

    /// Opens or closes the staleness gate by the current freshness of the caches.
    pub(super) fn check_caches(&self) {
        match self.gate.update(self.environment().now()) {
            GateChange::Unchanged => {}
            GateChange::Closed(reason, namespaces) => {
                Counters::increment(&self.counters.pauses);
                self.diagnostics.report(&ControllerDiagnostic::Paused { reason, namespaces });
            }
            GateChange::Narrowed(freed_keys) => {
                for (key, priority) in freed_keys {
                    self.queue.add_with_priority(key, priority);
                }
            }
            GateChange::Opened(closed_for, deferred_keys) => {
                // The keys return to the queue, where they compete with newer and more urgent keys.
                for (key, priority) in deferred_keys {
                    self.queue.add_with_priority(key, priority);
                }
                self.diagnostics.report(&ControllerDiagnostic::Resumed { elapsed: closed_for });
            }
        }
    }

    pub(super) fn stats(&self) -> ControllerStats {
        self.counters.read(self.write_tracker.waiting(), self.hot_loops.slowed(), self.gate.is_closed())
    }
}

/// One worker.
struct Worker {
    pool: Arc<WorkerPool>,
    detector: Arc<StallDetector>,
}

impl Worker {
    async fn work(&self) {
        let mut lifecycle = self.pool.lifecycle.clone();
        lifecycle.started().await;
        loop {
            let Some(work) = self.next(&mut lifecycle).await else { return };
            // Destructors of user types may panic too. Such a panic must not end the worker.
            let (key, priority) = (work.key().clone(), work.priority());
            if let Err(panic) = AssertUnwindSafe(self.process(work, &mut lifecycle)).catch_unwind().await {
                Counters::increment(&self.pool.counters.panicked);
                // The panic has consumed the work, so `Work::retry` is unavailable. A fixed delay replaces the backoff.
                self.pool.queue.add_after_with_priority(key.clone(), DROP_PANIC_REQUEUE_DELAY, priority);
                self.pool.diagnostics.report(&ControllerDiagnostic::Panicked {
                    key,
                    message: message(panic),
                    retry_after: DROP_PANIC_REQUEUE_DELAY,
                });
            }
            // The replacement has taken over this position. Without the exit, both would run.
            if self.detector.is_replaced() {
                return;
            }
        }
    }

    /// Waits until the gate is open and a key is ready. Returns none if the controller stops.
    async fn next(&self, lifecycle: &mut Lifecycle) -> Option<Work<ObjectKey>> {
        let WorkerPool { gate, queue, .. } = &*self.pool;
        // Yields to the scheduler even if each reconcile completes immediately.
        consume_budget().await;
        if lifecycle.is_stopping() {
            return None;
        }
        // A ready key is taken directly. Waiting would use a list of waiters that all workers share.
        if !gate.blocks_all()
            && let Some(work) = queue.next_ready()
        {
            return Some(work);
        }
        let next_key = async {
            gate.wait_until_open().await;
            queue.next().await
        };
        tokio::select! {
            biased;
            () = lifecycle.stopping() => None,
            work = next_key => work,
        }
    }

    /// Runs the reconcile of `work` if the caches permit.
    async fn process(&self, work: Work<ObjectKey>, lifecycle: &mut Lifecycle) {
        let pool = &*self.pool;
        // The supervisor checks once a second. A cache may have entered doubt since the last check.
        pool.check_caches();
        if !pool.gate.admits(&work) {
            // The key is deferred if workers still process other keys. Otherwise, or if the gate has opened in between,
            // `defer` returns false, and the key goes back to the queue.
            if !pool.gate.defer(work.key(), work.priority()) {
                pool.queue.add_with_priority(work.key().clone(), work.priority());
            }
            return;
        }
        if !pool.write_tracker.admit_or_defer(&work, work.priority()) {
            return;
        }
        // The key stays in the queue, so that `StopReport::queued` counts the key.
        if lifecycle.is_stopping() {
            pool.queue.add_with_priority(work.key().clone(), work.priority());
            return;
        }
        // The guard must precede all reads of the reconcile, and last until the reconcile ends. Otherwise another
        // process could act on the key in the meantime.
        let guard = pool.sharding.as_ref().map(|sharding| sharding.hold(&work));
        if let Some(None) = guard {
            // The key is enqueued again when this process gains it.
            pool.hot_loops.reset(&work);
            work.finish();
            return;
        }
        match (pool.prepare)(&work) {
            PreparedReconcile::Reconcile(call) => {
                let outcome = self.call(&work, call, lifecycle).await;
                // The guard drops before the work ends. Until `record_outcome`, no other worker of this process takes
                // the key.
                drop(guard);
                pool.record_outcome(work, outcome);
            }
            PreparedReconcile::Missing => {
                pool.hot_loops.reset(&work);
                work.finish();
            }
            PreparedReconcile::Undecodable => {
                pool.diagnostics.report(&ControllerDiagnostic::Undecodable { key: work.key().clone() });
            }
        }
    }

    async fn call(
        &self,
        key: &ObjectKey,
        call: BoxFuture<'static, Result<Action, Failed>>,
        lifecycle: &mut Lifecycle,
    ) -> Outcome {
        let pool = &*self.pool;
        let environment = pool.environment();
        // After every outcome, this guard must drop before another worker can take the key.
        let running = RunningGuard::start(pool, key);
        let call = AssertUnwindSafe(running.recording.scope(call)).catch_unwind();
        let call = self.detector.run(key, call);
        let timed_out = async {
            match pool.timeout {
                Some(timeout) => {
                    environment.sleep_until(environment.now() + timeout).await;
                    timeout
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // Polled first, so that an immediately ready reconcile never registers with the shared stop signal.
            ended = call => match ended {
                Ok(Ok(action)) => Outcome::Succeeded(action),
                Ok(Err(failed)) => Outcome::Failed(failed),
                Err(panic) => Outcome::Panicked(message(panic)),
            },
            () = lifecycle.cancelled() => Outcome::Cancelled,
            timeout = timed_out => Outcome::TimedOut(timeout),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.pool.workers.fetch_sub(1, Ordering::AcqRel);
        let mut detectors = self.pool.detectors.lock();
        // A replaced worker shares the list with its replacement, so entries are compared by identity.
        detectors.retain(|detector| !Arc::ptr_eq(detector, &self.detector));
        self.pool.worker_exited.send_replace(());
    }
}

impl WorkerPool {
    /// Applies the action of a finished reconcile.
    fn record_outcome(&self, work: Work<ObjectKey>, outcome: Outcome) {
        let key = work.key().clone();
        match outcome {
            Outcome::Succeeded(action) => {
                match action.next() {
                    NextReconcile::Await => Counters::increment(&self.counters.succeeded),
                    NextReconcile::After(_) | NextReconcile::Retry => Counters::increment(&self.counters.requeued),
                }
                self.apply_action(work, action);
            }
            Outcome::Failed(Failed { error, action }) => {
                Counters::increment(&self.counters.failed);
                // Read before `apply_action`, which changes the counter.
                let failures = self.queue.failures(&key).saturating_add(1);
                let retry_after = self.apply_action(work, action);
                self.diagnostics.report(&ControllerDiagnostic::Failed { key, error, failures, retry_after });
            }
            Outcome::Panicked(message) => {
                Counters::increment(&self.counters.panicked);
                // A panic has its own backoff. The limiter counts consecutive immediate requeues only.
                self.hot_loops.reset(&key);
                let retry_after = work.retry();
                self.diagnostics.report(&ControllerDiagnostic::Panicked { key, message, retry_after });
            }
            Outcome::TimedOut(timeout) => {
                Counters::increment(&self.counters.timed_out);
                self.hot_loops.reset(&key);
                let retry_after = work.retry();
                self.diagnostics.report(&ControllerDiagnostic::TimedOut { key, timeout, retry_after });
            }
            Outcome::Cancelled => Counters::increment(&self.counters.cancelled),
        }
    }

    /// Ends `work` by `action`. Returns the maximum delay until the next reconcile.
    fn apply_action(&self, work: Work<ObjectKey>, action: Action) -> Option<Duration> {
        match action.next() {
            NextReconcile::Await => {
                self.hot_loops.reset(&work);
                work.finish();
                None
            }
            NextReconcile::After(wait) => {
                let limited_delay = self.hot_loops.limit(&work, wait);
                if let Some(requeues) = limited_delay.reported_requeues {
                    self.diagnostics.report(&ControllerDiagnostic::HotLoop { key: work.key().clone(), requeues });
                }
                work.requeue_after(limited_delay.delay);
                Some(limited_delay.delay)
            }
            NextReconcile::Retry => {
                self.hot_loops.reset(&work);
                Some(work.retry())
            }
        }
    }
}

/// Marks a reconcile as running, and records its writes.
struct RunningGuard<'a> {
    pool: &'a WorkerPool,
    key: &'a ObjectKey,
    recording: WriteRecording,
    started_at: Instant,
}

impl<'a> RunningGuard<'a> {
    fn start(pool: &'a WorkerPool, key: &'a ObjectKey) -> Self {
        pool.counters.running.fetch_add(1, Ordering::Relaxed);
        Self { pool, key, recording: pool.connection.record_writes(), started_at: pool.environment().now() }
    }
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        self.pool.counters.running.fetch_sub(1, Ordering::Relaxed);
        self.pool.counters.record_duration(self.pool.environment().now().since(self.started_at));
        // Recorded also after a failure or cancellation: the next reconcile of the key must see all accepted writes.
        self.pool.write_tracker.record_writes(self.key, self.recording.writes());
    }
}
