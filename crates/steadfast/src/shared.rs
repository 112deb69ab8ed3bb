//! State shared by an informer's driver, handles and readers.

mod delayed_delivery;
mod diagnostic_callbacks;
mod durable_handlers;
mod lifetime;
mod pending_deliveries;
mod reading;
mod removed_objects;
mod shared_store;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use steadfast_core::event::{Change, Event};
use steadfast_core::fault_injection::{FaultInjection, inject};
use steadfast_core::freshness::{Evidence, FreshnessState};
use steadfast_core::reflector::Diagnostic;
use steadfast_core::store::{Footprint, Snapshot, Store};
use steadfast_core::{Freshness, Object, ResourceVersion};
use tokio::sync::watch;

use crate::decoded_forms::DecodeReports;
use crate::durable::DurableHandlers;
use crate::environment::SharedEnvironment;
use crate::handler_filter::HandlerFilter;
use crate::handler_registry::HandlerRegistry;
use crate::handler_stats::HandlerStats;
use crate::memory::Memory;
use crate::metrics::informer_counters::InformerCounters;
use crate::metrics::observed::Observation;
use crate::scope::Scope;
use crate::subscription::Subscription;
use crate::version_waits::{VersionWaiter, VersionWaits};
pub(crate) use diagnostic_callbacks::DiagnosticCallback;
use diagnostic_callbacks::DiagnosticCallbacks;
use lifetime::Lifetime;
use removed_objects::RemovedObjects;
use shared_store::SharedStore;

/// State of an informer.
pub(crate) struct Shared<K> {
    /// Resource and scope, for display.
    pub(crate) name: String,
    pub(crate) scope: Scope,
    pub(crate) environment: SharedEnvironment,
    pub(crate) evidence: ArcSwap<Evidence>,
    pub(crate) store: SharedStore<K>,
    /// Held during a publication with its delivery, and while a handler is added. No change therefore falls between the
    /// handler's initial objects and its first delivery. User code never runs under this lock.
    handlers: Mutex<HandlerRegistry<Arc<Subscription<K>>>>,
    pub(crate) lifetime: Lifetime,
    /// Added handlers with options that the driver has not processed yet.
    newcomers: Mutex<Vec<Arc<Subscription<K>>>>,
    observation: OnceLock<Observation>,
    /// Memory of the base objects of delta compression in bytes, if it is enabled.
    pub(crate) dictionary_bytes: OnceLock<Arc<AtomicUsize>>,
    /// Reports of readers about objects that they decoded.
    pub(crate) decode_reports: Arc<DecodeReports>,
    /// Memory of the decoded objects that the driver keeps for the handlers, in bytes.
    pub(crate) recent_bytes: Arc<AtomicUsize>,
    /// Counter of publications and state changes.
    changed: watch::Sender<u64>,
    /// Waiters for versions of the cache.
    version_waits: VersionWaits,
    synced: AtomicBool,
    /// True while handlers wait for the confirmation of a restored cache.
    withheld: AtomicBool,
    /// Durable handlers.
    pub(crate) durable_handlers: DurableHandlers<K>,
    pub(crate) diagnostic_callbacks: DiagnosticCallbacks,
    pub(crate) counted: Arc<InformerCounters>,
    /// Objects that were deleted last, for waits for deletions.
    pub(crate) removed_objects: RemovedObjects,
}

/// Handler and the changes that match its filter.
type FilteredChanges<K> = (Arc<Subscription<K>>, Vec<Change<K>>);

