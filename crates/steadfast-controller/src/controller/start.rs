//! Start of a controller.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use kube::Resource;
use parking_lot::Mutex;
use steadfast::environment::SharedEnvironment;
use steadfast::{Cacheable, Freshness, Object, ObjectKey};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::cache_handle::CacheHandle;
use super::declared::{DeclaredCache, DelayLimit, Role};
use super::diagnostic::ControllerDiagnostic;
use super::diagnostics::Diagnostics;
use super::hot_loop::HotLoopLimiter;
use super::lifecycle::{Lifecycle, Phase};
use super::primary::Primary;
use super::requeue_all::RequeueAll;
use super::running::RunningController;
use super::source::{Attachment, DetachFn, SourceContext};
use super::source_cache::SourceCache;
use super::staleness_gate::StalenessGate;
use super::stall_detector::ObservationPeriod;
use super::stats::Counters;
use super::worker_pool::{Prepare, WorkerPool};
use super::write_tracker::WriteTracker;
use super::{AttachedSource, Controller, QueueSettings, RunError};
use crate::panics::message;
use crate::workqueue::Workqueue;

/// Time that the first reconciles wait for a cache before a warning is reported.
const CACHE_WARNING_DELAY: Duration = Duration::from_secs(30);

/// Interval between checks for blocked reconciles.
const SUPERVISE_INTERVAL: Duration = Duration::from_secs(1);

/// Name of a stream of keys in diagnostics.
const KEY_STREAM: &str = "a stream of keys";

impl<K: Cacheable> Controller<K> {
    /// Rejects settings under which no reconcile could run.
    fn check_settings(&self) -> Result<(), RunError> {
        if self.concurrency == 0 {
            return Err(RunError::Setting("concurrency is 0; set concurrency to 1 or more"));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(RunError::Setting("timeout is 0; set timeout to more than 0, or to `None`"));
        }
        Ok(())
    }

