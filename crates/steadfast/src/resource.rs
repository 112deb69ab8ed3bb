//! Which collection an informer asks for.

use kube::Resource;

use crate::scope::Scope;

/// A resource's collection: its path and its name for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Collection {
    path: String,
    name: String,
}

impl Collection {
    /// The collection of `K`'s objects within `scope`.
    pub(crate) fn of<K: Resource>(kind: &K::DynamicType, scope: &Scope) -> Self {
        let group = K::group(kind);
        let plural = K::plural(kind);
        let name = if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") };
        Self { path: K::url_path(kind, scope.in_namespace()), name }
    }

    /// Its path on the server.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Its name for people: `pods`, `deployments.apps`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
