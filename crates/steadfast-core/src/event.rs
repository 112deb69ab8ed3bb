//! Events for handlers, and the single function that derives them.
//!
//! All sources of changes (live watch, resume, relist, new epoch) call [`difference`]. A recreated object is therefore
//! always reported as a deletion and an addition.

use std::fmt;

use crate::fault_injection::{FaultInjection, inject};
use crate::key::ObjectKey;
use crate::object::{Entry, Object};
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// Change of one object, as a handler receives it.
///
/// The `Debug` output contains the event, the object's key and its version, but no content of the object: `Updated {
/// object: Pod default/web-0 v7, from: v5 }`.
pub enum Event<K> {
    /// A stay starts: the object was created, or entered the scope by a change.
    Added {
        /// Current state of the object.
        object: Object<K>,
        /// Set if the object existed when the handler's view started.
        initial: bool,
    },
    /// The object changed. Intermediate states may have been skipped; the last state never is.
    Updated {
        /// State of the object in this handler's previous event.
        old: Object<K>,
        /// Current state of the object.
        new: Object<K>,
    },
    /// The stay ended.
    Deleted {
        /// Last known state within the scope.
        last: Object<K>,
        /// Version of the deletion, if the server reported one.
        version: Option<ResourceVersion>,
        /// Source of the deletion.
        certainty: Certainty,
        /// Cause of the stay's end, as far as the protocol distinguishes causes.
        reason: DeleteReason,
    },
    /// The object did not change; the resync period of the handler elapsed.
    Resynced {
        /// Current state of the object.
        object: Object<K>,
    },
}

impl<K> Event<K> {
    /// Returns the object of this event: the new state, or the last state of a deleted object.
    pub fn object(&self) -> &Object<K> {
        match self {
            Self::Added { object, .. } | Self::Resynced { object } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }

    /// Returns the event with handles for a single reader. Objects that this reader decodes are dropped with the event,
    /// except those of a resync: the next resync may need them again.
    #[doc(hidden)]
    #[must_use]
    pub fn private(self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added { object: Object::private(object), initial },
            Self::Updated { old, new } => Self::Updated { old: Object::private(old), new: Object::private(new) },
            Self::Deleted { last, version, certainty, reason } => {
                Self::Deleted { last: Object::private(last), version, certainty, reason }
            }
            event @ Self::Resynced { .. } => event,
        }
    }

    /// Returns whether this is a [`Deleted`](Self::Deleted) event.
    pub fn is_deletion(&self) -> bool {
        matches!(self, Self::Deleted { .. })
    }

    /// Returns the name of the event: `Added`, `Updated`, `Deleted` or `Resynced`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Added { .. } => "Added",
            Self::Updated { .. } => "Updated",
            Self::Deleted { .. } => "Deleted",
            Self::Resynced { .. } => "Resynced",
        }
    }
}

// Not derived: a derive would require `K: Clone`, although only pointers are cloned.
impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added { object, initial } => Self::Added { object: object.clone(), initial: *initial },
            Self::Updated { old, new } => Self::Updated { old: old.clone(), new: new.clone() },
            Self::Deleted { last, version, certainty, reason } => {
                Self::Deleted { last: last.clone(), version: version.clone(), certainty: *certainty, reason: *reason }
            }
            Self::Resynced { object } => Self::Resynced { object: object.clone() },
        }
    }
}

// Prints only the identity of the object, since its content may be a Secret.
impl<K> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut event = f.debug_struct(self.name());
        event.field("object", self.object());
        match self {
            Self::Added { initial, .. } => event.field("initial", initial),
            Self::Updated { old, .. } => event.field("from", old.version()),
            Self::Deleted { version, certainty, reason, .. } => {
                event.field("deleted_at", version).field("certainty", certainty).field("reason", reason)
            }
            Self::Resynced { .. } => &mut event,
        };
        event.finish()
    }
}

/// Source of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// The server reported the deletion.
    Observed,
    /// A complete, successful list no longer contained the object.
    Inferred,
}

impl fmt::Display for Certainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Observed => "observed",
            Self::Inferred => "inferred",
        })
    }
}

/// Cause of a stay's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeleteReason {
    /// The object was deleted. The scope has no selector, so no other cause is possible.
    Deleted,
    /// Another object has the name now.
    Replaced,
    /// The object was deleted, or changed so that the selector no longer matches. The protocol does not distinguish the
    /// two.
    DeletedOrLeft,
    /// The object exists, but changed so that it no longer passes the handler's own filter.
    Left,
}

