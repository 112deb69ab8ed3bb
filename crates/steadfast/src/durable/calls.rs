//! One durable handler: its pending deliveries, its calls and their retries, independent of other handlers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use steadfast_core::backoff::{Backoff, BackoffSettings};
use steadfast_core::event::Change;
use steadfast_core::outbox::{DueEvent, Outbox, PendingDelivery, Rows};
use steadfast_core::random::Random;
use steadfast_core::{Object, ObjectKey, ResourceVersion};
use steadfast_executor::drop_contained;
use tokio::runtime::Handle;

use super::event::{DurableEvent, DurableStats};
use crate::environment::SharedEnvironment;

/// Call settings of a handler.
pub(crate) struct Calls<K> {
    pub(crate) handle: DurableHandlerFn<K>,
    /// Runtime of the calls.
    pub(crate) runtime: Handle,
    /// Maximum number of concurrent calls, each for another object.
    pub(crate) concurrency: usize,
    /// Number of calls that namespaces share. With `n` namespaces that have calls, each may have this number divided by
    /// `n + 1`.
    pub(crate) namespace_share: Option<usize>,
    /// Timeout of a call.
    pub(crate) deadline: Duration,
    /// Backoff after a failed call.
    pub(crate) backoff: BackoffSettings,
    /// True if a deletion is delivered even if the handler did not receive the creation.
    pub(crate) deliver_unseen_deletions: bool,
}

/// The user's function.
type DurableHandlerFn<K> = Arc<dyn Fn(DurableEvent<K>) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Callback that is called if there are rows to write.
pub(super) type WakeFn = Arc<dyn Fn() + Send + Sync>;

/// One handler of an informer, registered or not.
pub(crate) struct Durable<K> {
    informer: String,
    name: Arc<str>,
    environment: SharedEnvironment,
    wake: WakeFn,
    state: Mutex<State<K>>,
}

struct State<K> {
    outbox: Outbox<K>,
    calls: Option<Arc<Calls<K>>>,
    deliverable: Deliverable,
    /// True after the initial objects became pending deliveries. Before that nothing is pending.
    has_initial_objects: bool,
    /// True if no further call may start.
    is_closed: bool,
    record_presence: RecordPresence,
    /// Objects with a deliverable event and without a running or delayed call.
    ready: VecDeque<ObjectKey>,
    /// Objects with a running call.
    busy: BTreeSet<ObjectKey>,
    shares: NamespaceShares,
    failures: BTreeMap<ObjectKey, Backoff>,
    random: Random,
    counts: DurableStats,
}

/// Pending deliveries that may be delivered now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deliverable {
    /// No delivery may start.
    Nothing,
    /// Only deliveries that are already written to the file.
    Written,
    /// All deliveries, because the file cannot be written.
    All,
}

/// Presence of this handler's record in the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordPresence {
    Unknown,
    Writing,
    Written,
}

