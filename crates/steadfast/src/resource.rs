//! Which collection an informer asks for.

use kube::Resource;

use crate::scope::Scope;

/// A resource's collection: its path and its name for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Collection {
    path: String,
    everywhere: String,
    name: String,
}

impl Collection {
    /// The collection of `K`'s objects within `scope`.
    pub(crate) fn of<K: Resource>(kind: &K::DynamicType, scope: &Scope) -> Self {
        let group = K::group(kind);
        let plural = K::plural(kind);
        let name = if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") };
        Self { path: K::url_path(kind, scope.in_namespace()), everywhere: K::url_path(kind, None), name }
    }

    /// Its path on the server.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The path of its resource in all namespaces: what holds for one namespace on a server holds for all.
    pub(crate) fn everywhere(&self) -> &str {
        &self.everywhere
    }

    /// Its name for people: `pods`, `deployments.apps`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