impl fmt::Display for DeleteReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleted => "deleted",
            Self::Replaced => "replaced",
            Self::DeletedOrLeft => "deleted or left the selector",
            Self::Left => "left the handler's filter",
        })
    }
}

/// Change of one object, ready for the handlers' queues.
pub struct Change<K> {
    /// Event of the change, with the object.
    pub event: Event<K>,
    /// Version at which a watch delivered the change; `None` for a change from a list or from a server without
    /// versions.
    pub version: Option<ResourceVersion>,
    /// `Observed` if a watch delivered the change; `Inferred` if it follows from a comparison with a list.
    pub certainty: Certainty,
}

impl<K> Change<K> {
    /// Creates a change that no watch delivered: the comparison with a list or the current state implies it.
    pub fn of_list(event: Event<K>) -> Self {
        Self { event, version: None, certainty: Certainty::Inferred }
    }

    /// Returns the key of the object.
    pub fn key(&self) -> &ObjectKey {
        self.event.object().key()
    }

    /// Returns the UID of the object.
    pub fn uid(&self) -> &Uid {
        &self.event.object().identity().uid
    }
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        Self { event: self.event.clone(), version: self.version.clone(), certainty: self.certainty }
    }
}

/// Source of a new state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateSource {
    /// A record of a watch.
    Watched {
        /// Version of a `DELETED` record.
        deletion: Option<ResourceVersion>,
    },
    /// A complete list.
    Listed {
        /// Set for the first list, whose objects are the initial ones.
        initial: bool,
    },
    /// First complete list of another history. A state with an equal version may differ from the cached one.
    NewEpoch,
}

/// Rules for all changes of one informer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Set if the scope has a selector that an existing object can stop matching. A selector on `metadata.name` does
    /// not count, since names do not change.
    pub selective: bool,
    /// Faults that a test injects.
    pub faults: FaultInjection,
}

/// Derives the events of a key that changed from `old` to `new`: no event, one event, or a deletion and an addition.
///
/// Reports each event through the callback, the deletion first.
pub fn difference<K>(
    old: Option<&Entry<K>>,
    new: Option<&Entry<K>>,
    source: &StateSource,
    rules: Rules,
    mut on_change: impl FnMut(Change<K>),
) {
    let initial = matches!(source, StateSource::Listed { initial: true });
    // Handlers never received an entry without a decodable state, and therefore receive neither its changes nor its
    // end.
    let delivered = old.and_then(|entry| Some((entry, entry.last()?.clone())));
    // Another UID denotes another object with an equal name: an end and a new stay.
    let same = matches!((old, new), (Some(old), Some(new))
        if old.uid().is_same(new.uid()) || inject!(rules.faults, MergedIdentities));

    let silent = matches!(source, StateSource::Listed { .. }) && inject!(rules.faults, LostDeletes);
    if let (Some((_, last)), false, false) = (&delivered, same, silent) {
        let (version, certainty) = match source {
            StateSource::Watched { deletion: Some(version) } => (Some(version.clone()), Certainty::Observed),
            StateSource::Watched { deletion: None } | StateSource::Listed { .. } | StateSource::NewEpoch => {
                (None, Certainty::Inferred)
            }
        };
        let reason = match (new, rules.selective) {
            (Some(_), _) => DeleteReason::Replaced,
            (None, true) => DeleteReason::DeletedOrLeft,
            (None, false) => DeleteReason::Deleted,
        };
        let event = Event::Deleted { last: last.clone(), version: version.clone(), certainty, reason };
        on_change(Change { event, version, certainty });
    }
    let Some(object) = new.and_then(Entry::object).cloned() else { return };
    let version = object.version().clone();
    let event = match delivered {
        Some((old, seen)) if same => {
            // In a new epoch, an equal version may denote another state.
            if *old.version() == version && !old.is_tainted() && *source != StateSource::NewEpoch {
                return;
            }
            Event::Updated { old: seen, new: object }
        }
        _ => Event::Added { object, initial },
    };
    // After undecodable states, the version of this change is unknown: an undecodable state may already have had the
    // same content.
    let gap = old.is_some_and(Entry::is_tainted);
    let (version, certainty) = match source {
        StateSource::Watched { .. } if !gap => {
            (Some(version).filter(ResourceVersion::is_from_server), Certainty::Observed)
        }
        StateSource::Watched { .. } | StateSource::Listed { .. } | StateSource::NewEpoch => (None, Certainty::Inferred),
    };
    on_change(Change { event, version, certainty });
}