impl<K: Send + Sync + 'static> Durable<K> {
    pub(super) fn new(informer: &str, name: Arc<str>, environment: SharedEnvironment, wake: WakeFn) -> Arc<Self> {
        let state = State {
            outbox: Outbox::default(),
            calls: None,
            deliverable: Deliverable::Nothing,
            has_initial_objects: false,
            is_closed: false,
            record_presence: RecordPresence::Unknown,
            ready: VecDeque::new(),
            busy: BTreeSet::new(),
            shares: NamespaceShares::default(),
            failures: BTreeMap::new(),
            random: Random::new(environment.random()),
            counts: DurableStats::default(),
        };
        Arc::new(Self { informer: informer.to_owned(), name, environment, wake, state: Mutex::new(state) })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Restores the pending deliveries from the file. The handler had its initial view in an earlier run.
    pub(super) fn restore(&self, outbox: Vec<(ObjectKey, PendingDelivery<Object<K>>)>) {
        let mut state = self.lock();
        (state.has_initial_objects, state.record_presence) = (true, RecordPresence::Written);
        for (key, pending) in outbox {
            state.ready.push_back(key.clone());
            state.outbox.restore(key, pending);
        }
    }

    /// Takes over the pending deliveries of `other`, and must acknowledge them itself.
    ///
    /// Does nothing if this handler has a record of its own, from the file or from an initial view.
    pub(super) fn take_over_from(&self, other: &Self) {
        // Takes one lock at a time: no lock order exists between two handlers.
        let (outbox, has_initial_objects) = {
            let other = other.lock();
            let mut outbox = Outbox::default();
            outbox.copy_from(&other.outbox);
            (outbox, other.has_initial_objects)
        };
        let mut state = self.lock();
        if has_initial_objects && !state.has_initial_objects && state.record_presence == RecordPresence::Unknown {
            (state.outbox, state.has_initial_objects) = (outbox, true);
        }
    }

    /// Attaches the calls, and returns false if calls are attached already.
    pub(super) fn attach(&self, calls: Calls<K>) -> bool {
        let mut state = self.lock();
        let is_free = state.calls.is_none() && !state.is_closed;
        if is_free {
            state.outbox.deliver_unseen_ends(calls.deliver_unseen_deletions);
            state.calls = Some(Arc::new(calls));
            // Objects that the share of the previous handler has held back. The new handler may have no share.
            let deferred = std::mem::take(&mut state.shares.deferred);
            state.ready.extend(deferred.into_values().flatten());
            // Objects whose retry the previous handler has delayed. The new handler receives them without a delay. A key
            // must not be queued twice: its second copy would skip the next backoff.
            let State { ready, busy, failures, .. } = &mut *state;
            let queued: BTreeSet<_> = ready.iter().chain(&*busy).cloned().collect();
            ready.extend(failures.keys().filter(|key| !queued.contains(key)).cloned());
        }
        is_free
    }

    /// Starts deliveries. Makes all of `view` pending, unless the handler already had its initial view.
    pub(crate) fn open(&self, view: impl Iterator<Item = Change<K>>) {
        // Only an open handler may start calls. Before it is opened, the restored state may belong to another cluster.
        let mut state = self.lock();
        if state.deliverable == Deliverable::Nothing {
            state.deliverable = Deliverable::Written;
        }
        if !std::mem::replace(&mut state.has_initial_objects, true) {
            view.for_each(|change| state.outbox.record(&change));
        }
    }

    /// Adds the net effect of `changes` to the pending deliveries. The cache had reached the version `reached` before.
    pub(super) fn record(&self, changes: &[Change<K>], reached: Option<&ResourceVersion>) {
        let mut state = self.lock();
        if state.has_initial_objects {
            for change in changes {
                state.outbox.record_after(change, reached);
            }
            state.deliver_more_unrecorded();
        }
    }

    /// Discards the pending deliveries. The handler starts again with a full view.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        // Running calls continue. Their acknowledgements find no delivery, and change nothing.
        state.has_initial_objects = false;
        state.outbox.forget();
        state.ready.clear();
        state.shares.deferred.clear();
        state.failures.clear();
    }

    /// Returns true if the handler is new to the file, and the rows to write. If `all` is true, returns all rows.
    pub(super) fn begin_write(&self, all: bool) -> (bool, Rows<K>) {
        let mut state = self.lock();
        let is_new = all || state.record_presence != RecordPresence::Written;
        if is_new {
            state.record_presence = RecordPresence::Writing;
        }
        (is_new, state.outbox.begin_write(all))
    }

    /// Marks the last [write](Self::begin_write) as written, or as uncertain.
    pub(super) fn finish_write(self: &Arc<Self>, written: bool) {
        {
            let mut state = self.lock();
            if written && state.deliverable == Deliverable::All {
                state.deliverable = Deliverable::Written;
            }
            // The handler's own row is part of each write until a write succeeds.
            if state.record_presence == RecordPresence::Writing {
                state.record_presence = if written { RecordPresence::Written } else { RecordPresence::Unknown };
            }
            let keys = state.outbox.finish_write(written);
            state.ready.extend(keys);
        }
        self.start();
    }

    /// Delivers pending events although they cannot be written, until a write succeeds. Returns true if there were any.
    pub(super) fn deliver_unrecorded(self: &Arc<Self>) -> bool {
        let delivers_more = {
            let mut state = self.lock();
            if state.deliverable == Deliverable::Written {
                state.deliverable = Deliverable::All;
            }
            state.deliver_more_unrecorded()
        };
        self.start();
        delivers_more
    }

    /// Starts calls up to the limit.
    pub(crate) fn start(self: &Arc<Self>) {
        while let Some((call, event)) = self.next() {
            let runtime = call.calls.runtime.clone();
            runtime.spawn(call.run(event));
        }
    }

    fn next(self: &Arc<Self>) -> Option<(DurableCall<K>, DurableEvent<K>)> {
        let mut state = self.lock();
        let calls = state.calls.clone().filter(|_| state.deliverable != Deliverable::Nothing && !state.is_closed)?;
        while state.busy.len() < calls.concurrency {
            let key = state.ready.pop_front()?;
            let failures = state.failures.get(&key).map_or(0, Backoff::failures);
            // The key may be stale: a merge may have removed the delivery, or a call for the object is running. The end
            // of that call, or the next write, queues the key again.
            let Some(pending) = state.outbox.deliverable(&key).filter(|_| !state.busy.contains(&key)) else { continue };
            let Some((due, event)) = pending.due.clone().zip(pending.event()) else { continue };
            if !state.shares.may_start(&key, calls.namespace_share) {
                continue;
            }
            let event = DurableEvent { id: due.id(), event, failures };
            state.busy.insert(key.clone());
            return Some((DurableCall { durable: self.clone(), calls, delivery: Some((key, due)) }, event));
        }
        None
    }

    /// Processes the end of a call with the settings `calls`.
    fn finish_call(
        self: &Arc<Self>,
        calls: &Arc<Calls<K>>,
        key: ObjectKey,
        due: &DueEvent<Object<K>>,
        result: Result<(), String>,
    ) {
        let retry = {
            let mut state = self.lock();
            state.release(&key);
            let is_registered = state.is_registered(calls);
            match result {
                Ok(()) => {
                    state.counts.acknowledged += 1;
                    state.failures.remove(&key);
                    // `forget` may have reset the delivery during the call. The event may then be deliverable again.
                    if !state.outbox.acknowledge(&key, due) && state.outbox.deliverable(&key).is_some() {
                        state.ready.push_back(key.clone());
                    }
                    state.deliver_more_unrecorded();
                    None
                }
                Err(reason) if is_registered => {
                    state.counts.failed += 1;
                    let State { failures, random, .. } = &mut *state;
                    let backoff = failures.entry(key.clone()).or_insert_with(|| Backoff::new(calls.backoff));
                    Some((reason, backoff.fail(random)))
                }
                // The handler was removed during the call, and may have ended the call early. The next handler of this
                // name receives the event as if the call had not started: without a delay.
                Err(_) => {
                    state.ready.push_back(key.clone());
                    None
                }
            }
        };
        // An acknowledgement changes the rows. The failure of a registered handler does not: the delivery stays pending.
        match retry {
            None => (self.wake)(),
            Some((reason, delay)) => {
                let (informer, name) = (&self.informer, &self.name);
                tracing::warn!(%informer, handler = %name, %key, id = due.id(), why = %reason, "a durable handler failed; the event is delivered again in {delay:?}");
                self.schedule_retry(calls, key, delay);
            }
        }
        self.start();
    }

    /// Queues the object after `delay`, unless the handler of `calls` is removed until then.
    fn schedule_retry(self: &Arc<Self>, calls: &Arc<Calls<K>>, key: ObjectKey, delay: Duration) {
        // Weak, so that a delayed retry does not keep a dropped handler alive.
        let (durable, calls, environment) = (Arc::downgrade(self), Arc::downgrade(calls), self.environment.clone());
        self.environment.spawn(Box::pin(async move {
            environment.sleep_until(environment.now() + delay).await;
            let Some((durable, calls)) = durable.upgrade().zip(calls.upgrade()) else { return };
            {
                let mut state = durable.lock();
                // The next handler has received the event already. A later delay belongs to that handler.
                if !state.is_registered(&calls) {
                    return;
                }
                state.ready.push_back(key);
            }
            durable.start();
        }));
    }

    /// Starts no further calls. Running calls continue, and pending deliveries stay stored.
    pub(super) fn close(&self) {
        let calls = {
            let mut state = self.lock();
            state.is_closed = true;
            state.calls.take()
        };
        // Outside the lock: the user's function is dropped here, and its captured values may panic.
        drop_contained(calls);
        (self.wake)();
    }

    /// Detaches the calls, so that another handler can register under this name. Pending deliveries stay stored.
    pub(crate) fn detach(&self) {
        let calls = self.lock().calls.take();
        drop_contained(calls);
    }

    /// Ends the handler permanently and returns the objects that may have rows.
    pub(super) fn end(&self) -> BTreeSet<ObjectKey> {
        self.close();
        let outbox = std::mem::take(&mut self.lock().outbox);
        outbox.into_names()
    }

    /// Returns true if no call is running and, for a registered handler, nothing is pending and all rows are written.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.busy.is_empty() && (state.calls.is_none() || state.outbox.is_settled())
    }

    /// Returns the lowest version that is not acknowledged, if any. The flag is true if this version is known and the
    /// handler has had its initial view.
    pub(crate) fn first_pending(&self) -> (Option<ResourceVersion>, bool) {
        let state = self.lock();
        let has_initial_objects = state.has_initial_objects && state.deliverable != Deliverable::Nothing;
        let is_known = has_initial_objects && !state.outbox.has_unknown_first_change();
        (state.outbox.first_pending().cloned(), is_known)
    }

    pub(crate) fn stats(&self) -> DurableStats {
        let state = self.lock();
        DurableStats {
            pending: state.outbox.len(),
            running: state.busy.len(),
            is_registered: state.calls.is_some(),
            ..state.counts
        }
    }

    /// Locks the state. No user code runs under this lock.
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }
}

