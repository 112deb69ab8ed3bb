//! Active faults of a replica.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::rules::ObjectCorruption;

/// Active faults of a replica.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent fault")]
pub(crate) struct ReplicaFaults {
    pub(crate) is_stopped: bool,
    pub(crate) refuses_connections: bool,
    /// New connections are accepted and closed immediately.
    pub(crate) accept_and_close: bool,
    /// Traffic is held back in both directions without an error.
    pub(crate) is_black_hole: bool,
    pub(crate) is_frozen: bool,
    /// Watches receive no bookmarks.
    pub(crate) no_bookmarks: bool,
    /// Only a change of the watched resource or a consistent read raises the versions of bookmarks.
    pub(crate) rare_progress: bool,
    /// Streamed lists have no bookmark at their end.
    pub(crate) no_initial_events_end: bool,
    /// The bookmark at the end of a streamed list lacks its annotation.
    pub(crate) unannotated_initial_events_end: bool,
    /// Streamed lists are rejected.
    pub(crate) refuse_streamed_lists: bool,
    /// Streamed lists are treated as plain watches.
    pub(crate) ignore_streamed_lists: bool,
    /// Each namespace has its own counter of versions, so versions of different namespaces have no order.
    pub(crate) has_namespace_counters: bool,
    /// Delay of every request before it is processed.
    pub(crate) delay: Duration,
    /// Number of events that a resumed watch receives again, although they precede its start version.
    pub(crate) repeat_events: usize,
    /// Objects, by namespace and name, whose content is corrupted.
    pub(crate) corrupted_objects: Arc<BTreeMap<(String, String), ObjectCorruption>>,
    /// Number of continue tokens that expire on their next use.
    pub(crate) tokens_to_expire: u32,
    /// Maximum size of a body chunk in bytes; 0 for no limit.
    pub(crate) max_chunk_bytes: usize,
}

impl ReplicaFaults {
    /// Returns whether connections are accepted.
    pub(crate) fn is_reachable(&self) -> bool {
        !self.is_stopped && !self.refuses_connections
    }
}

/// A replica's faults, protected by a lock.
#[derive(Debug, Default)]
pub(crate) struct SharedReplicaFaults(Mutex<ReplicaFaults>);

impl SharedReplicaFaults {
    pub(crate) fn read<T>(&self, read: impl FnOnce(&ReplicaFaults) -> T) -> T {
        read(&self.0.lock())
    }

    /// Returns whether connections are accepted.
    pub(crate) fn is_reachable(&self) -> bool {
        self.read(ReplicaFaults::is_reachable)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut ReplicaFaults)) {
        change(&mut self.0.lock());
    }

    /// Counts one use of a continue token. Returns whether the fault lets this token expire.
    pub(crate) fn take_token_expiry(&self) -> bool {
        let mut faults = self.0.lock();
        let has_expired = faults.tokens_to_expire > 0;
        faults.tokens_to_expire = faults.tokens_to_expire.saturating_sub(1);
        has_expired
    }
}
