//! Pending deliveries of durable handlers. They are recorded with each publication, so that cache and deliveries are
//! stored consistently.

use steadfast_core::ResourceVersion;
use steadfast_core::event::Change;
use steadfast_core::store::Snapshot;

use super::{Shared, initial_objects};

impl<K: Send + Sync + 'static> Shared<K> {
    /// Records `changes` as pending deliveries of durable handlers. `reached` is the version of the cache before a list.
    /// `before` is the restored snapshot, given only for the first publication after a restart. That publication also
    /// starts the deliveries.
    ///
    /// The caller must hold the lock of the publication.
    pub(super) fn record_pending_deliveries(
        &self,
        changes: &[Change<K>],
        reached: Option<&ResourceVersion>,
        before: Option<&Snapshot<K>>,
    ) {
        let Some(before) = before else { return self.durable_handlers.record(changes, reached) };
        let now = self.snapshot();
        // A UID belongs to one cluster only. If no restored object exists any more, the server may belong to another
        // cluster. The deletion of all restored objects would then be wrong.
        let still_exists = |entry: &steadfast_core::Entry<K>| {
            let found = now.entry(entry.key().namespace(), entry.key().name());
            found.is_some_and(|found| found.uid() == entry.uid())
        };
        if !before.is_empty() && !before.iter().any(still_exists) {
            self.durable_handlers.forget();
        }
        self.durable_handlers.record(changes, reached);
        self.durable_handlers.open(|| initial_objects(&now));
    }
}