impl<K> State<K> {
    /// Marks the call for `key` as ended.
    fn release(&mut self, key: &ObjectKey) {
        if self.busy.remove(key) {
            let share = self.calls.as_ref().and_then(|calls| calls.namespace_share);
            let resumed = self.shares.finish_call(key, share);
            self.ready.extend(resumed);
        }
    }

    /// Returns whether `calls` are those of the registered handler, and not of a removed one.
    fn is_registered(&self, calls: &Arc<Calls<K>>) -> bool {
        self.calls.as_ref().is_some_and(|current| Arc::ptr_eq(current, calls))
    }

    /// Allows delivery of events that cannot be written. Returns true if there were any.
    fn deliver_more_unrecorded(&mut self) -> bool {
        if self.deliverable != Deliverable::All {
            return false;
        }
        let keys = self.outbox.deliver_unrecorded();
        self.counts.unrecorded += keys.len() as u64;
        let delivers_more = !keys.is_empty();
        self.ready.extend(keys);
        delivers_more
    }
}

/// Shares of the namespaces in the concurrent calls, if a share is configured.
#[derive(Default)]
struct NamespaceShares {
    /// Number of calls that run, by namespace.
    running: BTreeMap<String, usize>,
    /// Objects whose namespace has reached its share, by namespace.
    deferred: BTreeMap<String, VecDeque<ObjectKey>>,
}

