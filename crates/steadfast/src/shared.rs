//! What an informer's driver, handles and readers share.

#[cfg(feature = "checkpoint")]
mod owing;
#[cfg(feature = "checkpoint")]
mod withheld;

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use arc_swap::ArcSwap;
use steadfast_core::breach::{Breach, Breaches};
use steadfast_core::event::{Change, Event};
use steadfast_core::freshness::{Condition, Evidence};
use steadfast_core::reflector::Note;
use steadfast_core::store::{Footprint, Index, Joining, Snapshot, Store, StoreReader};
use steadfast_core::{Freshness, Instant, Object, ResourceVersion};
use tokio::sync::watch;

#[cfg(feature = "checkpoint")]
use crate::durable::Durables;
use crate::environment::SharedEnvironment;
use crate::handler_counts::HandlerCounts;
use crate::memory::Memory;
use crate::metrics::counted::Counted;
#[cfg(feature = "metrics")]
use crate::metrics::observed::{Observation, Observe, Reading};
use crate::milestones::{Milestone, Milestones};
use crate::roster::Roster;
use crate::runner::{Runner, drop_contained};
use crate::scope::Scope;
use crate::screen::Screen;

/// The state of an informer.
pub(crate) struct Shared<K> {
    /// The resource and its scope, for people.
    pub(crate) name: String,
    pub(crate) scope: Scope,
    pub(crate) environment: SharedEnvironment,
    pub(crate) breaches: Breaches,
    pub(crate) evidence: ArcSwap<Evidence>,
    reader: StoreReader<K>,
    /// The driver's: it holds this lock while the user's functions find values for indexes, so nobody waits for it.
    store: Mutex<Store<K>>,
    /// Indexes that are filled and not in the store yet.
    joining: Mutex<Vec<Joining<K>>>,
    /// Held while a change is published and delivered, and while a handler is added, so that nothing is between the two; the
    /// user's code does not run then.
    handlers: Mutex<Roster<Arc<Runner<K>>>>,
    /// Whether it ended though nobody stopped it.
    pub(crate) broken: AtomicBool,
    /// Handlers that want something of the driver, and that it has not come to yet.
    newcomers: Mutex<Vec<Arc<Runner<K>>>>,
    /// When it was stopped.
    stopped: OnceLock<Instant>,
    /// Whether its driver has ended, so that nothing more is delivered.
    ended: AtomicBool,
    /// What is to be done when the informer is stopped, once.
    at_stop: Mutex<Option<AtStop>>,
    #[cfg(feature = "metrics")]
    observation: OnceLock<Observation>,
    /// How many bytes those have beside which objects are packed, where they are.
    pub(crate) beside: OnceLock<Arc<AtomicUsize>>,
    /// Counts publications and changes of state.
    moved: watch::Sender<u64>,
    /// Who waits for the cache to come to a version.
    milestones: Milestones,
    synced: AtomicBool,
    /// Whether handlers wait though there is something to be seen: what a checkpoint has kept, and nothing has confirmed.
    withheld: AtomicBool,
    /// Handlers that acknowledge.
    #[cfg(feature = "checkpoint")]
    pub(crate) durables: Durables<K>,
    notes: Mutex<Vec<NoteCallback>>,
    pub(crate) counted: Arc<Counted>,
}

pub(crate) type NoteCallback = Arc<dyn Fn(&Note) + Send + Sync>;

/// What passes a handler's filter.
type Screened<K> = (Arc<Runner<K>>, Vec<Change<K>>);

type AtStop = Box<dyn FnOnce() + Send>;

/// So often an index that is being filled follows the store without its lock; what changed in the last of these moments
/// is taken in under it.
const UNLOCKED_ROUNDS: u32 = 8;