impl<K: Send + Sync + 'static> Shared<K> {
    pub(crate) fn new(
        name: String,
        scope: Scope,
        environment: SharedEnvironment,
        store: Store<K>,
        evidence: Evidence,
    ) -> Self {
        Self {
            name,
            scope,
            environment,
            synced: AtomicBool::new(inject!(evidence.faults, SyncedTooEarly)),
            evidence: ArcSwap::from_pointee(evidence),
            store: SharedStore::new(store),
            handlers: Mutex::default(),
            lifetime: Lifetime::default(),
            newcomers: Mutex::default(),
            observation: OnceLock::new(),
            dictionary_bytes: OnceLock::new(),
            decode_reports: Arc::default(),
            recent_bytes: Arc::default(),
            changed: watch::Sender::new(0),
            version_waits: VersionWaits::default(),
            withheld: AtomicBool::new(false),
            durable_handlers: DurableHandlers::default(),
            diagnostic_callbacks: DiagnosticCallbacks::default(),
            counted: Arc::default(),
            removed_objects: RemovedObjects::default(),
        }
    }

    /// Edits the store, then adds the indexes that waited for the edit.
    pub(crate) fn edit<T>(&self, edit: impl FnOnce(&mut Store<K>) -> T) -> T {
        self.store.edit(edit)
    }

    /// Returns the published state.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.store.snapshot()
    }

    pub(crate) fn freshness(&self) -> Freshness {
        self.evidence().at(self.environment.now())
    }

    /// Returns the faults that a test injects.
    pub(crate) fn faults(&self) -> FaultInjection {
        self.evidence.load().faults
    }

    /// Returns the evidence for the freshness. After a stop the state is `Stopped`, independent of the driver.
    fn evidence(&self) -> Arc<Evidence> {
        let evidence = self.evidence.load_full();
        match self.lifetime.stopped_at() {
            Some(since) if evidence.state != FreshnessState::Stopped => Arc::new(evidence.stopped(since)),
            _ => evidence,
        }
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Returns true if handlers receive objects.
    fn is_visible_to_handlers(&self) -> bool {
        self.is_synced() && !self.withheld.load(Ordering::Acquire)
    }

    /// Publishes the store's changes to readers, then delivers them to handlers (C6).
    ///
    /// If `viewed` is true, the changes include a complete list. The informer is then marked as synced before any
    /// handler can be marked (C9), and its freshness is no longer `Starting`.
    pub(crate) fn publish(&self, store: &mut Store<K>, changes: &[Change<K>], viewed: bool, evidence: &Evidence) {
        // Only the driver changes this flag, and only the driver calls this method.
        let withheld = self.withheld.load(Ordering::Acquire);
        let (before, delivered_changes) = ((withheld && viewed).then(|| self.snapshot()), changes);
        let all: Vec<_> = if withheld && viewed { initial_objects(store.working()).collect() } else { Vec::new() };
        let changes = if withheld { &all } else { changes };
        // A list can skip versions after this one. A watch skips none.
        let reached = viewed.then(|| self.snapshot().version().cloned()).flatten();
        // Runs before the lock is taken, because filters are user code.
        let filtered_changes = self.filtered_changes(changes, viewed);
        let mut handlers = self.handlers.lock();
        if withheld && viewed {
            self.withheld.store(false, Ordering::Release);
        }
        if inject!(self.faults(), HandlerFirst) {
            deliver(&mut handlers, changes, filtered_changes, viewed).iter().for_each(Subscription::start);
            // Injected fault: calls of handlers start before the publication. The pause gives them time to observe that
            // the store lacks the change.
            std::thread::sleep(std::time::Duration::from_millis(20));
            store.publish();
            self.publish_state(evidence);
            self.synced.fetch_or(viewed, Ordering::Release);
            return;
        }
        // Readers first, handlers second: a handler that reads the cache must find its own event there (C6).
        store.publish();
        self.publish_state(evidence);
        if viewed {
            self.synced.store(true, Ordering::Release);
        }
        let receivers = deliver(&mut handlers, changes, filtered_changes, viewed);
        self.record_pending_deliveries(delivered_changes, reached.as_ref(), before.as_deref());
        // Calls start after the lock is released: a called handler may need the lock, for example to add a handler.
        drop(handlers);
        receivers.iter().for_each(Subscription::start);
        self.durable_handlers.start();
    }

    /// Returns the matching changes for each handler with a filter that has received its initial objects.
    fn filtered_changes(&self, changes: &[Change<K>], viewed: bool) -> Vec<FilteredChanges<K>> {
        if changes.is_empty() && !viewed {
            return Vec::new();
        }
        // Only the driver adds handlers to the delivery, and only the driver calls this method. Most informers have no
        // filters, so nothing is allocated for them.
        let has_joined =
            |handler: &&Arc<Subscription<K>>| handler.filter.as_ref().is_some_and(HandlerFilter::has_joined);
        let joined: Vec<_> = self.handlers.lock().members().filter(has_joined).cloned().collect();
        let passing = |handler: Arc<Subscription<K>>| {
            let passing = handler.filter.as_ref()?.pass(changes);
            (viewed || !passing.is_empty()).then_some((handler, passing))
        };
        joined.into_iter().filter_map(passing).collect()
    }

    /// Returns the handlers added since the last call with options for the driver.
    pub(crate) fn take_newcomers(&self) -> Vec<Arc<Subscription<K>>> {
        std::mem::take(&mut *self.newcomers.lock())
    }

    /// Sends the initial objects to a handler with a filter, and adds the handler to the delivery. Only the driver may
    /// call this, because no publication may happen concurrently.
    pub(crate) fn join(&self, handler: &Arc<Subscription<K>>) {
        let Some(screen) = &handler.filter else { return };
        if self.is_visible_to_handlers() {
            handler.push(screen.pass(initial_objects(&self.snapshot())), true);
        }
        screen.join();
        handler.start();
    }

    /// Delivers all objects to `handler` again, if the handler has finished its initial objects. Only the driver may
    /// call this, because no publication may happen concurrently: the published state then equals the delivered state.
    pub(crate) fn resync(&self, handler: &Arc<Subscription<K>>) {
        if !handler.runner().is_synced() {
            return;
        }
        let again = |object: &Object<K>| {
            let passes = handler.filter.as_ref().is_none_or(|screen| screen.has(object.key()));
            passes.then(|| Change::of_list(Event::Resynced { object: object.clone() }))
        };
        let snapshot = self.snapshot();
        handler.push(snapshot.decodable().filter_map(again), false);
        handler.start();
    }

    /// Returns a receiver that is notified of every later publication and state change.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns a waiter for `version`, or `None` if the version cannot be ordered.
    ///
    /// The caller must then check the cache. The waiter is woken at the version, or if the version may never be
    /// reached.
    pub(crate) fn version_waiter(&self, version: &ResourceVersion) -> Option<VersionWaiter<'_>> {
        self.version_waits.add_waiter(version)
    }

    pub(crate) fn notify_changed(&self) {
        self.changed.send_modify(|count| *count += 1);
        let snapshot = self.snapshot();
        match snapshot.version() {
            Some(version) if !self.is_stopped() => self.version_waits.record_version(version, snapshot.epoch()),
            _ => self.version_waits.wake_all(),
        }
    }

    /// Publishes the state, if it changed.
    pub(crate) fn publish_state(&self, evidence: &Evidence) -> bool {
        if **self.evidence.load() == *evidence {
            return false;
        }
        self.evidence.store(Arc::new(evidence.clone()));
        true
    }

    /// Passes a diagnostic to the callbacks.
    pub(crate) fn report(&self, diagnostic: &Diagnostic) {
        self.diagnostic_callbacks.report(diagnostic, &self.name);
    }

    /// Adds a handler with its initial objects. Returns true if the driver must process the handler's options.
    ///
    /// # Errors
    ///
    /// Returns an error after the driver has ended, because nothing would be delivered.
    pub(crate) fn add_handler(&self, subscription: &Arc<Subscription<K>>) -> Result<bool, Ended> {
        let needs_driver = subscription.filter.is_some() || subscription.resync.is_some();
        {
            let mut handlers = self.handlers.lock();
            // Checked under the lock that `close_handlers` takes, so that a concurrent stop cannot miss this handler.
            if self.is_stopped() {
                drop(handlers);
                subscription.close();
                return Err(Ended);
            }
            if self.is_visible_to_handlers() && subscription.filter.is_none() {
                // Under this lock nothing is published, so the snapshot equals the state delivered to the other
                // handlers.
                subscription.push(initial_objects(&self.snapshot()), true);
            }
            handlers.add(|seat| {
                subscription.set_slot(seat);
                subscription.clone()
            });
            if needs_driver {
                self.newcomers.lock().push(subscription.clone());
            }
        }
        subscription.start();
        Ok(needs_driver)
    }

    /// Logs that the last handle was dropped while handlers are still registered.
    pub(crate) fn warn_of_handlers_left(&self) {
        let handlers = self.handlers().len();
        if handlers > 0 {
            tracing::warn!(
                informer = %self.name, handlers,
                "this informer and its factory were dropped, so the informer ends, and its handlers receive no further calls; \
                 keep the informer or its factory as long as the handlers are needed, or stop the informer first"
            );
        }
    }

    /// Marks the informer as stopped: waits end, and handlers added later receive nothing.
    pub(crate) fn stop(&self) {
        self.lifetime.stop(self.environment.now());
        self.notify_changed();
        self.lifetime.run_stop_callback();
    }

    /// Runs `action` when the informer stops, or immediately if the informer has stopped.
    pub(crate) fn at_stop(&self, action: impl FnOnce() + Send + 'static) {
        self.lifetime.set_stop_callback(action);
        // A stop between start and registration would otherwise lose the action. `stop` takes it at most once.
        if self.is_stopped() {
            self.stop();
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.lifetime.is_stopped()
    }

    /// Drops the diagnostic callbacks and new handlers, because they may hold a reference to this informer.
    pub(crate) fn drop_diagnostic_callbacks(&self) {
        drop(self.take_newcomers());
        self.diagnostic_callbacks.clear();
    }

    /// Closes all handlers and returns their undelivered events.
    pub(crate) fn close_handlers(&self) -> Undelivered {
        let handlers = self.handlers();
        let mut sum = Undelivered::default();
        for handler in handlers {
            handler.close();
            // A handler of several informers ends with the last of them, and counts once.
            if handler.runner().is_closed() {
                sum.events += handler.runner().undelivered();
                sum.running += handler.runner().stats().running;
            }
        }
        self.durable_handlers.close();
        sum.running += self.durable_handlers.running();
        sum
    }

    /// Returns the memory of objects and keys in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.snapshot().held_bytes() + self.dictionary_len()
    }

    /// Returns the memory of the base objects of delta compression in bytes.
    pub(crate) fn dictionary_len(&self) -> usize {
        self.dictionary_bytes.get().map_or(0, |dictionary_bytes| dictionary_bytes.load(Ordering::Relaxed))
    }

    /// Returns the memory of all parts.
    pub(crate) fn memory(&self) -> Memory {
        let Footprint { objects, entries, layout, indexes } = self.snapshot().footprint();
        let dictionary_bytes = self.dictionary_len();
        let handlers = self.handlers();
        let own = handlers.iter().filter(|handler| handler.represents_handler);
        let queues = own.map(|handler| handler.runner().footprint()).sum();
        let decoded = self.decode_reports.bytes() + self.recent_bytes.load(Ordering::Relaxed);
        Memory { objects: objects + dictionary_bytes + decoded, keys: entries + layout, indexes, queues }
    }

    /// Returns true if the handlers have processed everything that the driver read.
    pub(crate) fn is_drained(&self) -> bool {
        self.durable_handlers.is_idle()
            && self.lifetime.has_ended()
            && self.handlers().iter().all(|handler| handler.runner().is_idle())
    }

    pub(crate) fn handler_stats(&self) -> Vec<HandlerStats> {
        self.handlers().iter().map(|handler| handler.runner().stats()).collect()
    }

    /// Returns true if the informer has a handler, durable ones included.
    pub(crate) fn has_handlers(&self) -> bool {
        self.durable_handlers.has_registered() || self.handlers.lock().members().next().is_some()
    }

    fn handlers(&self) -> Vec<Arc<Subscription<K>>> {
        self.handlers.lock().members().cloned().collect()
    }

    /// Keeps the informer's registration for scrapes.
    pub(crate) fn observe(&self, observation: Observation) {
        drop(self.observation.set(observation));
    }
}

