//! What the next call of a key has to see: what the call before has written, and what has led to it.
//!
//! Caches may lack either: a watch lags behind the writes that were answered, and two watches of one resource behind each
//! other. The caches that calls are said to read are waited for however long it takes. Others of the factory may be read too,
//! and are waited for unless they are in doubt.
//!
//! And where keys come from another process, what that has written: by now it writes nothing more to them, so its last
//! writes are there in what the server has come to when it is asked from now on. Only caches that the controller declares may
//! delay that while they are in doubt: the others need not have to do with it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use steadfast::environment::{Instant, SharedEnvironment};
use steadfast::{CacheId, Freshness, InformerFactory, ObjectKey, WaitError, Writes};

use super::declared::{Declared, Patience, Role};
use super::diagnostic::ControllerDiagnostic;
use super::diagnostics::Notes;
use super::figures::Counted;
use super::stage::Stage;
use super::view::View;
use super::when_stale::WhenStale;
use crate::workqueue::{Priority, Workqueue};

/// After so long it is told that a cache still lacks something; and again after as long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What caches lack of what calls have to see, by key. Cheap to clone.
#[derive(Clone)]
pub(super) struct Sights(Arc<Inner>);

struct Inner {
    factory: InformerFactory,
    environment: SharedEnvironment,
    queue: Workqueue<ObjectKey>,
    notes: Notes,
    counted: Arc<Counted>,
    stage: Stage,
    /// The caches that calls are said to read.
    read: Mutex<Vec<Arc<dyn View>>>,
    /// The caches that the controller declares, and how long each may delay calls by what others have written.
    declared: Mutex<Vec<(Declared, Patience)>>,
    lacking: Mutex<All>,
}

/// What is lacking of all keys.
#[derive(Default)]
struct All {
    by_key: HashMap<ObjectKey, Lacking>,
    /// The keys in the order in which they came, with their numbers, and when that was.
    order: VecDeque<(ObjectKey, u64, Instant)>,
    next: u64,
}

/// So long nobody waits for what comes by itself as a rule, and leads to the next call.
const UNAWAITED: Duration = Duration::from_secs(1);

/// What a cache lacked when it was looked at. It is waited for once the key is to be called, or a while has passed.
#[derive(Default)]
struct Lacking {
    /// Which of several, one after the other, with one key.
    number: u64,
    /// What calls have written: no call is made before that is there.
    own: Writes,
    /// What has led to calls, or is going to.
    told: Writes,
    /// With which priority the key is called once all is there, since when: where it was to be called before.
    wanted: Option<(Priority, Instant)>,
    /// Whether somebody waits for it.
    awaited: bool,
    /// Whether the next call may be made, though something has come since that leads to another one.
    granted: bool,
}

impl Lacking {
    fn all(&self) -> Writes {
        let mut all = self.own.clone();
        all.extend(self.told.clone());
        all
    }

    /// These are there.
    fn remove(&mut self, writes: &Writes) {
        self.own.remove(writes);
        self.told.remove(writes);
    }

    fn is_empty(&self) -> bool {
        self.own.is_empty() && self.told.is_empty()
    }
}

