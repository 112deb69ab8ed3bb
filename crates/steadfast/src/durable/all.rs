//! The durable handlers of one informer: registered handlers, and handlers of earlier runs with pending deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use steadfast_core::event::Change;
use steadfast_core::outbox::{PendingDelivery, Rows};
use steadfast_core::{Object, ObjectKey, ResourceVersion};

use super::calls::{Calls, Durable};
use super::event::DurableStats;
use crate::environment::SharedEnvironment;

/// All durable handlers of one informer.
pub(crate) struct DurableHandlers<K> {
    /// True if the informer has a checkpoint.
    is_stored: AtomicBool,
    members: Mutex<BTreeMap<Arc<str>, Arc<Durable<K>>>>,
    dropped: Mutex<Vec<Dropped>>,
    /// Handlers to replace, with their successors.
    replacements: Mutex<BTreeMap<Arc<str>, Replacement>>,
    wake: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
}

/// Successors of a replaced handler.
struct Replacement {
    informer: String,
    successors: Vec<String>,
    environment: SharedEnvironment,
}

/// A handler to remove permanently.
struct Dropped {
    name: Arc<str>,
    keys: BTreeSet<ObjectKey>,
    is_being_removed: bool,
}

/// Rows to write for one handler.
pub(crate) enum OutboxRows<K> {
    /// Removes the rows of these keys, and the handler.
    Remove(Arc<str>, Vec<ObjectKey>),
    /// Writes these rows, and the record of the handler if the flag is set.
    Write(Arc<str>, bool, Rows<K>),
}

/// Reason that a handler was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// The informer has no checkpoint.
    CheckpointUnsupported,
    /// A handler of this name exists.
    NameTaken,
}

impl<K> Default for DurableHandlers<K> {
    fn default() -> Self {
        Self {
            is_stored: AtomicBool::new(false),
            members: Mutex::default(),
            dropped: Mutex::default(),
            replacements: Mutex::default(),
            wake: Arc::default(),
        }
    }
}

