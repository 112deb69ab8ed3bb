//! Events and statistics of durable handlers.

use std::fmt;

use steadfast_core::{Event, ResourceVersion};

/// Event that is delivered until the handler acknowledges it.
#[non_exhaustive]
pub struct DurableEvent<K> {
    /// Identifier of the event: `<UID>@<version>`, with the suffix `-gone` for a deletion.
    ///
    /// Every delivery of this event has the same ID, also after a restart. No other event of this handler has this ID.
    /// After a restore of the server from a backup, versions and therefore IDs can repeat.
    pub id: String,
    /// The event.
    pub event: Event<K>,
    /// Number of failed deliveries of this event in this run of the process.
    pub failures: u32,
}

// Implemented manually: a derive would require `K: Clone`.
impl<K> Clone for DurableEvent<K> {
    fn clone(&self) -> Self {
        Self { id: self.id.clone(), event: self.event.clone(), failures: self.failures }
    }
}

// Prints the object's identity only, never its contents.
impl<K> fmt::Debug for DurableEvent<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, event, failures } = self;
        f.debug_struct("DurableEvent").field("id", id).field("event", event).field("failures", failures).finish()
    }
}

/// Statistics of a durable handler in this run of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurableStats {
    /// Acknowledged events.
    pub acknowledged: u64,
    /// Calls that returned an error, panicked or timed out, without calls that ended after the removal of their handler.
    pub failed: u64,
    /// Events delivered although their pending delivery could not be stored.
    pub unrecorded: u64,
    /// Objects with a pending delivery.
    pub pending: usize,
    /// Calls in progress.
    pub running: usize,
    /// True if the handler is registered. If false, the handler belongs to an earlier run and its deliveries stay
    /// pending.
    pub is_registered: bool,
}

/// Acknowledged changes of a durable handler, as versions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurablePosition {
    /// Version that the informer's cache has reached. Every change up to this version is acknowledged or pending.
    pub reached: ResourceVersion,
    /// Lowest version that is not acknowledged, or a lower version. `None` if every change up to `reached` is
    /// acknowledged.
    pub first_pending: Option<ResourceVersion>,
}
