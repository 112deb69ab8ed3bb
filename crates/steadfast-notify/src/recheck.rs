//! Messages that no change of the object itself causes: an instant passes, or an object changes that the rule looked up.
//!
//! One task for each source and each stream of a rule that uses `now` or `get(…)`. It evaluates each object as of the end of
//! its previous pass, which no handler can have overtaken, to learn at which instant the result may change and what it
//! depends on. What has happened since is then played in order: each instant with `now` at that very instant, so that another
//! run sends the same message under the same ID. What the handlers have sent already is not sent again, because the result is
//! the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use steadfast::{Informer, Lazy, Object, ObjectKey, Snapshot};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::change::{Cause, Change, State};
use crate::config::EventKind;
use crate::engine::Engine;
use crate::instants::Instants;
use crate::lookups::{Dependents, LookupCaches, Lookups};
use crate::offload::offload;
use crate::rule::Compiled;
use crate::source::{Source, doubt, subject, whole};
use crate::wake::wake_on_changes;

/// Longest sleep. A wall clock that is set is noticed after this time at the latest.
const MAX_SLEEP: Duration = Duration::from_secs(10);

/// Number of objects that are evaluated before other rules have their turn.
const AT_ONCE: usize = 16;

/// What the task of one source and stream needs.
pub(crate) struct Recheck {
    pub(crate) source: Source,
    pub(crate) rule: Arc<Compiled>,
    pub(crate) sink: String,
    pub(crate) informer: Informer<Lazy<DynamicObject>>,
    pub(crate) caches: Option<Arc<LookupCaches>>,
    pub(crate) engine: Engine,
    /// Wall clock.
    pub(crate) clock: fn() -> Timestamp,
}

/// What the task knows of the objects at the end of a pass.
struct Known {
    /// All instants up to this one have been played.
    played: Timestamp,
    objects: Option<Arc<Snapshot<Lazy<DynamicObject>>>>,
    looked_up: Option<Arc<Lookups>>,
    dependents: Dependents<ObjectKey>,
    instants: Instants<ObjectKey>,
}