    /// Starts the controller. `prepare` receives the caches of the controller's objects, and returns the function that
    /// prepares a reconcile.
    ///
    /// With `allows_missing_objects`, keys that are absent from these caches are reconciled too.
    pub(super) fn start(
        self,
        allows_missing_objects: bool,
        prepare: impl FnOnce(Vec<SourceCache<K>>) -> Prepare,
    ) -> Result<RunningController, RunError> {
        let runtime = Handle::try_current().map_err(|_| RunError::NoRuntime)?;
        self.check_settings()?;
        let connection = self.factory.connection().clone();
        let environment = connection.environment().clone();
        // The queue exists before the sources, which enqueue keys from their first event on.
        let queue = self.queue.build(environment.clone());

        let name = self.name.unwrap_or_else(|| K::Resource::plural(&self.kind).as_ref().into());
        let diagnostics = Diagnostics::new(name, self.on_diagnostic);
        let (lifecycle, counters) = (Lifecycle::new(), Arc::new(Counters::default()));
        let write_tracker = WriteTracker::new(
            self.factory.clone(),
            queue.clone(),
            diagnostics.clone(),
            counters.clone(),
            lifecycle.clone(),
        );

        let (source, own_caches) = self.source.open(&self.factory)?;
        let source_context = SourceContext {
            factory: self.factory.clone(),
            queue: queue.clone(),
            write_tracker: write_tracker.clone(),
            requeue_all: RequeueAll::new(environment.clone(), queue.clone(), lifecycle.clone()),
            lifecycle: lifecycle.clone(),
            diagnostics: diagnostics.clone(),
            primary: Primary::of(&own_caches),
            counters: counters.clone(),
            allows_missing_objects,
        };
        let own_key = |object: &Object<K>| [object.key().clone()];
        let attachment = source.attach(&source_context, None, own_key)?;
        source_context.requeue_all.set_caches(&own_caches);
        let mut attached =
            vec![AttachedSource { caches: DeclaredCache::declare_all(own_caches.clone(), Role::Objects), attachment }];
        for open_source in self.pending_sources {
            let opened = open_source(&source_context);
            // The sources attached so far are useless without this source.
            attached.push(opened.inspect_err(|_| {
                for attached in &attached {
                    attached.attachment.detach();
                }
                lifecycle.advance_to(Phase::Cancelled);
            })?);
        }
        let mut caches: Vec<_> = attached.iter().flat_map(|attached| attached.caches.clone()).collect();
        DeclaredCache::isolate_namespaces(&mut caches);
        caches.extend(self.reads.into_iter().map(|cache_handle| DeclaredCache::new(cache_handle, Role::Read)));
        write_tracker.declare(&caches, &self.stale_policy);
        let startup_limits =
            caches.iter().map(|cache| (cache.clone(), DelayLimit::of(cache, &self.stale_policy))).collect();
        // Caches of watched sources are not read by reconciles, so their doubt pauses nothing.
        caches.retain(|cache| cache.role.is_read());
        let gate = StalenessGate::new(caches, self.stale_policy);

        let mut triggers = self.triggers;
        let mut extra_detach_fns: Vec<DetachFn> = Vec::new();
        if let Some(sharding) = &self.sharding {
            // A key gained from another process causes no event in this process. The stream of gained keys enqueues the
            // key.
            triggers.extend(own_caches.iter().map(|cache| sharding.gained_among(cache.keys_later()).boxed()));
            let (write_tracker, lifecycle) = (write_tracker.clone(), lifecycle.clone());
            let reader = sharding.add_cache_reader(move || {
                let (write_tracker, lifecycle) = (write_tracker.clone(), lifecycle.clone());
                async move { lifecycle.until_stopping(write_tracker.catch_up()).await }.boxed()
            });
            extra_detach_fns.push(Box::new(move || reader.end()));
        }

        let attachments: Vec<_> = attached.into_iter().map(|attached| attached.attachment).collect();
        let pool = Arc::new(WorkerPool {
            connection,
            attachments: attachments.clone(),
            queue: queue.clone(),
            prepare: prepare(own_caches),
            gate,
            write_tracker,
            sharding: self.sharding,
            diagnostics,
            counters,
            hot_loops: HotLoopLimiter::default(),
            lifecycle: lifecycle.clone(),
            timeout: self.timeout,
            concurrency: self.concurrency,
            runtime,
            detectors: Mutex::default(),
            workers: AtomicUsize::new(0),
            worker_exited: watch::Sender::new(()),
        });
        // Workers start before the sync, but wait for the phase `Running`.
        (0..self.concurrency).for_each(|_| pool.spawn_worker());

        let mut tasks = vec![
            environment.spawn_user_task(Box::pin(start_running(pool.clone(), startup_limits, self.start_after))),
            environment.spawn_user_task(Box::pin(supervise(pool.clone()))),
        ];
        tasks.extend(triggers.into_iter().map(|keys| {
            let (queue, diagnostics) = (queue.clone(), pool.diagnostics.clone());
            let scope_filter = source_context.scope_filter(KEY_STREAM);
            environment.spawn_user_task(Box::pin(async move {
                let admits = |key: &ObjectKey| scope_filter.as_ref().is_none_or(|filter| filter.admit(key));
                enqueue_all(keys, admits, &queue, &diagnostics).await;
            }))
        }));
        let detach = attachments.into_iter().map(detach_fn_of).chain(extra_detach_fns).collect();
        Ok(RunningController::new(pool, tasks, detach))
    }
}

/// Returns the function that removes the handlers of `attachment`.
fn detach_fn_of(attachment: Arc<dyn Attachment>) -> DetachFn {
    Box::new(move || attachment.detach())
}

impl QueueSettings {
    fn build(self, environment: SharedEnvironment) -> Workqueue<ObjectKey> {
        let queue = Workqueue::builder(environment).retries(self.retries).limit(self.limit);
        match self.group {
            Some(group) => queue.fairness_key(group),
            None => queue.fairness_key(|key| key.namespace().map(str::to_owned)),
        }
        .build()
    }
}

