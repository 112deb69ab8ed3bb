//! The resource that a path names.

use std::sync::Arc;

use super::route::ResourcePath;
use crate::cluster::Cluster;
use crate::resources::{GroupResource, ServedResource};

/// The resource a path names, where it is served.
pub(super) struct Target {
    pub(super) resource: Arc<ServedResource>,
    pub(super) namespace: Option<String>,
    /// The version that the path names.
    pub(super) version: String,
}

impl Target {
    /// What a path names; `None` where nothing is served there.
    pub(super) fn of(cluster: &Cluster, path: &ResourcePath) -> Option<Self> {
        let name = GroupResource::new(&path.group, &path.plural);
        let resource = cluster.store.read(|state| state.registry.get(&name).cloned())?;
        let in_scope = resource.namespaced || path.namespace.is_none();
        let whole = !resource.namespaced || path.namespace.is_some() || path.name.is_none();
        (resource.serves(&path.version) && in_scope && whole).then(|| Self {
            resource,
            namespace: path.namespace.clone(),
            version: path.version.clone(),
        })
    }
}