impl NamespaceShares {
    /// Returns the maximum number of concurrent calls of one namespace.
    fn limit(&self, namespace: &str, share: usize) -> usize {
        let other_namespaces = self.running.keys().filter(|other| *other != namespace).count();
        // One share stays free for a namespace without a running call.
        (share / (other_namespaces + 2)).max(1)
    }

    /// Records the start of a call, or holds the object back and returns `false`.
    fn may_start(&mut self, key: &ObjectKey, share: Option<usize>) -> bool {
        let Some(share) = share else { return true };
        let namespace = key.namespace().unwrap_or_default();
        let running = self.running.get(namespace).copied().unwrap_or_default();
        if running >= self.limit(namespace, share) {
            self.deferred.entry(namespace.to_owned()).or_default().push_back(key.clone());
            return false;
        }
        *self.running.entry(namespace.to_owned()).or_default() += 1;
        true
    }

    /// Records the end of a call. Returns the objects that are no longer deferred.
    fn finish_call(&mut self, key: &ObjectKey, share: Option<usize>) -> Vec<ObjectKey> {
        let namespace = key.namespace().unwrap_or_default();
        if let Some(running) = self.running.get_mut(namespace) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(namespace);
            }
        }
        let Some(share) = share else { return Vec::new() };
        let mut resumed = Vec::new();
        let namespaces: Vec<String> = self.deferred.keys().cloned().collect();
        for namespace in namespaces {
            let running = self.running.get(&namespace).copied().unwrap_or_default();
            let free_calls = self.limit(&namespace, share).saturating_sub(running);
            let Some(deferred) = self.deferred.get_mut(&namespace) else { continue };
            resumed.extend(deferred.drain(..free_calls.min(deferred.len())));
            if deferred.is_empty() {
                self.deferred.remove(&namespace);
            }
        }
        resumed
    }
}

