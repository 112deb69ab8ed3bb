//! Filter of a handler: the user's predicate, and the set of objects that matched it.

use std::borrow::Borrow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use steadfast_core::ObjectKey;
use steadfast_core::event::Change;
use steadfast_core::filter::Filter;

/// The user's predicate.
pub(crate) type Predicate<K> = Arc<dyn Fn(&K) -> bool + Send + Sync>;

/// Filter of a handler. Only the driver passes changes through it.
pub(crate) struct HandlerFilter<K> {
    /// `None` after the handler has ended, so that values captured by the predicate are dropped.
    predicate: Mutex<Option<Predicate<K>>>,
    filter: Mutex<Filter>,
    /// True after the handler received the initial objects. From then on it receives changes.
    has_joined: AtomicBool,
}

impl<K> HandlerFilter<K> {
    pub(crate) fn new(predicate: Predicate<K>) -> Self {
        Self { predicate: Mutex::new(Some(predicate)), filter: Mutex::default(), has_joined: AtomicBool::new(false) }
    }

    /// Returns the matching `changes`, adjusted to the handler's view. The caller must hold no lock that other tasks
    /// need.
    pub(crate) fn pass<C: Borrow<Change<K>>>(&self, changes: impl IntoIterator<Item = C>) -> Vec<Change<K>> {
        // Cloned, so that the predicate runs without this lock, because the predicate may remove its own handler.
        let Some(predicate) = self.predicate.lock().clone() else { return Vec::new() };
        // Only the driver takes this lock; the predicate cannot reach it.
        let mut filter = self.filter.lock();
        let passing = changes.into_iter().filter_map(|change| {
            let change = change.borrow();
            filter.pass(change, |object| {
                let accepted = std::panic::catch_unwind(AssertUnwindSafe(|| predicate(object)));
                accepted.unwrap_or_else(|_| {
                    tracing::error!(key = %change.key(), "a handler's filter panicked; the handler does not receive the object");
                    false
                })
            })
        });
        // A listed object that no longer matches becomes a deletion, which must precede the additions of the list.
        let mut passing = passing.collect();
        Filter::deletions_first(&mut passing);
        passing
    }

    /// Returns true if the object matched in its last checked state.
    pub(crate) fn has(&self, key: &ObjectKey) -> bool {
        self.filter.lock().has(key)
    }

    pub(crate) fn join(&self) {
        self.has_joined.store(true, Ordering::Release);
    }

    pub(crate) fn has_joined(&self) -> bool {
        self.has_joined.load(Ordering::Acquire)
    }

    /// Ends the filter and returns the predicate, to be dropped without a lock held.
    pub(crate) fn end(&self) -> Option<Predicate<K>> {
        self.predicate.lock().take()
    }
}
