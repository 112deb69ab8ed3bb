//! Which collection an informer asks for.

use kube::Resource;
use kube::core::{ApiResource, DynamicObject};

use crate::scope::Scope;

/// A resource's collection: its path and its name for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Collection {
    path: String,
    name: String,
}

impl Collection {
    /// The collection of `K`'s objects within `scope`.
    pub fn of<K: Resource>(kind: &K::DynamicType, scope: &Scope) -> Self {
        let group = K::group(kind);
        let plural = K::plural(kind);
        let name = if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") };
        Self { path: K::url_path(kind, scope.in_namespace()), name }
    }

    /// The collection of the resource that `resource` describes within `scope`.
    pub fn described(resource: &ApiResource, scope: &Scope) -> Self {
        Self::of::<DynamicObject>(resource, scope)
    }

    /// Its path on the server.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its name for people: `pods`, `deployments.apps`.
    pub fn name(&self) -> &str {
        &self.name
    }
}