/// One call.
struct DurableCall<K: Send + Sync + 'static> {
    durable: Arc<Durable<K>>,
    calls: Arc<Calls<K>>,
    /// Object and delivery of the call, until it has ended.
    delivery: Option<(ObjectKey, DueEvent<Object<K>>)>,
}

impl<K: Send + Sync + 'static> DurableCall<K> {
    async fn run(mut self, event: DurableEvent<K>) {
        let (environment, deadline) = (self.durable.environment.clone(), self.calls.deadline);
        let handle = self.calls.handle.clone();
        let call = AssertUnwindSafe(async move { handle(event).await }).catch_unwind();
        let result = tokio::select! {
            biased;
            result = call => result.unwrap_or_else(|panic| {
                drop_contained(panic);
                Err("it panicked".to_owned())
            }),
            // The future is dropped at the timeout, so its work ends at the next await point.
            () = environment.sleep_until(environment.now() + deadline) => {
                Err(format!("no response within {deadline:?}"))
            }
        };
        if let Some((key, due)) = self.delivery.take() {
            self.durable.finish_call(&self.calls, key, &due, result);
        }
    }
}

impl<K: Send + Sync + 'static> Drop for DurableCall<K> {
    fn drop(&mut self) {
        // Dropped before its end: the runtime of the calls was shut down, and would drop further calls as well.
        let Some((key, _)) = self.delivery.take() else { return };
        let (is_registered, is_closed) = {
            let mut state = self.durable.lock();
            state.release(&key);
            let is_registered = state.is_registered(&self.calls);
            if !is_registered {
                state.ready.push_back(key);
            }
            (is_registered, state.is_closed)
        };
        if !is_registered {
            // Only the runtime of a removed handler has ended. The next handler of this name receives the event.
            self.durable.start();
        } else if !is_closed {
            tracing::error!(
                informer = %self.durable.informer, handler = %self.durable.name,
                "the async runtime of a durable handler has ended; no further event is delivered, and pending events are kept"
            );
            self.durable.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_share_calls_and_get_freed_ones() {
        let mut shares = NamespaceShares::default();
        let key = |namespace: &str, number: usize| ObjectKey::namespaced(namespace, format!("{number}"));
        let started = |shares: &mut NamespaceShares, namespace: &str| {
            (0..20).filter(|number| shares.may_start(&key(namespace, *number), Some(12))).count()
        };
        assert_eq!(started(&mut shares, "a"), 6, "half is left for others");
        assert_eq!(started(&mut shares, "b"), 4);
        assert_eq!(started(&mut shares, "c"), 3);
        // `a` exceeds its share now. Its next call starts after enough of its calls have ended.
        for number in 0..3 {
            assert_eq!(shares.finish_call(&key("a", number), Some(12)), []);
        }
        assert_eq!(shares.finish_call(&key("a", 3), Some(12)), [key("a", 6)]);
        for number in 0..4 {
            shares.finish_call(&key("b", number), Some(12));
        }
        assert!(!shares.running.contains_key("b"));
        assert!(shares.may_start(&key("b", 90), None), "without shares all calls start");
    }
}