impl<K: Send + Sync + 'static> Shared<K> {
    pub(crate) fn new(
        name: String,
        scope: Scope,
        environment: SharedEnvironment,
        store: Store<K>,
        evidence: Evidence,
    ) -> Self {
        let breaches = evidence.breaches;
        Self {
            name,
            scope,
            environment,
            breaches,
            evidence: ArcSwap::from_pointee(evidence),
            reader: store.reader(),
            store: Mutex::new(store),
            joining: Mutex::default(),
            handlers: Mutex::default(),
            broken: AtomicBool::new(false),
            newcomers: Mutex::default(),
            stopped: OnceLock::new(),
            ended: AtomicBool::new(false),
            at_stop: Mutex::default(),
            #[cfg(feature = "metrics")]
            observation: OnceLock::new(),
            beside: OnceLock::new(),
            moved: watch::Sender::new(0),
            milestones: Milestones::default(),
            synced: AtomicBool::new(breaches.commit(Breach::SyncedTooEarly)),
            withheld: AtomicBool::new(false),
            #[cfg(feature = "checkpoint")]
            durables: Durables::default(),
            notes: Mutex::default(),
            counted: Arc::default(),
        }
    }

    /// Has the driver edit the store, then takes in the indexes that waited for that.
    pub(crate) fn edit<T>(&self, edit: impl FnOnce(&mut Store<K>) -> T) -> T {
        // What runs under the lock leaves the store whole even if it panics (`Store::add_index`).
        let edited = edit(&mut self.store.lock().unwrap_or_else(PoisonError::into_inner));
        self.admit();
        edited
    }

    /// Adds an index, filled from what readers see: the user's function holds up no change meanwhile.
    ///
    /// It may be called from within such a function; the index then joins the store when that is done.
    pub(crate) fn add_index<I, V>(&self, extract: impl Fn(&K) -> V + Send + Sync + 'static) -> Index<K, I>
    where
        I: Ord + Clone + Send + Sync + 'static,
        V: IntoIterator<Item = I>,
    {
        let (index, filled) = self.snapshot().index(extract);
        lock(&self.joining).push(filled);
        self.admit();
        index
    }

    /// Has the indexes that wait follow the store, and takes in those that have reached it.
    ///
    /// Where the store is being edited, whoever edits it does that next.
    fn admit(&self) {
        loop {
            let mut waiting = std::mem::take(&mut *lock(&self.joining));
            if waiting.is_empty() {
                return;
            }
            for joining in &mut waiting {
                joining.follow(&self.snapshot());
            }
            if let Some(mut store) = self.try_store() {
                for joining in waiting {
                    if joining.is_at(store.working()) || joining.rounds() >= UNLOCKED_ROUNDS {
                        store.admit(joining);
                    } else {
                        lock(&self.joining).push(joining);
                    }
                }
                store.publish();
                continue;
            }
            lock(&self.joining).append(&mut waiting);
            // Whoever held it may have let go before it could find these.
            if self.try_store().is_none() {
                return;
            }
        }
    }

    fn try_store(&self) -> Option<MutexGuard<'_, Store<K>>> {
        match self.store.try_lock() {
            Ok(store) => Some(store),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.reader.snapshot()
    }

    pub(crate) fn reader(&self) -> &StoreReader<K> {
        &self.reader
    }

    pub(crate) fn freshness(&self) -> Freshness {
        self.evidence().at(self.environment.now())
    }

    /// What the freshness is computed from. That of an informer that was stopped says so, whatever its driver is at.
    fn evidence(&self) -> Arc<Evidence> {
        let evidence = self.evidence.load_full();
        match self.stopped.get() {
            Some(since) if evidence.condition != Condition::Stopped => Arc::new(evidence.stopped(*since)),
            _ => evidence,
        }
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Whether handlers are shown what there is.
    fn is_shown(&self) -> bool {
        self.is_synced() && !self.withheld.load(Ordering::Acquire)
    }

    /// Makes the store's changes visible, then tells the handlers (C6); `viewed` says that a complete list is among
    /// them, so that the informer is synced before any handler can be (C9), and no longer says that it is starting.
    pub(crate) fn publish(&self, store: &mut Store<K>, changes: &[Change<K>], viewed: bool, evidence: &Evidence) {
        // The driver alone changes that, and it is here.
        let withheld = self.withheld.load(Ordering::Acquire);
        #[cfg(feature = "checkpoint")]
        let (before, owed) = ((withheld && viewed).then(|| self.snapshot()), changes);
        let all: Vec<_> = if withheld && viewed { first_view(store.working()).collect() } else { Vec::new() };
        let changes = if withheld { &all } else { changes };
        // Before the lock is taken, for it is the user's code that says what passes.
        let screened = self.screened(changes, viewed);
        let mut handlers = lock(&self.handlers);
        if withheld && viewed {
            self.withheld.store(false, Ordering::Release);
        }
        if self.breaches.commit(Breach::HandlerFirst) {
            deliver(&mut handlers, changes, screened, viewed).iter().for_each(Runner::start);
            // Time for the handlers to see that the store does not have it yet.
            std::thread::sleep(std::time::Duration::from_millis(20));
            store.publish();
            self.stand(evidence);
            self.synced.fetch_or(viewed, Ordering::Release);
            return;
        }
        store.publish();
        self.stand(evidence);
        if viewed {
            self.synced.store(true, Ordering::Release);
        }
        let told = deliver(&mut handlers, changes, screened, viewed);
        #[cfg(feature = "checkpoint")]
        self.owe(owed, before.as_deref());
        drop(handlers);
        told.iter().for_each(Runner::start);
        #[cfg(feature = "checkpoint")]
        self.durables.start();
    }

    /// What passes each filter of those that have one and follow already.
    fn screened(&self, changes: &[Change<K>], viewed: bool) -> Vec<Screened<K>> {
        if changes.is_empty() && !viewed {
            return Vec::new();
        }
        // The driver alone has them join, and it is here. Most informers have none, and nothing is allocated for them.
        let has_joined = |handler: &&Arc<Runner<K>>| handler.screen.as_ref().is_some_and(Screen::has_joined);
        let joined: Vec<_> = lock(&self.handlers).members().filter(has_joined).cloned().collect();
        let passing = |handler: Arc<Runner<K>>| {
            let passing = handler.screen.as_ref()?.pass(changes);
            (viewed || !passing.is_empty()).then_some((handler, passing))
        };
        joined.into_iter().filter_map(passing).collect()
    }

    /// The handlers that were added since the last call and want something of the driver.
    pub(crate) fn take_newcomers(&self) -> Vec<Arc<Runner<K>>> {
        std::mem::take(&mut *lock(&self.newcomers))
    }

    /// Shows a handler that has a filter what there is of it, and has it follow from here on. Only for the driver, which
    /// publishes nothing meanwhile.
    pub(crate) fn join(&self, handler: &Arc<Runner<K>>) {
        let Some(screen) = &handler.screen else { return };
        if self.is_shown() {
            handler.push(screen.pass(first_view(&self.snapshot())), true);
        }
        screen.join();
        handler.start();
    }

    /// Has `handler` look at all its objects again, unless it has not seen all of them once. Only for the driver, which
    /// publishes nothing meanwhile: what is published is what was delivered to the handler.
    pub(crate) fn resync(&self, handler: &Arc<Runner<K>>) {
        if !handler.is_synced() {
            return;
        }
        let again = |object: &Object<K>| {
            let passes = handler.screen.as_ref().is_none_or(|screen| screen.has(object.key()));
            passes.then(|| Change::of_list(Event::Resynced { object: object.clone() }))
        };
        let snapshot = self.snapshot();
        handler.push(snapshot.decodable().filter_map(again), false);
        handler.start();
    }

    /// Tells of every publication and change of state from here on.
    pub(crate) fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// A place among those who wait for the cache to come to `version`, if that can be waited for: whoever has one looks whether it
    /// has, and is then woken when it has, or when that may never be.
    pub(crate) fn milestone(&self, version: &ResourceVersion) -> Option<Milestone<'_>> {
        self.milestones.enter(version)
    }

    pub(crate) fn tell_moved(&self) {
        self.moved.send_modify(|count| *count += 1);
        let snapshot = self.snapshot();
        match snapshot.version() {
            Some(version) if !self.is_stopped() => self.milestones.pass(version, snapshot.epoch()),
            _ => self.milestones.pass_all(),
        }
    }

    /// Publishes the state, if it changed.
    pub(crate) fn stand(&self, evidence: &Evidence) -> bool {
        if **self.evidence.load() == *evidence {
            return false;
        }
        self.evidence.store(Arc::new(evidence.clone()));
        true
    }

    pub(crate) fn on_note(&self, callback: NoteCallback) {
        lock(&self.notes).push(callback);
    }

    /// Tells `note` to the callbacks; what they break stays with them.
    pub(crate) fn tell(&self, note: &Note) {
        let callbacks = lock(&self.notes).clone();
        for callback in callbacks {
            if std::panic::catch_unwind(AssertUnwindSafe(|| callback(note))).is_err() {
                tracing::error!(informer = %self.name, "a note callback panicked");
            }
        }
    }

    /// Adds a handler and shows it what there is; returns whether the driver is to look after it too.
    ///
    /// # Errors
    ///
    /// After the end, when there is nothing to deliver.
    pub(crate) fn add_handler(&self, runner: &Arc<Runner<K>>) -> Result<bool, Ended> {
        let wants_driver = runner.screen.is_some() || runner.resync.is_some();
        {
            let mut handlers = lock(&self.handlers);
            // Under the lock under which `close_handlers` finds all there are, so that none is between the two.
            if self.is_stopped() {
                drop(handlers);
                runner.close();
                return Err(Ended);
            }
            if self.is_shown() && runner.screen.is_none() {
                // What is published is what was delivered to the others, while nothing more can be.
                runner.push(first_view(&self.snapshot()), true);
            }
            handlers.add(|seat| {
                runner.sit_down(seat);
                runner.clone()
            });
            if wants_driver {
                lock(&self.newcomers).push(runner.clone());
            }
        }
        runner.start();
        Ok(wants_driver)
    }

    /// Says that nobody holds the informer any more though handlers wait for what it brings.
    pub(crate) fn warn_of_handlers_left(&self) {
        let handlers = self.handlers().len();
        if handlers > 0 {
            tracing::warn!(
                informer = %self.name, handlers,
                "nobody holds this informer or its factory any more, so it ends, and its handlers are called no more; \
                 keep one of them for as long as the handlers are wanted, or stop it to say that they are not"
            );
        }
    }

    /// Nothing more is to come: waits end, and handlers added from here on are given nothing.
    pub(crate) fn stop(&self) {
        let _ = self.stopped.set(self.environment.now());
        self.tell_moved();
        let at_stop = lock(&self.at_stop).take();
        if let Some(at_stop) = at_stop {
            at_stop();
        }
    }

    /// Has `action` done when the informer is stopped, whoever stops it; at once if it was.
    pub(crate) fn at_stop(&self, action: impl FnOnce() + Send + 'static) {
        *lock(&self.at_stop) = Some(Box::new(action));
        if self.is_stopped() {
            self.stop();
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.get().is_some()
    }

    /// Lets go of the note callbacks and of newcomers: what they hold may hold this.
    pub(crate) fn end_notes(&self) {
        drop(self.take_newcomers());
        let notes = std::mem::take(&mut *lock(&self.notes));
        drop_contained(notes);
    }

    /// Ends all handlers and tells what they were not given.
    pub(crate) fn close_handlers(&self) -> Undelivered {
        let handlers = self.handlers();
        let mut sum = Undelivered::default();
        for handler in handlers {
            handler.close();
            sum.events += handler.undelivered();
            sum.running += handler.counts().running;
        }
        #[cfg(feature = "checkpoint")]
        {
            self.durables.close();
            sum.running += self.durables.counts().iter().map(|(_, counts)| counts.running).sum::<usize>();
        }
        sum
    }

    /// What objects and keys take up.
    pub(crate) fn held_bytes(&self) -> usize {
        self.snapshot().held_bytes() + self.beside_bytes()
    }

    /// What those take up that others are packed beside.
    pub(crate) fn beside_bytes(&self) -> usize {
        self.beside.get().map_or(0, |beside| beside.load(Ordering::Relaxed))
    }

    /// What all of it takes up.
    pub(crate) fn memory(&self) -> Memory {
        let Footprint { objects, entries, layout, indexes } = self.snapshot().footprint();
        let beside = self.beside_bytes();
        let queues = self.handlers().iter().map(|handler| handler.footprint()).sum();
        Memory { objects: objects + beside, keys: entries + layout, indexes, queues }
    }

    /// The driver has ended.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether the handlers have been given all that the driver had read, and are done with it.
    pub(crate) fn is_drained(&self) -> bool {
        #[cfg(feature = "checkpoint")]
        let settled = self.durables.is_idle();
        #[cfg(not(feature = "checkpoint"))]
        let settled = true;
        settled && self.ended.load(Ordering::Acquire) && self.handlers().iter().all(|handler| handler.is_idle())
    }

    pub(crate) fn handler_counts(&self) -> Vec<HandlerCounts> {
        self.handlers().iter().map(|handler| handler.counts()).collect()
    }

    /// Returns whether the informer has a handler, durable ones included.
    pub(crate) fn has_handlers(&self) -> bool {
        #[cfg(feature = "checkpoint")]
        let durable = self.durables.counts().iter().any(|(_, counts)| counts.is_here);
        #[cfg(not(feature = "checkpoint"))]
        let durable = false;
        durable || lock(&self.handlers).members().next().is_some()
    }

    fn handlers(&self) -> Vec<Arc<Runner<K>>> {
        lock(&self.handlers).members().cloned().collect()
    }

    /// Keeps the informer's place among the observed.
    #[cfg(feature = "metrics")]
    pub(crate) fn observe(&self, observation: Observation) {
        drop(self.observation.set(observation));
    }
}

#[cfg(feature = "metrics")]
impl<K: Send + Sync + 'static> Observe for Shared<K> {
    fn read(&self) -> Reading {
        let now = self.environment.now();
        let (evidence, snapshot) = (self.evidence(), self.snapshot());
        let version = snapshot.version().filter(|version| version.is_ordered());
        let handlers = self.handlers();
        Reading {
            counted: self.counted.clone(),
            freshness: evidence.at(now),
            age: evidence.proven.map(|proven| now.since(proven)),
            attempts: evidence.attempts,
            tainted: evidence.tainted.len(),
            synced: self.is_synced(),
            objects: snapshot.len(),
            memory: self.memory(),
            version: version.and_then(|version| version.as_str().parse().ok()),
            handlers: handlers.iter().map(|handler| handler.read()).collect(),
        }
    }
}

