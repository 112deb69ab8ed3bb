//! What a durable handler is given, and what it has done.

use std::fmt;

use steadfast_core::{Event, ResourceVersion};

/// An event that is told until it is acknowledged.
pub struct Told<K> {
    /// The same whenever this event is told, also in another life of the program, and that of no other one which this handler
    /// is told: `<UID>@<version>`, with `-gone` behind it for an end. After a restore of the server from a backup, versions
    /// and with them ids can come again.
    pub id: String,
    /// What happened.
    pub event: Event<K>,
    /// How often it was told in this life of the program and not acknowledged.
    pub failures: u32,
}

// By hand: a derive would ask for clonable objects.
impl<K> Clone for Told<K> {
    fn clone(&self) -> Self {
        Self { id: self.id.clone(), event: self.event.clone(), failures: self.failures }
    }
}

// Who the object is, and nothing else of it.
impl<K> fmt::Debug for Told<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, event, failures } = self;
        f.debug_struct("Told").field("id", id).field("event", event).field("failures", failures).finish()
    }
}

/// What a durable handler has done in this life of the program, and has before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurableCounts {
    /// Events that it has acknowledged.
    pub acknowledged: u64,
    /// Calls that ended with an error or a panic, or were given up at their deadline.
    pub failed: u64,
    /// Events that it was told though it could not be written down that they are owed.
    pub unwritten: u64,
    /// Objects of which something is owed to it.
    pub owed: usize,
    /// Calls that run.
    pub running: usize,
    /// Whether it is there; else an earlier life of the program had it, and what it is owed is kept for it.
    pub is_here: bool,
}

/// Which changes a durable handler has acknowledged, by their versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurablePosition {
    /// The version that the informer's cache has reached. The handler has every change up to it, acknowledged or pending.
    pub reached: ResourceVersion,
    /// The lowest version that is not acknowledged, or a lower one. `None` if every change up to `reached` is acknowledged.
    pub first_pending: Option<ResourceVersion>,
}