impl Sights {
    pub(super) fn new(
        factory: InformerFactory,
        queue: Workqueue<ObjectKey>,
        notes: Notes,
        counted: Arc<Counted>,
        stage: Stage,
    ) -> Self {
        let environment = factory.connection().environment().clone();
        let (read, declared, lacking) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { factory, environment, queue, notes, counted, stage, read, declared, lacking }))
    }

    /// The controller declares these caches.
    pub(super) fn declare(&self, caches: &[Declared], when_stale: &WhenStale) {
        // A controller that acts though caches are in doubt waits for none of these.
        let read = caches.iter().filter(|cache| when_stale.waits() && cache.role.is_read());
        *lock(&self.0.read) = read.map(|cache| cache.view.clone()).collect();
        let declared = caches.iter().map(|cache| match (cache.role, when_stale.acts()) {
            // It has to be synced, which the start waits for; here its doubt counts as that of the others.
            (Role::Objects, true) => (cache.clone(), Patience::Brief),
            (role, _) => (cache.clone(), Patience::of(role, when_stale)),
        });
        *lock(&self.0.declared) = declared.collect();
    }

    /// A call for `key` has ended, and has made `writes`.
    pub(super) fn written(&self, key: &ObjectKey, writes: Writes) {
        if !writes.is_empty() && !self.0.have(&writes) {
            let versioned = writes.are_versioned();
            self.lacks(key, versioned, |lacking| {
                lacking.own.extend(writes);
                lacking.granted = false;
            });
        }
    }

    /// The next call for `key` has to see `writes`, which lead to it.
    pub(super) fn need(&self, key: &ObjectKey, writes: Writes) {
        self.lacks(key, writes.are_versioned(), |lacking| lacking.told.extend(writes));
    }

    /// Notes what is lacking. Where it is `versioned`, nobody waits for it at once: as a rule it is there before the key is to be called,
    /// for what is written comes to the cache and leads to that call.
    fn lacks(&self, key: &ObjectKey, versioned: bool, note: impl FnOnce(&mut Lacking)) {
        let now = self.0.environment.now();
        let mut all = self.0.lock();
        let lacking = all.of(key, now);
        note(lacking);
        let number = lacking.number;
        let is_to_be_awaited = !versioned && !std::mem::replace(&mut lacking.awaited, true);
        drop(all);
        if is_to_be_awaited {
            self.wait(key.clone(), number);
        }
    }

    /// Looks after what came a while ago, and has led to no call: what caches have is forgotten, and what they still lack is waited for.
    ///
    /// To be called now and then.
    pub(super) fn look(&self) {
        let old = self.0.lock().before(self.0.environment.now());
        for (key, number, writes) in old {
            let are_there = self.0.have(&writes);
            let is_to_be_awaited = self.0.lock().looked(&key, number, are_there.then_some(&writes));
            if is_to_be_awaited {
                self.wait(key, number);
            }
        }
    }

    /// Has somebody wait for what the key lacks.
    fn wait(&self, key: ObjectKey, number: u64) {
        let inner = self.0.clone();
        self.0.environment.spawn(Box::pin(async move {
            inner.stage.clone().until_ending(inner.wait(&key, number)).await;
        }));
    }

    /// Whether caches have all that a call for `key` has to see. If not, it is added to the queue again when they have, with
    /// `priority` or what is above it.
    ///
    /// To be asked by whoever works on the key.
    pub(super) fn are_there(&self, key: &ObjectKey, priority: Priority) -> bool {
        let writes = match self.0.lock().by_key.get_mut(key) {
            None => return true,
            Some(lacking) => (!std::mem::take(&mut lacking.granted)).then(|| lacking.all()),
        };
        let Some(writes) = writes else {
            // What has come since leads to another call.
            self.0.queue.add_with(key.clone(), priority);
            return true;
        };
        let are_there = self.0.have(&writes);
        let mut all = self.0.lock();
        let Some(lacking) = all.by_key.get_mut(key) else { return true };
        if are_there {
            // More may have come meanwhile, and leads to another call.
            lacking.remove(&writes);
            lacking.wanted = None;
            if lacking.is_empty() {
                all.by_key.remove(key);
            }
            return true;
        }
        let wanted = lacking.wanted.map_or_else(
            || {
                Counted::one(&self.0.counted.waits);
                (priority, self.0.environment.now())
            },
            |(before, since)| (before.max(priority), since),
        );
        lacking.wanted = Some(wanted);
        if !std::mem::replace(&mut lacking.awaited, true) {
            let number = lacking.number;
            drop(all);
            self.wait(key.clone(), number);
        }
        false
    }

    /// Waits until caches have whatever was written before this is called, by whoever acted on the keys before.
    ///
    /// A cache of the factory that the controller does not declare is waited for only while it is fresh.
    pub(super) async fn catch_up(&self) {
        let inner = &self.0;
        let begun = inner.environment.now();
        let declared = lock(&inner.declared).clone();
        let mut written = inner.factory.written_so_far();
        for (cache, _) in &declared {
            // One of another factory.
            written.extend(cache.view.written_so_far());
        }
        let _waiting = CatchingUp::begin(&inner.counted);
        let mut is_incomparable = false;
        loop {
            let (written, environment) = (&written, &inner.environment);
            let own = declared.iter().map(|(cache, patience)| {
                cache.wait_for_writes(environment, written, PATIENCE, *patience, begun).boxed()
            });
            let lasts = |id: CacheId, freshness: &Freshness| {
                let is_declared = declared.iter().any(|(cache, _)| cache.view.cache_id() == id);
                !is_declared && Patience::Brief.lasts(freshness, begun, environment.now())
            };
            let others = inner.factory.wait_for_writes_while(written, PATIENCE, lasts).boxed();
            let mut late = None;
            for error in join_all(own.chain([others])).await.into_iter().filter_map(Result::err) {
                match error {
                    WaitError::Deadline { .. } => late = late.or(Some(error)),
                    error if !std::mem::replace(&mut is_incomparable, true) => {
                        inner.notes.tell(&ControllerDiagnostic::CannotCatchUp { why: error.to_string() });
                    }
                    _ => {}
                }
            }
            let Some(late) = late else { break };
            let (why, lasting) = (late.to_string(), inner.since(begun));
            inner.notes.tell(&ControllerDiagnostic::LacksOthers { why, lasting });
        }
        inner.counted.caught_up(inner.since(begun));
    }

    /// How many keys wait.
    pub(super) fn waiting(&self) -> usize {
        self.0.lock().by_key.values().filter(|lacking| lacking.wanted.is_some()).count()
    }
}

