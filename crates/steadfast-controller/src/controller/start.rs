//! From what was chosen to a controller at work.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, StreamExt};
use kube::Resource;
use steadfast::environment::SharedEnvironment;
use steadfast::{Freshness, Informer, Kept, Object, ObjectKey};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::all::All;
use super::crew::{Caller, Crew};
use super::declared::{Declared, Patience, Role};
use super::diagnostic::ControllerDiagnostic;
use super::diagnostics::Notes;
use super::figures::Counted;
use super::gate::Gate;
use super::primary::Primary;
use super::running::RunningController;
use super::sights::Sights;
use super::source::{Detach, Links};
use super::spins::Spins;
use super::stage::{Point, Stage};
use super::view::View;
use super::{Attached, Controller, QueueChoices, RunError};
use crate::panics::told;
use crate::workqueue::Workqueue;

/// How long the first calls wait for a cache before that is reported.
const REPORT_AFTER: Duration = Duration::from_secs(30);

/// How often it is looked whether calls keep their threads.
const LOOK: Duration = Duration::from_secs(1);

impl<K: Kept> Controller<K> {
    /// Runs it: `caller` says how a call begins, with the cache of the objects.
    ///
    /// Only `by_key` are keys reconciled that the cache of the objects does not have.
    pub(super) fn start(
        self,
        by_key: bool,
        caller: impl FnOnce(Vec<Informer<K>>) -> Caller,
    ) -> Result<RunningController, RunError> {
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

        let (source, informers) = self.source.open(&self.factory)?;
        let links = Links {
            factory: self.factory.clone(),
            queue: queue.clone(),
            sights: sights.clone(),
            all: All::new(environment.clone(), queue.clone(), stage.clone()),
            stage: stage.clone(),
            notes: notes.clone(),
            primary: Primary::of(&informers),
            counted: counted.clone(),
            by_key,
        };
        let own = |object: &Object<K>| [object.key().clone()];
        let detach = source.attach(&links, None, own)?;
        links.all.are_of(&informers);
        let mut attached = vec![Attached { caches: Declared::all(informers.clone(), Role::Objects), detach }];
        for other in self.others {
            let other = other(&links);
            // What was attached before is of no use alone.
            attached.push(other.inspect_err(|_| {
                for attached in &attached {
                    (attached.detach)();
                }
                stage.reach(Point::Cancelled);
            })?);
        }
        let mut caches: Vec<_> = attached.iter().flat_map(|attached| attached.caches.clone()).collect();
        caches.extend(self.reads.into_iter().map(|view| Declared { view, role: Role::Read }));
        sights.declare(&caches, &self.when_stale);
        let first = caches.iter().map(|cache| (cache.clone(), Patience::of(cache.role, &self.when_stale))).collect();
        caches.retain(|cache| cache.role.is_read());
        let gate = Gate::new(caches, self.when_stale);

        let mut triggers = self.triggers;
        let mut ends: Vec<Detach> = Vec::new();
        if let Some(shares) = &self.shares {
            triggers.extend(informers.iter().map(|informer| shares.gained(informer).boxed()));
            let (sights, stage) = (sights.clone(), stage.clone());
            let reader = shares.read_by(move || {
                let (sights, stage) = (sights.clone(), stage.clone());
                async move { stage.until_ending(sights.catch_up()).await }.boxed()
            });
            ends.push(Box::new(move || reader.end()));
        }

        let crew = Arc::new(Crew {
            connection,
            queue: queue.clone(),
            caller: caller(informers),
            gate,
            sights,
            shares: self.shares,
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
            environment.spawn_foreign(Box::pin(begin(crew.clone(), first, self.after))),
            environment.spawn_foreign(Box::pin(look_after(crew.clone()))),
        ];
        for mut keys in triggers {
            let (queue, notes) = (queue.clone(), crew.notes.clone());
            let strays = links.strays("a stream of keys");
            tasks.push(environment.spawn_foreign(Box::pin(async move {
                let all = async {
                    while let Some(key) = keys.next().await {
                        if strays.as_ref().is_none_or(|strays| strays.admit(&key)) {
                            queue.add(key);
                        }
                    }
                };
                if let Err(panic) = AssertUnwindSafe(all).catch_unwind().await {
                    notes.tell(&ControllerDiagnostic::Broken { what: "a stream of keys", message: told(panic) });
                }
            })));
        }
        let detach = attached.into_iter().map(|attached| attached.detach).chain(ends).collect();
        Ok(RunningController::new(crew, tasks, detach))
    }
}

impl QueueChoices {
    fn build(self, environment: SharedEnvironment) -> Workqueue<ObjectKey> {
        let queue = Workqueue::builder(environment).retries(self.retries).limit(self.limit);
        match self.group {
            Some(group) => queue.fairness_key(group),
            None => queue.fairness_key(|key| key.namespace().map(str::to_owned)),
        }
        .build()
    }
}

/// Waits for the caches, and for what the user wants to wait for. Then the calls begin.
async fn begin(crew: Arc<Crew>, caches: Vec<(Declared, Patience)>, after: Option<BoxFuture<'static, ()>>) {
    join_all(caches.iter().map(|(cache, patience)| settled(&crew, cache, *patience))).await;
    let after = after.unwrap_or_else(|| std::future::ready(()).boxed());
    if let Err(panic) = AssertUnwindSafe(after).catch_unwind().await {
        let what = "what the first calls wait for";
        crew.notes.tell(&ControllerDiagnostic::Broken { what, message: told(panic) });
        return;
    }
    // What led before, or was there before, has written; and caches that were warm by then may not have seen all of it.
    crew.stage.clone().until_ending(crew.sights.catch_up()).await;
    crew.stage.reach(Point::Working);
}

/// Waits until `cache` delays the first calls no longer.
async fn settled(crew: &Crew, cache: &Declared, patience: Patience) {
    let environment = crew.connection.environment();
    let begun = environment.now();
    let missing = |waits| {
        let why = format!("{}: {}", cache.view.name(), cache.view.freshness());
        crew.notes.tell(&ControllerDiagnostic::SourceMissing { why, waits });
    };
    let is_settled = |view: &dyn View| match view.freshness() {
        _ if view.is_synced() => true,
        Freshness::Stopped(_) => true,
        Freshness::Failed(_) if cache.role.is_refusable() => true,
        freshness => !patience.lasts(&freshness, begun, environment.now()),
    };
    // What is given up by then is reported as missing at once.
    let is_reported = !matches!(patience, Patience::Doubt(bound) if bound <= REPORT_AFTER);
    let mut settled = std::pin::pin!(cache.until(environment, is_settled));
    tokio::select! {
        biased;
        () = &mut settled => {}
        () = environment.sleep_until(begun + REPORT_AFTER), if is_reported => {
            missing(true);
            settled.await;
        }
    }
    if !cache.view.is_synced() {
        missing(false);
    }
}

/// Looks after the calls and the caches, as long as it runs.
async fn look_after(crew: Arc<Crew>) {
    let environment = crew.connection.environment().clone();
    let mut next = environment.now() + LOOK;
    loop {
        let mut views = crew.gate.changes();
        let changed = views.iter_mut().map(|view| view.changed().boxed());
        let pause = environment.sleep_until(next);
        let is_closed = crew.gate.is_closed();
        tokio::select! {
            biased;
            () = pause => {
                crew.look();
                next = environment.now() + LOOK;
            }
            _ = futures::future::select_all(changed), if is_closed => crew.look_at_caches(),
        }
    }
}
