//! A handler's filter as the informer runs it: the user's predicate, and which objects have passed it.

use std::borrow::Borrow;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_core::ObjectKey;
use steadfast_core::event::Change;
use steadfast_core::filter::Filter;

/// The user's predicate.
pub(crate) type Accepts<K> = Arc<dyn Fn(&K) -> bool + Send + Sync>;

/// The filter of a handler that wants to see a part of the scope only. The driver alone passes changes through it.
pub(crate) struct Screen<K> {
    /// Nothing once the handler has ended, so that what the predicate holds is let go.
    accepts: Mutex<Option<Accepts<K>>>,
    filter: Mutex<Filter>,
    /// Whether the handler was shown what there was, and is delivered changes from then on.
    joined: AtomicBool,
}

impl<K> Screen<K> {
    pub(crate) fn new(accepts: Accepts<K>) -> Self {
        Self { accepts: Mutex::new(Some(accepts)), filter: Mutex::default(), joined: AtomicBool::new(false) }
    }

    /// Those of `changes` that pass, as they are to the handler. Called with no lock held that anyone waits for.
    pub(crate) fn pass<C: Borrow<Change<K>>>(&self, changes: impl IntoIterator<Item = C>) -> Vec<Change<K>> {
        let Some(accepts) = lock(&self.accepts).clone() else { return Vec::new() };
        // The driver's own; the predicate cannot come here.
        let mut filter = lock(&self.filter);
        let passing = changes.into_iter().filter_map(|change| {
            let change = change.borrow();
            filter.pass(change, |object| {
                let accepted = std::panic::catch_unwind(AssertUnwindSafe(|| accepts(object)));
                accepted.unwrap_or_else(|_| {
                    tracing::error!(key = %change.key(), "a handler's filter panicked; the object counts as not passing it");
                    false
                })
            })
        });
        let mut passing = passing.collect();
        Filter::deletions_first(&mut passing);
        passing
    }

    /// Whether the object passed when it was last looked at.
    pub(crate) fn has(&self, key: &ObjectKey) -> bool {
        lock(&self.filter).has(key)
    }

    pub(crate) fn join(&self) {
        self.joined.store(true, Ordering::Release);
    }

    pub(crate) fn has_joined(&self) -> bool {
        self.joined.load(Ordering::Acquire)
    }

    /// Lets nothing pass any more, and returns the predicate, to be dropped where no lock is held.
    pub(crate) fn end(&self) -> Option<Accepts<K>> {
        lock(&self.accepts).take()
    }
}

/// No user code runs under the first lock, and none that panics under the other.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
