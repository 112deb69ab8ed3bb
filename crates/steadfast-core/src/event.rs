//! What handlers are given, and the one place where it is decided.
//!
//! Live, resumed, relisted or in a new epoch: every path ends in [`difference`], so that a recreated object is a
//! delete and an add in all of them.

use std::fmt;

use crate::breach::{Breach, Breaches};
use crate::key::ObjectKey;
use crate::object::{Entry, Object};
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// A change of one object, as a handler sees it.
///
/// `{event:?}` says what happened to which object, in which version, and nothing of its content:
/// `Updated { object: Pod default/web-0 v7, from: v5 }`.
pub enum Event<K> {
    /// A stay begins: the object was created, or changed so that the scope has it.
    Added {
        /// The object as it is.
        object: Object<K>,
        /// Whether it was there already when the handler's view began.
        initial: bool,
    },
    /// The object changed; states between may have been skipped, the last never is.
    Updated {
        /// What this handler last saw of it.
        old: Object<K>,
        /// The object as it is.
        new: Object<K>,
    },
    /// The stay ended.
    Deleted {
        /// The last state known that was in scope.
        last: Object<K>,
        /// The deletion's own version, where the server said it.
        version: Option<ResourceVersion>,
        /// How it is known.
        certainty: Certainty,
        /// What ended it, as far as the wire can tell.
        reason: DeleteReason,
    },
    /// Nothing changed; the resync period wants the object to be looked at again.
    Resynced {
        /// The object as it is.
        object: Object<K>,
    },
}

impl<K> Event<K> {
    /// The object of this event: the new state, or the last one of a deletion.
    pub fn object(&self) -> &Object<K> {
        match self {
            Self::Added { object, .. } | Self::Resynced { object } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
    }

    /// Returns whether this is a [`Deleted`](Self::Deleted) event.
    pub fn is_deletion(&self) -> bool {
        matches!(self, Self::Deleted { .. })
    }

    /// The event's name: `Added`, `Updated`, `Deleted` or `Resynced`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Added { .. } => "Added",
            Self::Updated { .. } => "Updated",
            Self::Deleted { .. } => "Deleted",
            Self::Resynced { .. } => "Resynced",
        }
    }
}

// By hand: a derive would ask `K: Clone`, and only pointers are cloned.
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

// Who an object is, and nothing else of it: it may be a Secret.
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

/// How a deletion is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// The server said so.
    Observed,
    /// A complete, successful list no longer had the object.
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

/// What ended a stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeleteReason {
    /// The object is gone: the scope has no selector, so nothing else can have ended the stay.
    Deleted,
    /// Another object holds the name now.
    Replaced,
    /// Deleted, or changed so that the selector no longer matches: the wire does not tell them apart.
    DeletedOrLeft,
    /// The object is there, and changed so that it no longer passes the handler's own filter.
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

/// A change of one object, ready for the handlers' queues.
pub struct Change<K> {
    /// What happened, and to which object.
    pub event: Event<K>,
    /// The version at which a watch showed it; none where a list did, or where the server gives none.
    pub version: Option<ResourceVersion>,
    /// Whether a watch showed it (`Observed`), or it is what a list is when compared with what was there before.
    pub certainty: Certainty,
}

impl<K> Change<K> {
    /// A change that no watch has shown: it follows from what is there.
    pub fn of_list(event: Event<K>) -> Self {
        Self { event, version: None, certainty: Certainty::Inferred }
    }

    /// Where it happened.
    pub fn key(&self) -> &ObjectKey {
        self.event.object().key()
    }

    /// Which object it happened to.
    pub fn uid(&self) -> &Uid {
        &self.event.object().identity().uid
    }
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        Self { event: self.event.clone(), version: self.version.clone(), certainty: self.certainty }
    }
}

/// How a new state of a key became known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// By a record of a watch; a deletion's version where the record is one.
    Watched {
        /// The version that a `DELETED` record carried.
        deletion: Option<ResourceVersion>,
    },
    /// By a complete list.
    Listed {
        /// Whether it is the first one, whose objects are the initial ones.
        initial: bool,
    },
    /// By the first complete list of another history: what has the version held may be another state.
    NewEpoch,
}

/// What holds for all changes of one informer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether the scope has a selector that a living object can leave (`metadata.name` is none: names do not change).
    pub selective: bool,
    /// The breaches that a test commits.
    pub breaches: Breaches,
}

/// Tells what the change of a key from `old` to `new` means: nothing, one change, or a delete and an add.
pub fn difference<K>(
    old: Option<&Entry<K>>,
    new: Option<&Entry<K>>,
    path: &Path,
    rules: Rules,
    mut tell: impl FnMut(Change<K>),
) {
    let initial = matches!(path, Path::Listed { initial: true });
    // An entry that never decoded was never told, so neither its changes nor its end are.
    let told = old.and_then(|entry| Some((entry, entry.last()?.clone())));
    let same = matches!((old, new), (Some(old), Some(new))
        if old.uid().is_same(new.uid()) || rules.breaches.commit(Breach::MergedIdentities));

    let silent = matches!(path, Path::Listed { .. }) && rules.breaches.commit(Breach::LostDeletes);
    if let (Some((_, last)), false, false) = (&told, same, silent) {
        let (version, certainty) = match path {
            Path::Watched { deletion: Some(version) } => (Some(version.clone()), Certainty::Observed),
            Path::Watched { deletion: None } | Path::Listed { .. } | Path::NewEpoch => (None, Certainty::Inferred),
        };
        let reason = match (new, rules.selective) {
            (Some(_), _) => DeleteReason::Replaced,
            (None, true) => DeleteReason::DeletedOrLeft,
            (None, false) => DeleteReason::Deleted,
        };
        let event = Event::Deleted { last: last.clone(), version: version.clone(), certainty, reason };
        tell(Change { event, version, certainty });
    }
    let Some(object) = new.and_then(Entry::object).cloned() else { return };
    let version = object.version().clone();
    let event = match told {
        Some((old, seen)) if same => {
            if *old.version() == version && !old.is_tainted() && *path != Path::NewEpoch {
                return;
            }
            Event::Updated { old: seen, new: object }
        }
        _ => Event::Added { object, initial },
    };
    // What could not be decoded since then may have been another state: when it came to be this one is not known.
    let gap = old.is_some_and(Entry::is_tainted);
    let (version, certainty) = match path {
        Path::Watched { .. } if !gap => (Some(version).filter(ResourceVersion::is_given), Certainty::Observed),
        Path::Watched { .. } | Path::Listed { .. } | Path::NewEpoch => (None, Certainty::Inferred),
    };
    tell(Change { event, version, certainty });
}