/// Error for a handler added after the informer has ended.
pub(crate) struct Ended;

/// Undelivered events of closed handlers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undelivered {
    /// Queued events.
    pub events: usize,
    /// Calls that were still running and continue.
    pub running: usize,
}

/// Appends changes to the handlers' queues, and returns the handlers to start.
fn deliver<K: Send + Sync + 'static>(
    handlers: &mut HandlerRegistry<Arc<Subscription<K>>>,
    changes: &[Change<K>],
    filtered_changes: Vec<FilteredChanges<K>>,
    viewed: bool,
) -> Vec<Arc<Subscription<K>>> {
    if changes.is_empty() && !viewed {
        return Vec::new();
    }
    let mut receivers: Vec<_> = handlers.members().filter(|handler| handler.filter.is_none()).cloned().collect();
    for handler in &receivers {
        handler.push(changes.iter().cloned(), viewed);
    }
    for (handler, passing) in filtered_changes {
        handler.push(passing, viewed);
        receivers.push(handler);
    }
    receivers
}

/// Returns the initial objects for a late handler. A tainted object is delivered in its last readable state, because
/// its deletion will be delivered too.
fn initial_objects<K: Send + Sync + 'static>(snapshot: &Snapshot<K>) -> impl Iterator<Item = Change<K>> {
    snapshot.iter().filter_map(|entry| {
        let object = entry.last()?.clone();
        Some(Change::of_list(Event::Added { object, initial: true }))
    })
}