impl All {
    /// What is lacking of `key`.
    fn of(&mut self, key: &ObjectKey, now: Instant) -> &mut Lacking {
        if !self.by_key.contains_key(key) {
            // What has been there in time is not to be looked after, and there may be much of it.
            while self.order.front().is_some_and(|(key, number, _)| !self.is_unawaited(key, *number)) {
                self.order.pop_front();
            }
            let number = self.next;
            self.next += 1;
            self.order.push_back((key.clone(), number, now));
            self.by_key.insert(key.clone(), Lacking { number, ..Lacking::default() });
        }
        self.by_key.get_mut(key).expect("it is there, or has just been put there")
    }

    fn is_unawaited(&self, key: &ObjectKey, number: u64) -> bool {
        self.by_key.get(key).is_some_and(|lacking| lacking.number == number && !lacking.awaited)
    }

    /// What came a while before `now` and nobody waits for. It is to be [looked](Self::looked) after: this tells of it once.
    fn before(&mut self, now: Instant) -> Vec<(ObjectKey, u64, Writes)> {
        let mut old = Vec::new();
        while self.order.front().is_some_and(|(_, _, at)| now.since(*at) >= UNAWAITED) {
            let Some((key, number, _)) = self.order.pop_front() else { break };
            if let Some(lacking) = self.by_key.get(&key).filter(|_| self.is_unawaited(&key, number)) {
                old.push((key, number, lacking.all()));
            }
        }
        old
    }

    /// The key was looked after, and of what it lacked `writes` have come. Says whether somebody is to wait for it from now on.
    fn looked(&mut self, key: &ObjectKey, number: u64, writes: Option<&Writes>) -> bool {
        if !self.is_unawaited(key, number) {
            return false;
        }
        let Some(lacking) = self.by_key.get_mut(key) else { return false };
        if let Some(writes) = writes {
            lacking.remove(writes);
        }
        if lacking.is_empty() {
            self.by_key.remove(key);
            return false;
        }
        lacking.awaited = true;
        true
    }
}

/// That calls wait for what others have written.
struct CatchingUp<'a>(&'a Counted);

impl<'a> CatchingUp<'a> {
    fn begin(counted: &'a Counted) -> Self {
        counted.catching_up.fetch_add(1, Ordering::Relaxed);
        Self(counted)
    }
}

