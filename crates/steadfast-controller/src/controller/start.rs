//! From what was chosen to a controller at work.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use kube::Resource;
use steadfast::environment::SharedEnvironment;
use steadfast::{Freshness, Informer, InformerFactory, Kept, Object, ObjectKey};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::all::All;
use super::crew::{Caller, Crew, told};
use super::figures::Counted;
use super::gate::Gate;
use super::note::ControllerNote;
use super::notes::Notes;
use super::running::RunningController;
use super::sights::Sights;
use super::spins::Spins;
use super::stage::{Point, Stage};
use super::view::View;
use super::{Attached, Controller, QueueChoices, RunError};
use crate::workqueue::Workqueue;

/// So long the first calls wait for caches that are not synced, and not refused either.
const SYNC_PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked whether calls keep their threads.
const LOOK: Duration = Duration::from_secs(1);

impl<K: Kept> Controller<K> {
    /// Runs it: `caller` says how a call begins, with the cache of the objects.
    pub(super) fn start(self, caller: impl FnOnce(Informer<K>) -> Caller) -> Result<RunningController, RunError> {
        let runtime = Handle::try_current().map_err(|_| RunError::NoRuntime)?;
        if self.concurrency == 0 {
            return Err(RunError::Setting("no calls at a time are no calls: set concurrency to 1 or more"));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(RunError::Setting("no call ends in no time: set timeout to more than zero, or to none"));
        }
        let connection = self.factory.connection().clone();
        let environment = connection.environment().clone();
        let queue = self.queue.build(environment.clone());

        let name = self.name.unwrap_or_else(|| K::Resource::plural(&self.kind).as_ref().into());
        let notes = Notes::new(name, self.told);
        let (stage, counted) = (Stage::new(), Arc::new(Counted::default()));
        let sights = Sights::new(self.factory.clone(), queue.clone(), notes.clone(), counted.clone(), stage.clone());

        let all = All::new(environment.clone(), queue.clone(), stage.clone());
        let own = |object: &Object<K>| [object.key().clone()];
        let (informer, detach) = self.source.attach(&self.factory, &queue, &sights, &all, own)?;
        all.are_of(&informer);
        let mut attached = vec![Attached { view: Arc::new(informer.clone()), detach, is_read: true }];
        for other in self.others {
            let other = other(&self.factory, &queue, &sights, &all);
            // What was attached before is of no use alone.
            attached.push(other.inspect_err(|_| {
                for attached in &attached {
                    (attached.detach)();
                }
                stage.reach(Point::Cancelled);
            })?);
        }
        let (read, led): (Vec<_>, Vec<_>) = attached.iter().partition(|attached| attached.is_read);
        let read: Vec<_> = read.into_iter().map(|attached| attached.view.clone()).chain(self.reads).collect();
        let led = led.into_iter().map(|attached| attached.view.clone()).collect();
        // Who acts whatever caches say waits for none that is in doubt.
        sights.reads(if self.when_stale.acts() { Vec::new() } else { read.clone() });
        let gate = Gate::new(read.clone(), self.when_stale);

        let crew = Arc::new(Crew {
            connection,
            queue: queue.clone(),
            caller: caller(informer),
            gate,
            sights,
            notes,
            counted,
            spins: Spins::default(),
            stage: stage.clone(),
            timeout: self.timeout,
            concurrency: self.concurrency,
            runtime,
            pulses: Mutex::default(),
            members: AtomicUsize::new(0),
            gone: watch::Sender::new(()),
        });
        (0..self.concurrency).for_each(|_| crew.recruit());

        let mut tasks = vec![
            environment.spawn_foreign(Box::pin(begin(crew.clone(), self.factory, read, led, self.after))),
            environment.spawn_foreign(Box::pin(look_after(crew.clone()))),
        ];
        for mut keys in self.triggers {
            let (queue, notes) = (queue.clone(), crew.notes.clone());
            tasks.push(environment.spawn_foreign(Box::pin(async move {
                let all = async {
                    while let Some(key) = keys.next().await {
                        queue.add(key);
                    }
                };
                if let Err(panic) = AssertUnwindSafe(all).catch_unwind().await {
                    notes.tell(&ControllerNote::Broken { what: "a stream of keys", message: told(panic) });
                }
            })));
        }
        let detach = attached.into_iter().map(|attached| attached.detach).collect();
        Ok(RunningController::new(crew, tasks, detach))
    }
}

impl QueueChoices {
    fn build(self, environment: SharedEnvironment) -> Workqueue<ObjectKey> {
        let queue = Workqueue::builder(environment).retries(self.retries).limit(self.limit);
        match self.group {
            Some(group) => queue.fair_by(group),
            None => queue.fair_by(|key| key.namespace().map(str::to_owned)),
        }
        .build()
    }
}

/// Waits for the caches that calls read, and for those that only lead to calls as long as that is no delay; and for what the
/// user wants to wait for. Then the calls begin.
async fn begin(
    crew: Arc<Crew>,
    factory: InformerFactory,
    read: Vec<Arc<dyn View>>,
    led: Vec<Arc<dyn View>>,
    after: Option<BoxFuture<'static, ()>>,
) {
    let environment = crew.connection.environment().clone();
    let end = environment.now() + SYNC_PATIENCE;
    let views = read.into_iter().map(|view| (view, true)).chain(led.into_iter().map(|view| (view, false)));
    for (view, is_read) in views {
        let missing = |waits| {
            let why = format!("{}: {}", view.name(), view.freshness());
            crew.notes.tell(&ControllerNote::SourceMissing { why, waits });
        };
        let settled = || view.is_synced() || matches!(view.freshness(), Freshness::Failed(_) | Freshness::Stopped(_));
        let mut changed = view.changed();
        let (mut late, mut is_late) = (environment.sleep_until(end), false);
        while !settled() {
            tokio::select! {
                biased;
                _ = changed.changed() => {}
                () = &mut late, if !is_late => {
                    is_late = true;
                    missing(is_read);
                    if !is_read {
                        break;
                    }
                }
            }
        }
        if !view.is_synced() {
            if is_read || !is_late {
                missing(false);
            }
            continue;
        }
        // What calls read may be another cache of the same objects, whose list is older than this one.
        if let Err(error) = factory.wait_for_writes(&view.seen(), SYNC_PATIENCE).await {
            crew.notes.tell(&ControllerNote::SourceMissing { why: error.to_string(), waits: false });
        }
    }
    let after = after.unwrap_or_else(|| std::future::ready(()).boxed());
    if let Err(panic) = AssertUnwindSafe(after).catch_unwind().await {
        let what = "what the first calls wait for";
        crew.notes.tell(&ControllerNote::Broken { what, message: told(panic) });
        return;
    }
    crew.stage.reach(Point::Working);
}

/// Looks after the calls and the caches, as long as it runs.
async fn look_after(crew: Arc<Crew>) {
    let environment = crew.connection.environment().clone();
    loop {
        let mut views = crew.gate.changes();
        let changed = views.iter_mut().map(|view| view.changed().boxed());
        let pause = environment.sleep_until(environment.now() + LOOK);
        let is_closed = crew.gate.is_closed();
        tokio::select! {
            biased;
            () = pause => crew.look(),
            _ = futures::future::select_all(changed), if is_closed => crew.look_at_caches(),
        }
    }
}
