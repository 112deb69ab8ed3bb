//! What an informer's driver, handles and readers share.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use steadfast_core::breach::{Breach, Breaches};
use steadfast_core::event::{Change, Entry, Event};
use steadfast_core::freshness::Standing;
use steadfast_core::reflector::Note;
use steadfast_core::store::{Snapshot, Store, StoreReader};
use steadfast_core::{Freshness, ObjectKey};
use tokio::sync::watch;

use crate::environment::SharedEnvironment;
use crate::metrics::counted::Counted;
#[cfg(feature = "metrics")]
use crate::metrics::observed::{Observe, Reading};
use crate::runner::{HandlerCounts, Runner, drop_contained};
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
    stopped: AtomicBool,
    /// Counts publications and changes of standing.
    moved: watch::Sender<u64>,
    synced: AtomicBool,
    notes: Mutex<Vec<NoteCallback>>,
    pub(crate) counted: Arc<Counted>,
}

type NoteCallback = Arc<dyn Fn(&Note) + Send + Sync>;

/// The store and those who are told of its changes, so that nothing happens between the two.
pub(crate) struct Writer<K> {
    pub(crate) store: Store<K>,
    handlers: Vec<Arc<Runner<K>>>,
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
            writer: Mutex::new(Writer { store, handlers: Vec::new() }),
            stopped: AtomicBool::new(false),
            moved: watch::Sender::new(0),
            synced: AtomicBool::new(breaches.commit(Breach::SyncedTooEarly)),
            notes: Mutex::default(),
            counted: Arc::default(),
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
    /// them, so that the informer is synced before any handler can be (C9), and no longer says that it is starting.
    pub(crate) fn publish(&self, writer: &mut Writer<K>, changes: &[Change<K>], viewed: bool, standing: &Standing) {
        let handler_first = self.breaches.commit(Breach::HandlerFirst);
        if handler_first {
            writer.deliver(changes, viewed);
            // Time for the handlers to see that the store does not have it yet.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        writer.store.publish();
        self.stand(standing);
        if viewed {
            self.synced.store(true, Ordering::Release);
        }
        if !handler_first {
            writer.deliver(changes, viewed);
        }
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

    /// Adds a handler and shows it what there is; after the end there is nothing to be told.
    pub(crate) fn add_handler(&self, runner: Arc<Runner<K>>) {
        let mut writer = self.writer();
        // Under the lock under which `close_handlers` finds all there are, so that none is between the two.
        if self.is_stopped() {
            runner.close();
        }
        if self.is_synced() {
            runner.push(first_view(writer.store.working()), true);
        }
        writer.handlers.retain(|held| !held.is_closed());
        runner.take_place(writer.handlers.iter().map(|held| held.place()));
        writer.handlers.push(runner);
    }

    /// Nothing more is to come: waits end, and handlers added from here on are told nothing.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.tell_moved();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Lets go of the note callbacks: what they hold may hold this.
    pub(crate) fn end_notes(&self) {
        let notes = std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        drop_contained(notes);
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

#[cfg(feature = "metrics")]
impl<K: Send + Sync + 'static> Observe for Shared<K> {
    fn read(&self) -> Reading {
        let now = self.environment.now();
        let (standing, snapshot) = (self.standing.load(), self.snapshot());
        let version = snapshot.version().filter(|version| version.is_ordered());
        let handlers = self.writer().handlers.clone();
        Reading {
            counted: self.counted.clone(),
            freshness: standing.at(now),
            age: standing.proven.map(|proven| now.since(proven)),
            attempts: standing.attempts,
            tainted: standing.tainted.len(),
            synced: self.is_synced(),
            objects: snapshot.len(),
            version: version.and_then(|version| version.as_str().parse().ok()),
            handlers: handlers.iter().filter(|handler| !handler.is_closed()).map(|handler| handler.read()).collect(),
        }
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

    /// Has the handlers look at all objects again, save those that have not seen all of them once.
    pub(crate) fn resync(&self) {
        let synced: Vec<_> = self.handlers.iter().filter(|handler| handler.is_synced()).collect();
        if synced.is_empty() {
            return;
        }
        let again = |(key, entry): (&ObjectKey, &Arc<Entry<K>>)| {
            let object = entry.object.clone().filter(|_| !entry.tainted)?;
            Some(Change { key: key.clone(), uid: entry.uid.clone(), event: Event::Resynced { object } })
        };
        for handler in synced {
            handler.push(self.store.working().iter().filter_map(again), false);
        }
    }
}

/// What a handler that comes late is shown. A tainted object is told as it last was: its end will be told too.
fn first_view<K: Send + Sync + 'static>(snapshot: &Snapshot<K>) -> impl Iterator<Item = Change<K>> {
    snapshot.iter().filter_map(|(key, entry)| {
        let event = Event::Added { object: entry.object.clone()?, initial: true };
        Some(Change { key: key.clone(), uid: entry.uid.clone(), event })
    })
}
