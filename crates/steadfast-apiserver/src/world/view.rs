//! Live objects, by key, by UID and by owner.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::kind::Kind;
use crate::metadata;
use crate::resources::GroupResource;

/// Key of an object among all resources. The order keeps the objects of one resource and namespace together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) resource: GroupResource,
    /// Namespace; empty for cluster-scoped objects.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { resource: kind.resource(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        Kind::of(&self.resource)
    }
}

/// All live objects that the controllers have observed.
#[derive(Debug, Default)]
pub(super) struct View {
    objects: BTreeMap<Key, Arc<Value>>,
    by_uid: HashMap<String, Key>,
    /// Keys of the dependents, by the UIDs of their owners.
    dependents: HashMap<String, BTreeSet<Key>>,
}

impl View {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Replaces the state of an object; `None` removes the object. Returns the previous state.
    pub(super) fn set(&mut self, key: &Key, object: Option<Arc<Value>>) -> Option<Arc<Value>> {
        let previous = self.objects.remove(key);
        if let Some(previous) = &previous {
            self.by_uid.remove(metadata::text(previous, "uid"));
            for owner in owners(previous) {
                let uid = owner_uid(owner);
                if let Some(keys) = self.dependents.get_mut(uid) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.dependents.remove(uid);
                    }
                }
            }
        }
        if let Some(object) = object {
            self.by_uid.insert(metadata::text(&object, "uid").to_owned(), key.clone());
            for owner in owners(&object) {
                self.dependents.entry(owner_uid(owner).to_owned()).or_default().insert(key.clone());
            }
            self.objects.insert(key.clone(), object);
        }
        previous
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    /// Returns the object with a UID.
    pub(super) fn by_uid(&self, uid: &str) -> Option<(&Key, &Arc<Value>)> {
        self.objects.get_key_value(self.by_uid.get(uid)?)
    }

    /// Returns the objects that name `uid` as an owner, ordered by key.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        let keys = self.dependents.get(uid).into_iter().flatten();
        keys.filter_map(|key| self.objects.get_key_value(key))
    }

    /// Returns the dependents of a kind whose controller is the object with `uid`.
    pub(super) fn controlled(&self, uid: &str, kind: Kind) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.dependents(uid)
            .filter(move |(key, object)| key.kind() == Some(kind) && controller_uid(object) == Some(uid))
    }

    /// Returns the objects of a kind in a namespace, ordered by name.
    pub(super) fn in_namespace(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        let start = Key::new(kind, namespace, "");
        let end = start.clone();
        self.objects
            .range(start..)
            .take_while(move |(key, _)| key.resource == end.resource && key.namespace == end.namespace)
    }

    /// Returns all objects of a kind, ordered by namespace and name.
    pub(super) fn all(&self, kind: Kind) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        let start = Key::new(kind, "", "");
        let resource = start.resource.clone();
        self.objects.range(start..).take_while(move |(key, _)| key.resource == resource)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.objects.keys()
    }
}

/// Returns the owner references of an object.
pub(super) fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

/// Returns the UID of an owner reference.
pub(super) fn owner_uid(owner: &Value) -> &str {
    owner.get("uid").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the UID of the owner that controls an object.
pub(super) fn controller_uid(object: &Value) -> Option<&str> {
    owners(object).find(|owner| owner["controller"] == true).map(owner_uid)
}

/// Returns a number of an object; `None` if it is absent or negative.
pub(super) fn number(object: &Value, pointer: &str) -> Option<u64> {
    object.pointer(pointer).and_then(Value::as_u64)
}

/// Returns a text of an object; empty if absent.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