/// An informer has ended.
pub(crate) struct Ended;

/// What was not delivered when handlers were ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undelivered {
    /// Events that waited.
    pub events: usize,
    /// Calls that were still running, and are left to themselves.
    pub running: usize,
}

/// Puts changes into the handlers' queues, and returns those that are to be started.
fn deliver<K: Send + Sync + 'static>(
    handlers: &mut Roster<Arc<Runner<K>>>,
    changes: &[Change<K>],
    screened: Vec<Screened<K>>,
    viewed: bool,
) -> Vec<Arc<Runner<K>>> {
    if changes.is_empty() && !viewed {
        return Vec::new();
    }
    let mut told: Vec<_> = handlers.members().filter(|handler| handler.screen.is_none()).cloned().collect();
    for handler in &told {
        handler.push(changes.iter().cloned(), viewed);
    }
    for (handler, passing) in screened {
        handler.push(passing, viewed);
        told.push(handler);
    }
    told
}

/// What a handler that comes late is shown. A tainted object is delivered as it last was: its end will be delivered too.
fn first_view<K: Send + Sync + 'static>(snapshot: &Snapshot<K>) -> impl Iterator<Item = Change<K>> {
    snapshot.iter().filter_map(|entry| {
        let object = entry.last()?.clone();
        Some(Change::of_list(Event::Added { object, initial: true }))
    })
}

/// No user code runs under the locks that this is for, so a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
