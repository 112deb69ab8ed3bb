//! Conversion of an informer's events and freshness into the types of the checker.

use kube::Resource;
use steadfast::{Cacheable, Certainty, DeleteReason, Event, Freshness, Identity, Object, Scope, Snapshot};
use steadfast_contract as contract;

pub(crate) fn scope(scope: &Scope) -> contract::Scope {
    contract::Scope {
        namespace: scope.in_namespace().map(str::to_owned),
        labels: scope.label_selector().map(str::to_owned),
        fields: scope.field_selector().map(str::to_owned),
    }
}

/// Returns identity and version of an object from its own metadata, even if the object does not decode as its type.
fn identity<K: Cacheable>(object: &Object<K>) -> contract::ObjectVersionRef {
    // An undecodable object still has an identity, by which the checker recognises the object.
    object.read_whole(object_ref).unwrap_or_else(|_| {
        let Identity { key, uid, version } = object.identity();
        contract::ObjectVersionRef::new(key.namespace(), key.name(), uid, version.as_str())
    })
}

/// Returns identity and version of an object.
pub(crate) fn object_ref<K: Resource>(object: &K) -> contract::ObjectVersionRef {
    let meta = object.meta();
    contract::ObjectVersionRef::new(
        meta.namespace.as_deref(),
        meta.name.as_deref().unwrap_or_default(),
        meta.uid.as_deref().unwrap_or_default(),
        meta.resource_version.as_deref().unwrap_or_default(),
    )
}

pub(crate) fn handler_event<K: Cacheable>(event: &Event<K>) -> contract::HandlerEvent {
    match event {
        Event::Added { object, initial } => {
            contract::HandlerEvent::Added { object: identity(object), initial: *initial }
        }
        Event::Updated { old, new } => contract::HandlerEvent::Updated { old: identity(old), new: identity(new) },
        Event::Deleted { last, version, certainty, reason } => contract::HandlerEvent::Deleted {
            last: identity(last),
            version: version.as_ref().map(ToString::to_string),
            certainty: match certainty {
                Certainty::Observed => contract::Certainty::Observed,
                Certainty::Inferred => contract::Certainty::Inferred,
            },
            reason: match reason {
                DeleteReason::Deleted => contract::Reason::Deleted,
                DeleteReason::Replaced => contract::Reason::Replaced,
                // The checker treats a handler's filter as a selector, so both reasons map to the same reason.
                DeleteReason::DeletedOrLeft | DeleteReason::Left => contract::Reason::DeletedOrLeft,
            },
        },
        Event::Resynced { object } => contract::HandlerEvent::Resynced { object: identity(object) },
    }
}

/// Returns the cached object of a key in `snapshot`, if it `passes`.
pub(crate) fn cached_object<K: Cacheable>(
    snapshot: &Snapshot<K>,
    key: &contract::Key,
    passes: impl Fn(&K) -> bool,
) -> contract::StoreContent {
    match snapshot.entry(key.namespace.as_deref(), &key.name) {
        // The order of the arms matters: a tainted entry has a last decoded state, but not a known current state.
        None => contract::StoreContent::Absent,
        Some(entry) if entry.is_tainted() => {
            contract::StoreContent::Undecodable { version: entry.version().to_string() }
        }
        Some(entry) if entry.last().is_some_and(|object| !passes(object)) => contract::StoreContent::Absent,
        Some(entry) => {
            let (uid, version) = (entry.uid().as_str().to_owned(), entry.version().as_str().to_owned());
            contract::StoreContent::Present { uid, version }
        }
    }
}

/// Returns all cached objects in `snapshot` that `passes` accepts, and the keys of the objects that do not decode.
pub(crate) fn contents<K: Cacheable>(
    snapshot: &Snapshot<K>,
    passes: impl Fn(&K) -> bool,
) -> (Vec<contract::ObjectVersionRef>, Vec<contract::Key>) {
    let objects = snapshot.decodable().filter(|object| passes(object)).map(steadfast::Object::identity).map(
        |Identity { key, uid, version }| {
            contract::ObjectVersionRef::new(key.namespace(), key.name(), uid, version.as_str())
        },
    );
    // Tainted objects are listed by key: their state is unknown, which is neither present nor absent for the checker.
    (objects.collect(), snapshot.tainted().iter().map(key).collect())
}

fn key(key: &steadfast::ObjectKey) -> contract::Key {
    contract::Key::new(key.namespace(), key.name())
}

/// Converts a freshness state. Returns the converted state, and the keys that the state names.
pub(crate) fn freshness(state: &Freshness) -> (contract::Freshness, Vec<contract::Key>) {
    let converted = match state {
        Freshness::Fresh { version, age, tainted, .. } => {
            let version = version.as_ref().map(ToString::to_string).unwrap_or_default();
            return (contract::Freshness::Fresh { version, age: *age }, tainted.iter().map(key).collect());
        }
        Freshness::Starting(_) => contract::Freshness::Starting,
        Freshness::Resuming(_) => contract::Freshness::Resuming,
        Freshness::Suspect(_) => contract::Freshness::Suspect,
        Freshness::Stale(_) => contract::Freshness::Stale,
        Freshness::Failed(_) => contract::Freshness::Failed,
        // `Stopped`, or a state that this version does not know. An unknown state must not permit more than a known
        // one.
        _ => contract::Freshness::Stopped,
    };
    (converted, Vec::new())
}
