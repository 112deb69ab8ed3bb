//! What handlers are given, and the one place where it is decided.
//!
//! Live, resumed, relisted or in a new epoch: every path ends in [`difference`], so that a recreated object is a
//! delete and an add in all of them.

use std::fmt;
use std::sync::Arc;

use kube::Resource;

use crate::breach::{Breach, Breaches};
use crate::key::ObjectKey;
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
        object: Arc<K>,
        /// Whether it was there already when the handler's view began.
        initial: bool,
    },
    /// The object changed; states between may have been skipped, the last never is.
    Updated {
        /// What this handler last saw of it.
        old: Arc<K>,
        /// The object as it is.
        new: Arc<K>,
    },
    /// The stay ended.
    Deleted {
        /// The last state known that was in scope.
        last: Arc<K>,
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
        object: Arc<K>,
    },
}

impl<K> Event<K> {
    /// The object of this event: the new state, or the last one of a deletion.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Added { object, .. } | Self::Resynced { object } => object,
            Self::Updated { new, .. } => new,
            Self::Deleted { last, .. } => last,
        }
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
impl<K: Resource> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut event = f.debug_struct(self.name());
        event.field("object", &Named(self.object().as_ref()));
        match self {
            Self::Added { initial, .. } => event.field("initial", initial),
            Self::Updated { old, .. } => event.field("from", &Version(old.as_ref())),
            Self::Deleted { version, certainty, reason, .. } => {
                event.field("deleted_at", version).field("certainty", certainty).field("reason", reason)
            }
            Self::Resynced { .. } => &mut event,
        };
        event.finish()
    }
}

/// An object by its type, its name and its version.
struct Named<'a, K>(&'a K);

/// An object's version alone.
struct Version<'a, K>(&'a K);

impl<K: Resource> fmt::Debug for Named<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = self.0.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        let key = match meta.namespace.as_deref() {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        };
        write!(f, "{} {key} {:?}", short_type_name::<K>(), Version(self.0))
    }
}

impl<K: Resource> fmt::Debug for Version<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", ResourceVersion::from(self.0.meta().resource_version.as_deref().unwrap_or("none")))
    }
}

/// A type's name without the paths in it: `Pod`, `PartialObjectMeta<Pod>`.
fn short_type_name<K>() -> String {
    let full = std::any::type_name::<K>();
    let ends = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
    full.split_inclusive(ends).map(|path| path.rsplit("::").next().unwrap_or(path)).collect()
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

/// What the store holds of one object.
pub struct Entry<K> {
    /// The object's identity.
    pub uid: Uid,
    /// The version of its newest state, decodable or not.
    pub version: ResourceVersion,
    /// The last state that could be decoded; none while there has been no such state.
    pub object: Option<Arc<K>>,
    /// Whether the newest state could not be decoded, so that `object` is older than `version`.
    pub tainted: bool,
}

/// A change of one key, ready for the handlers' queues.
pub struct Change<K> {
    /// Where it happened.
    pub key: ObjectKey,
    /// Which object it happened to.
    pub uid: Uid,
    /// What happened.
    pub event: Event<K>,
    /// The version at which a watch showed it; none where a list did, or where the server gives none.
    pub version: Option<ResourceVersion>,
    /// Whether a watch showed it (`Observed`), or it is what a list is when compared with what was there before.
    pub certainty: Certainty,
}

impl<K> Change<K> {
    /// A change that no watch has shown: it follows from what is there.
    pub fn of_list(key: ObjectKey, uid: Uid, event: Event<K>) -> Self {
        Self { key, uid, event, version: None, certainty: Certainty::Inferred }
    }
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            uid: self.uid.clone(),
            event: self.event.clone(),
            version: self.version.clone(),
            certainty: self.certainty,
        }
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

/// Tells what the change of `key` from `old` to `new` means: nothing, one change, or a delete and an add.
pub fn difference<K>(
    key: &ObjectKey,
    old: Option<&Entry<K>>,
    new: Option<&Entry<K>>,
    path: &Path,
    rules: Rules,
    mut tell: impl FnMut(Change<K>),
) {
    let initial = matches!(path, Path::Listed { initial: true });
    // An entry that never decoded was never told, so neither its changes nor its end are.
    let told = old.and_then(|entry| Some((entry, entry.object.clone()?)));
    let same = matches!((old, new), (Some(old), Some(new))
        if old.uid.is_same(&new.uid) || rules.breaches.commit(Breach::MergedIdentities));

    let silent = matches!(path, Path::Listed { .. }) && rules.breaches.commit(Breach::LostDeletes);
    if let (Some((entry, last)), false, false) = (&told, same, silent) {
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
        tell(Change { key: key.clone(), uid: entry.uid.clone(), event, version, certainty });
    }
    let Some(new) = new.filter(|entry| !entry.tainted) else { return };
    let Some(object) = new.object.clone() else { return };
    let event = match told {
        Some((old, seen)) if same => {
            if old.version == new.version && !old.tainted && *path != Path::NewEpoch {
                return;
            }
            Event::Updated { old: seen, new: object }
        }
        _ => Event::Added { object, initial },
    };
    // What could not be decoded since then may have been another state: when it came to be this one is not known.
    let gap = matches!(old, Some(old) if old.tainted);
    let (version, certainty) = match path {
        Path::Watched { .. } if !gap => {
            (Some(new.version.clone()).filter(ResourceVersion::is_given), Certainty::Observed)
        }
        Path::Watched { .. } | Path::Listed { .. } | Path::NewEpoch => (None, Certainty::Inferred),
    };
    tell(Change { key: key.clone(), uid: new.uid.clone(), event, version, certainty });
}
