//! Handlers wait where a cache was restored, until it is known what it is worth: readers have it at once, and are told by the
//! freshness that it is in doubt; a call of a handler cannot be taken back.

use std::sync::atomic::Ordering;

use steadfast_core::event::Change;
use steadfast_core::freshness::Evidence;
use steadfast_core::store::Store;

use super::{Shared, deliver, first_view, lock};
use crate::runner::Runner;

impl<K: Send + Sync + 'static> Shared<K> {
    /// Has handlers wait for [`release`](Self::release), or for the first complete list. Before there are any.
    pub(crate) fn withhold(&self) {
        self.withheld.store(true, Ordering::Release);
    }

    /// Whether handlers wait.
    pub(crate) fn is_withheld(&self) -> bool {
        self.withheld.load(Ordering::Acquire)
    }

    /// Shows readers what was restored, and nobody else.
    pub(crate) fn show_restored(&self, store: &mut Store<K>, evidence: &Evidence) {
        store.publish();
        self.stand(evidence);
        self.synced.store(true, Ordering::Release);
    }

    /// Shows all handlers what there is, and has them follow from here on. Only for the driver, which publishes nothing meanwhile.
    pub(crate) fn release(&self) {
        let all: Vec<Change<K>> = first_view(&self.snapshot()).collect();
        let screened = self.screened(&all, true);
        let mut handlers = lock(&self.handlers);
        self.withheld.store(false, Ordering::Release);
        let told = deliver(&mut handlers, &all, screened, true);
        self.durables.open(|| all.iter().cloned());
        drop(handlers);
        told.iter().for_each(Runner::start);
        self.durables.start();
    }
}