impl Recheck {
    /// Runs until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) -> String {
        // What an instant or a lookup has changed before is told by the state that handlers begin with.
        let mut known = Known {
            played: (self.clock)(),
            objects: None,
            looked_up: self.caches.as_ref().map(|caches| caches.freeze()),
            dependents: Dependents::default(),
            instants: Instants::default(),
        };
        let news = Arc::new(Notify::new());
        let looked_up = self.caches.iter().flat_map(|caches| caches.changed());
        let _watching = wake_on_changes([self.informer.changed()].into_iter().chain(looked_up), &news);
        loop {
            // The state of an object that is not certain may be an old one: what has passed meanwhile is played afterwards.
            let is_certain = doubt(&self.informer).is_none();
            if is_certain {
                if let Some(caches) = &self.caches {
                    // Nothing is concluded from a state that is not certain. Instants that pass meanwhile are played afterwards.
                    caches.until_certain().await;
                }
                self.pass(&mut known).await;
            }
            let next = known.instants.next().filter(|_| is_certain);
            let until = next.map_or(MAX_SLEEP, |next| {
                // An instant that has passed already is due in the next pass.
                Duration::try_from(next.duration_since((self.clock)())).unwrap_or_default()
            });
            tokio::select! {
                () = news.notified() => {}
                () = sleep(until.min(MAX_SLEEP)) => {}
            }
        }
    }

    async fn pass(&self, known: &mut Known) {
        // The order counts: what the caches have is at least as new as this instant.
        let now = (self.clock)();
        let looked_up = self.caches.as_ref().map(|caches| caches.freeze());
        let objects = self.informer.snapshot();
        let first = known.objects.is_none();
        let changed = changed(known.objects.as_deref(), &objects);
        for key in &changed {
            known.dependents.remove(key);
            known.instants.set(key, None);
        }
        if first {
            // There was no earlier pass that handlers could have come between.
            known.looked_up.clone_from(&looked_up);
        }
        let (played, before) = (known.played, known.looked_up.clone());
        self.learn(known, &objects, changed, played, before.as_ref()).await;
        if let (Some(before), Some(looked_up)) = (&before, &looked_up) {
            let dependents = known.dependents.of(&looked_up.differences(before));
            for key in &dependents {
                self.send(key, Cause::Lookup, now, Some(before)).await;
            }
            self.learn(known, &objects, dependents, played, Some(looked_up)).await;
        }
        while let Some((at, key)) = known.instants.take_due(now) {
            self.send(&key, Cause::Time, at, None).await;
            self.learn(known, &objects, [key].into(), at, looked_up.as_ref()).await;
        }
        known.played = known.played.max(now);
        (known.objects, known.looked_up) = (Some(objects), looked_up);
    }

    /// Evaluates objects at the instant `at` to learn what their results depend on.
    async fn learn(
        &self,
        known: &mut Known,
        objects: &Snapshot<Lazy<DynamicObject>>,
        keys: BTreeSet<ObjectKey>,
        at: Timestamp,
        looked_up: Option<&Arc<Lookups>>,
    ) {
        let keys: Vec<ObjectKey> = keys.into_iter().collect();
        for keys in keys.chunks(AT_ONCE) {
            let changes = keys.iter().map(|key| {
                let lookups = looked_up.map(|lookups| lookups.afresh());
                (key.clone(), self.change(objects, key, Cause::Change, at, lookups, None))
            });
            let (changes, rule): (Vec<_>, _) = (changes.collect(), self.rule.clone());
            let learned = offload(move || {
                let learn = |(key, change): (ObjectKey, Option<Arc<Change>>)| {
                    let Some(change) = change else { return (key, None, Vec::new()) };
                    let (_, recheck_at) = rule.outlook(&change);
                    let reads = change.lookups.as_ref().map(|lookups| lookups.reads()).unwrap_or_default();
                    (key, recheck_at, reads)
                };
                changes.into_iter().map(learn).collect::<Vec<_>>()
            });
            // An evaluation that panics is reported by the handler.
            for (key, recheck_at, reads) in learned.await.unwrap_or_default() {
                // An instant that does not lie ahead would be played for ever.
                known.instants.set(&key, recheck_at.filter(|recheck_at| *recheck_at > at));
                known.dependents.set(&key, reads);
            }
        }
    }

    async fn send(&self, key: &ObjectKey, cause: Cause, at: Timestamp, before: Option<&Arc<Lookups>>) {
        // As it is when it is its turn: an event that a handler has passed on before may be newer than this pass.
        let change = || {
            let lookups = self.caches.as_ref().map(|caches| caches.freeze());
            self.change(&self.informer.snapshot(), key, cause, at, lookups, before.cloned())
        };
        self.engine.accept_current(&self.source.rule, &self.sink, change, || {}).await;
    }

    /// An evaluation of an object as it is in `objects`; `None` if it is not there.
    fn change(
        &self,
        objects: &Snapshot<Lazy<DynamicObject>>,
        key: &ObjectKey,
        cause: Cause,
        at: Timestamp,
        lookups: Option<Arc<Lookups>>,
        lookups_before: Option<Arc<Lookups>>,
    ) -> Option<Arc<Change>> {
        let entry = objects.entry(key.namespace(), key.name())?;
        let object = entry.object().map(Object::decoded)?.ok()?;
        let subject = subject(&self.source, &self.source.resource_name(), &object);
        let state = State::new(whole(&object, &self.source.resource));
        let instant = if cause == Cause::Time { format!("~{at}") } else { String::new() };
        let id = format!("{}@{}{instant}", subject.identity(), object.version());
        Some(Arc::new(Change {
            old: Some(state.clone()),
            new: Some(state),
            cause,
            lookups,
            lookups_before,
            ..Change::new(id, EventKind::Updated, subject, at)
        }))
    }
}

/// Keys of the objects that differ.
fn changed(before: Option<&Snapshot<Lazy<DynamicObject>>>, now: &Snapshot<Lazy<DynamicObject>>) -> BTreeSet<ObjectKey> {
    let mut keys = BTreeSet::new();
    match before {
        None => keys.extend(now.iter().map(|entry| entry.key().clone())),
        Some(before) => before.differences(now, |old, new| {
            keys.extend([old, new].into_iter().flatten().map(|entry| entry.key().clone()));
        }),
    }
    keys
}