impl Drop for CatchingUp<'_> {
    fn drop(&mut self) {
        self.0.catching_up.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inner {
    /// Whether caches have `writes`.
    fn have(&self, writes: &Writes) -> bool {
        self.factory.has_writes(writes) && self.read().iter().all(|view| view.has_writes(writes))
    }

    /// Waits until caches have `writes`, for so long.
    async fn seen(&self, writes: &Writes) -> Result<(), WaitError> {
        for view in self.read() {
            match view.wait_for_writes(writes, PATIENCE).await {
                // Its reader is told of that in other ways.
                Ok(()) | Err(WaitError::Stopped { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.factory.wait_for_writes(writes, PATIENCE).await
    }

    /// Waits until caches have all that a call for `key` has to see, then has it called, if it was to be.
    async fn wait(&self, key: &ObjectKey, number: u64) {
        let begun = self.environment.now();
        // Another one is waited for by another.
        let own = |lacking: &&mut Lacking| lacking.number == number;
        loop {
            let Some(writes) = self.lock().by_key.get_mut(key).filter(own).map(|lacking| lacking.all()) else { return };
            match self.seen(&writes).await {
                Ok(()) => {}
                Err(error @ WaitError::Deadline { .. }) => {
                    if self.lock().by_key.get_mut(key).filter(own).is_some_and(|lacking| lacking.wanted.is_some()) {
                        let (key, why, lasting) = (key.clone(), error.to_string(), self.since(begun));
                        self.notes.tell(&ControllerDiagnostic::LacksWrites { key, why, lasting });
                    }
                    continue;
                }
                Err(error) => {
                    self.notes.tell(&ControllerDiagnostic::CannotCompare { key: key.clone(), why: error.to_string() });
                }
            }
            let mut all = self.lock();
            let Some(lacking) = all.by_key.get_mut(key).filter(own) else { return };
            lacking.remove(&writes);
            if !lacking.own.is_empty() {
                // A call has ended meanwhile, and has written.
                continue;
            }
            let (wanted, is_all) = (lacking.wanted.take(), lacking.is_empty());
            // More has come meanwhile; a key to which something happens all the time is called all the same.
            lacking.granted = !is_all && wanted.is_some();
            if is_all {
                all.by_key.remove(key);
            }
            drop(all);
            if let Some((priority, since)) = wanted {
                self.counted.waited(self.since(since));
                self.queue.add_with(key.clone(), priority);
            }
            if is_all {
                return;
            }
        }
    }

    fn read(&self) -> Vec<Arc<dyn View>> {
        lock(&self.read).clone()
    }

    fn since(&self, begun: Instant) -> Duration {
        self.environment.now().since(begun)
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        lock(&self.lacking)
    }
}

/// No code of the user's runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use steadfast::k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::from_zero(Duration::from_millis(milliseconds))
    }

    fn key(number: u64) -> ObjectKey {
        ObjectKey::namespaced("default", format!("map-{number}"))
    }

    fn written() -> Writes {
        let mut map = ConfigMap::default();
        map.metadata.name = Some("a".to_owned());
        map.metadata.resource_version = Some("7".to_owned());
        let mut writes = Writes::default();
        writes.add(&map);
        writes
    }

    /// A thousand keys lack something, one each millisecond.
    fn a_thousand() -> All {
        let mut all = All::default();
        for number in 0..1000 {
            all.of(&key(number), at(number)).own.extend(written());
        }
        all
    }

    #[test]
    fn what_was_written_for_keys_that_nobody_calls_is_forgotten_once_it_is_there() {
        let mut all = a_thousand();
        assert!(all.before(at(999)).is_empty(), "it may lead to a call");
        let old = all.before(at(1499));
        assert_eq!((old.len(), all.order.len()), (500, 500));
        for (key, number, writes) in old {
            assert!(!all.looked(&key, number, Some(&writes)));
        }
        assert_eq!(all.by_key.len(), 500);
    }

    #[test]
    fn what_caches_lack_after_a_while_is_waited_for_by_one() {
        let mut all = a_thousand();
        for (key, number, _) in all.before(at(5000)) {
            assert!(all.looked(&key, number, None));
            assert!(!all.looked(&key, number, None), "somebody waits already");
        }
        assert_eq!((all.by_key.len(), all.order.len()), (1000, 0));
        assert!(all.before(at(9000)).is_empty());
    }

    #[test]
    fn what_was_there_in_time_leaves_nothing_behind() {
        let mut all = a_thousand();
        all.by_key.clear();
        all.of(&key(1000), at(1000));
        assert_eq!((all.by_key.len(), all.order.len()), (1, 1));
    }

    #[test]
    fn another_want_of_a_key_is_not_taken_for_the_one_before() {
        let mut all = All::default();
        all.of(&key(0), at(0)).own.extend(written());
        let old = all.before(at(1000));
        all.by_key.clear();
        all.of(&key(0), at(1000)).own.extend(written());
        let [(key, number, writes)] = &old[..] else { panic!("{} are old", old.len()) };
        assert!(!all.looked(key, *number, Some(writes)));
        assert_eq!((all.by_key.len(), all.order.len()), (1, 1), "it may come by itself still");
    }
}
