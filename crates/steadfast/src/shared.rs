//! What an informer's driver, handles and readers share.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use steadfast_core::Freshness;
use steadfast_core::breach::{Breach, Breaches};
use steadfast_core::event::{Change, Event};
use steadfast_core::freshness::Standing;
use steadfast_core::reflector::Note;
use steadfast_core::store::{Snapshot, Store, StoreReader};
use tokio::sync::watch;

use crate::environment::SharedEnvironment;
use crate::runner::{HandlerCounts, Runner};
use crate::scope::Scope;

/// The state of an informer.
pub(crate) struct Shared<K> {
    /// The resource and its scope, for people.
    pub(crate) name: String,
    pub(crate) scope: Scope,
    pub(crate) environment: SharedEnvironment,
    pub(crate) breaches: Breaches,
    pub(crate) standing: ArcSwap<Standing>,
    reader: StoreReader<K>,
    /// The one lock: taken by the driver for a batch of records, and by whoever adds a handler or an index.
    writer: Mutex<Writer<K>>,
    /// Counts publications and changes of standing.
    moved: watch::Sender<u64>,
    synced: AtomicBool,
    notes: Mutex<Vec<NoteCallback>>,
}

type NoteCallback = Arc<dyn Fn(&Note) + Send + Sync>;

/// The store and those who are told of its changes, so that nothing happens between the two.
pub(crate) struct Writer<K> {
    pub(crate) store: Store<K>,
    handlers: Vec<Arc<Runner<K>>>,
    stopped: bool,
}

impl<K: Send + Sync + 'static> Shared<K> {
    pub(crate) fn new(
        name: String,
        scope: Scope,
        environment: SharedEnvironment,
        store: Store<K>,
        standing: Standing,
    ) -> Self {
        let breaches = standing.breaches;
        Self {
            name,
            scope,
            environment,
            breaches,
            standing: ArcSwap::from_pointee(standing),
            reader: store.reader(),
            writer: Mutex::new(Writer { store, handlers: Vec::new(), stopped: false }),
            moved: watch::Sender::new(0),
            synced: AtomicBool::new(breaches.commit(Breach::SyncedTooEarly)),
            notes: Mutex::default(),
        }
    }

    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer<K>> {
        // What runs under the lock leaves the store whole even if it panics (`Store::add_index`).
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.reader.snapshot()
    }

    pub(crate) fn reader(&self) -> &StoreReader<K> {
        &self.reader
    }

    pub(crate) fn freshness(&self) -> Freshness {
        self.standing.load().at(self.environment.now())
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Makes the store's changes visible, then tells the handlers (C6); `viewed` says that a complete list is among
    /// them, so that the informer is synced before any handler can be (C9).
    pub(crate) fn publish(&self, writer: &mut Writer<K>, changes: &mut Vec<Change<K>>, viewed: bool) {
        let handler_first = self.breaches.commit(Breach::HandlerFirst);
        if handler_first {
            writer.deliver(changes, viewed);
            // Time for the handlers to see that the store does not have it yet.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        writer.store.publish();
        if viewed {
            self.synced.store(true, Ordering::Release);
        }
        if !handler_first {
            writer.deliver(changes, viewed);
        }
        changes.clear();
    }

    /// Tells of every publication and change of standing from here on.
    pub(crate) fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    pub(crate) fn tell_moved(&self) {
        self.moved.send_modify(|count| *count += 1);
    }

    /// Publishes the standing, if it changed.
    pub(crate) fn stand(&self, standing: &Standing) -> bool {
        if **self.standing.load() == *standing {
            return false;
        }
        self.standing.store(Arc::new(standing.clone()));
        true
    }

    pub(crate) fn on_note(&self, callback: NoteCallback) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(callback);
    }

    /// Tells `note` to the callbacks; what they break stays with them.
    pub(crate) fn tell(&self, note: &Note) {
        let callbacks = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for callback in callbacks {
            if std::panic::catch_unwind(AssertUnwindSafe(|| callback(note))).is_err() {
                tracing::error!(informer = %self.name, "a note callback panicked");
            }
        }
    }

    /// Adds a handler and shows it what there is.
    pub(crate) fn add_handler(&self, runner: Arc<Runner<K>>) {
        let mut writer = self.writer();
        if self.is_synced() {
            runner.push(first_view(writer.store.working()), true);
        }
        if writer.stopped {
            runner.close();
        }
        writer.handlers.retain(|held| !held.is_closed());
        writer.handlers.push(runner);
    }

    pub(crate) fn stop(&self) {
        self.writer().stopped = true;
        self.tell_moved();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.writer().stopped
    }

    /// Ends all handlers and tells what they were not told.
    pub(crate) fn close_handlers(&self) -> Undelivered {
        let handlers = self.writer().handlers.clone();
        let mut sum = Undelivered::default();
        for handler in handlers {
            handler.close();
            sum.events += handler.undelivered();
            sum.running += handler.counts().running;
        }
        sum
    }

    pub(crate) fn handlers_idle(&self) -> bool {
        self.writer().handlers.iter().all(|handler| handler.is_closed() || handler.is_idle())
    }

    pub(crate) fn handler_counts(&self) -> Vec<HandlerCounts> {
        self.writer().handlers.iter().map(|handler| handler.counts()).collect()
    }
}

/// What was not told when handlers were ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undelivered {
    /// Events that waited.
    pub events: usize,
    /// Calls that were still running, and are left to themselves.
    pub running: usize,
}

impl<K: Send + Sync + 'static> Writer<K> {
    fn deliver(&mut self, changes: &[Change<K>], viewed: bool) {
        if changes.is_empty() && !viewed {
            return;
        }
        self.handlers.retain(|handler| !handler.is_closed());
        for handler in &self.handlers {
            handler.push(changes.iter().cloned(), viewed);
        }
    }

    /// Has all handlers look at all objects again.
    pub(crate) fn resync(&mut self) {
        let changes: Vec<Change<K>> = changes_of(self.store.working(), |object| Event::Resynced { object }).collect();
        self.deliver(&changes, false);
    }
}

fn first_view<K: Send + Sync + 'static>(snapshot: &Snapshot<K>) -> impl Iterator<Item = Change<K>> {
    changes_of(snapshot, |object| Event::Added { object, initial: true })
}

fn changes_of<K: Send + Sync + 'static>(
    snapshot: &Snapshot<K>,
    event: impl Fn(Arc<K>) -> Event<K>,
) -> impl Iterator<Item = Change<K>> {
    snapshot.iter().filter_map(move |(key, entry)| {
        let object = entry.object.clone()?;
        Some(Change { key: key.clone(), uid: entry.uid.clone(), event: event(object) })
    })
}