/// Adds the admitted keys of a stream to the queue until the stream ends. A panic of the stream, which is the user's
/// code, is reported and ends only this stream.
async fn enqueue_all(
    mut keys: BoxStream<'static, ObjectKey>,
    admits: impl Fn(&ObjectKey) -> bool,
    queue: &Workqueue<ObjectKey>,
    diagnostics: &Diagnostics,
) {
    let all = async {
        while let Some(key) = keys.next().await {
            if admits(&key) {
                queue.add(key);
            }
        }
    };
    // A panic in the user's stream must not end the controller; the other sources continue.
    if let Err(panic) = AssertUnwindSafe(all).catch_unwind().await {
        let panicked = ControllerDiagnostic::CallbackPanicked { callback: KEY_STREAM, message: message(panic) };
        diagnostics.report(&panicked);
    }
}

/// Waits for the caches and for the user's start condition. Then reconciles start.
async fn start_running(
    pool: Arc<WorkerPool>,
    caches: Vec<(DeclaredCache, DelayLimit)>,
    start_condition: Option<BoxFuture<'static, ()>>,
) {
    // The waits run in parallel, so that the delays of several slow caches do not add up.
    join_all(caches.iter().map(|(cache, limit)| wait_for_cache(&pool, cache, *limit))).await;
    let start_condition = start_condition.unwrap_or_else(|| std::future::ready(()).boxed());
    if let Err(panic) = AssertUnwindSafe(start_condition).catch_unwind().await {
        let callback = "the future passed to `start_after`";
        pool.diagnostics.report(&ControllerDiagnostic::CallbackPanicked { callback, message: message(panic) });
        return;
    }
    // A previous leader or process may have written until now. Even synced caches may lack these writes.
    pool.lifecycle.clone().until_stopping(pool.write_tracker.catch_up()).await;
    pool.lifecycle.advance_to(Phase::Running);
}

/// Waits until `cache` no longer delays the first reconciles.
async fn wait_for_cache(pool: &WorkerPool, cache: &DeclaredCache, limit: DelayLimit) {
    let environment = pool.connection.environment();
    let started_at = environment.now();
    let report_unavailable = |delays_start| {
        let reason = format!("{}: {}", cache.cache.name(), cache.cache.freshness());
        pool.diagnostics.report(&ControllerDiagnostic::CacheUnavailable { reason, delays_start });
    };
    let delays_no_longer = |cache_handle: &dyn CacheHandle| match cache_handle.freshness() {
        _ if cache_handle.is_synced() => true,
        Freshness::Stopped(_) => true,
        Freshness::Failed(_) if cache.role.may_be_rejected() => true,
        freshness => !limit.allows_delay(&freshness, started_at, environment.now()),
    };
    // With a shorter limit, the cache is reported as missing when the limit expires.
    let is_reported = !matches!(limit, DelayLimit::Doubt(bound) if bound <= CACHE_WARNING_DELAY);
    let mut settled = std::pin::pin!(cache.wait_until(environment, delays_no_longer));
    tokio::select! {
        biased;
        () = &mut settled => {}
        () = environment.sleep_until(started_at + CACHE_WARNING_DELAY), if is_reported => {
            report_unavailable(true);
            settled.await;
        }
    }
    if !cache.cache.is_synced() {
        report_unavailable(false);
    }
}

/// Checks reconciles and caches until the controller ends.
async fn supervise(pool: Arc<WorkerPool>) {
    let environment = pool.connection.environment().clone();
    let mut observation = ObservationPeriod::start(environment.now());
    let mut next_check = environment.now() + SUPERVISE_INTERVAL;
    loop {
        let mut change_receivers = pool.gate.changes();
        let changed = change_receivers.iter_mut().map(|receiver| receiver.changed().boxed());
        let pause = environment.sleep_until(next_check);
        let is_closed = pool.gate.is_closed();
        tokio::select! {
            biased;
            () = pause => {
                observation.record_check(next_check, environment.now());
                pool.check(observation.started_at());
                next_check = environment.now() + SUPERVISE_INTERVAL;
            }
            // Needed only while the gate is closed: an open gate is checked before each reconcile anyway.
            _ = futures::future::select_all(changed), if is_closed => pool.check_caches(),
        }
    }
}