impl<K: Send + Sync + 'static> DurableHandlers<K> {
    /// Records that the informer has a checkpoint.
    pub(crate) fn enable_storing(&self) {
        self.is_stored.store(true, Ordering::Release);
    }

    /// Sets the callback `wake`, called if there are rows to write.
    pub(crate) fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        drop(self.wake.set(Box::new(wake)));
    }

    /// Returns the handler of this name, registered or not, and creates it if it is missing.
    fn member(&self, informer: &str, name: &str, environment: &SharedEnvironment) -> Arc<Durable<K>> {
        let mut members = self.members.lock();
        if let Some(member) = members.get(name) {
            return member.clone();
        }
        // The callback is read at each call, because it may be set after the handler is created.
        let (name, wake) = (Arc::<str>::from(name), self.wake.clone());
        let wake = Arc::new(move || {
            if let Some(wake) = wake.get() {
                wake();
            }
        });
        let member = Durable::new(informer, name.clone(), environment.clone(), wake);
        members.insert(name, member.clone());
        member
    }

    /// Restores the pending deliveries of the handler `name` from an earlier run.
    pub(crate) fn restore(
        &self,
        informer: &str,
        name: &str,
        outbox: Vec<(ObjectKey, PendingDelivery<Object<K>>)>,
        environment: &SharedEnvironment,
    ) {
        self.member(informer, name, environment).restore(outbox);
    }

    /// Marks all handlers of the file as [restored](Self::restore).
    pub(crate) fn restored(&self) {
        let names: Vec<Arc<str>> = self.replacements.lock().keys().cloned().collect();
        for name in names {
            self.copy_to_successors(&name);
        }
    }

    /// Replaces the handler `name` by `successors`, immediately or after the file is restored.
    pub(crate) fn replace(&self, informer: &str, name: &str, successors: &[&str], environment: &SharedEnvironment) {
        let (name, successors) = (Arc::<str>::from(name), successors.iter().map(|&name| name.to_owned()).collect());
        let replacement = Replacement { informer: informer.to_owned(), successors, environment: environment.clone() };
        self.replacements.lock().insert(name.clone(), replacement);
        self.copy_to_successors(&name);
    }

    /// Copies the pending deliveries of a handler to its successors and drops the handler, if it exists and is unused.
    ///
    /// The caller holds the lock under which a [write](Self::begin_write) starts, so the copy and the removal are
    /// written in one transaction.
    fn copy_to_successors(&self, name: &str) {
        let Some(predecessor) = self.members.lock().get(name).cloned() else { return };
        // A handler in use acknowledges its deliveries itself; nothing is copied.
        if predecessor.stats().is_registered {
            return;
        }
        let Some(Replacement { informer, successors, environment }) = self.replacements.lock().remove(name) else {
            return;
        };
        for successor in &successors {
            self.member(&informer, successor, &environment).take_over_from(&predecessor);
        }
        self.drop_name(name);
    }

    /// Attaches the calls of a handler. The caller must [open](Self::open) the handlers after all of them are attached.
    ///
    /// # Errors
    ///
    /// Returns an error if the informer has no checkpoint, or if a handler of this name exists.
    pub(crate) fn attach(
        &self,
        informer: &str,
        name: &str,
        calls: Calls<K>,
        environment: &SharedEnvironment,
    ) -> Result<Arc<Durable<K>>, Rejected> {
        if !self.is_stored.load(Ordering::Acquire) {
            return Err(Rejected::CheckpointUnsupported);
        }
        let member = self.member(informer, name, environment);
        if member.attach(calls) { Ok(member) } else { Err(Rejected::NameTaken) }
    }

    /// Starts deliveries to all handlers. New handlers first get all of `view`.
    pub(crate) fn open<I: Iterator<Item = Change<K>>>(&self, view: impl Fn() -> I) {
        for member in self.members() {
            member.open(view());
        }
    }

    /// Adds the net effect of `changes` to the pending deliveries of all handlers. `reached` is the version that the
    /// cache had reached before; it is required if `changes` include those of a list.
    pub(crate) fn record(&self, changes: &[Change<K>], reached: Option<&ResourceVersion>) {
        if !changes.is_empty() {
            for member in self.members() {
                member.record(changes, reached);
            }
        }
    }

    /// Discards the stored deliveries. All handlers start again with a full view.
    pub(crate) fn forget(&self) {
        for member in self.members() {
            member.forget();
        }
    }

    /// Starts calls up to each handler's limit.
    pub(crate) fn start(&self) {
        for member in self.members() {
            member.start();
        }
    }

    /// Returns the rows to write, or all rows if `all` is true. After a result that is not empty, the caller must call
    /// [`finish_write`](Self::finish_write).
    pub(crate) fn begin_write(&self, all: bool) -> Vec<OutboxRows<K>> {
        let members: Vec<_> = self.members.lock().iter().map(|(name, member)| (name.clone(), member.clone())).collect();
        let mut pending_deliveries = Vec::new();
        // Handlers that are dropped during the write are not marked, so `finish_write` keeps them for the next write.
        for dropped in &mut *self.dropped.lock() {
            dropped.is_being_removed = true;
            pending_deliveries.push(OutboxRows::Remove(dropped.name.clone(), dropped.keys.iter().cloned().collect()));
        }
        pending_deliveries.extend(members.into_iter().filter_map(|(name, member)| {
            let (is_new, rows) = member.begin_write(all);
            (is_new || !rows.is_empty()).then_some(OutboxRows::Write(name, is_new, rows))
        }));
        pending_deliveries
    }

    /// Marks the last [write](Self::begin_write) as written, or as uncertain.
    pub(crate) fn finish_write(&self, written: bool) {
        // After an uncertain write, the rows of dropped handlers are removed again: removal is idempotent.
        if written {
            self.dropped.lock().retain(|dropped| !dropped.is_being_removed);
        }
        for member in self.members() {
            member.finish_write(written);
        }
    }

    /// Delivers pending events although they cannot be written. Returns true if there were any.
    pub(crate) fn deliver_unrecorded(&self) -> bool {
        // `count`, not `any`: every member must deliver its events, and `any` would stop at the first member that has
        // some.
        self.members().iter().filter(|member| member.deliver_unrecorded()).count() > 0
    }

    /// Removes a handler and all its rows. Returns true if the handler existed.
    pub(crate) fn drop_name(&self, name: &str) -> bool {
        let Some((name, member)) = self.members.lock().remove_entry(name) else { return false };
        // The rows are removed with the next write. Until then, a crash restores the handler.
        let keys = member.end();
        self.dropped.lock().push(Dropped { name, keys, is_being_removed: false });
        if let Some(wake) = self.wake.get() {
            wake();
        }
        true
    }

    /// Starts no further calls. Pending deliveries stay stored.
    pub(crate) fn close(&self) {
        for member in self.members() {
            member.close();
        }
    }

    /// Returns true if no call is running and, for each registered handler, nothing is pending and all rows are
    /// written.
    pub(crate) fn is_idle(&self) -> bool {
        self.members().iter().all(|member| member.is_idle())
    }

    /// Returns the number of running calls.
    pub(crate) fn running(&self) -> usize {
        self.members().iter().map(|member| member.stats().running).sum()
    }

    /// Returns true if a handler is registered.
    pub(crate) fn has_registered(&self) -> bool {
        self.members().iter().any(|member| member.stats().is_registered)
    }

    /// Returns the statistics of all handlers.
    pub(crate) fn stats(&self) -> Vec<(Arc<str>, DurableStats)> {
        self.members.lock().iter().map(|(name, member)| (name.clone(), member.stats())).collect()
    }

    fn members(&self) -> Vec<Arc<Durable<K>>> {
        self.members.lock().values().cloned().collect()
    }
}
