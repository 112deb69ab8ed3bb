//! Resource of a path.

use std::sync::Arc;

use super::route::ResourcePath;
use crate::backend::Backend;
use crate::resources::{GroupResource, ServedResource};

/// Served resource of a path.
pub(super) struct Target {
    pub(super) resource: Arc<ServedResource>,
    pub(super) namespace: Option<String>,
    /// Version in the path.
    pub(super) version: String,
}

impl Target {
    /// Returns the target of a path; `None` if the resource is not served.
    pub(super) fn find(backend: &dyn Backend, path: &ResourcePath) -> Option<Self> {
        let name = GroupResource::new(&path.group, &path.plural);
        let resource = backend.resource(&name)?;
        // A cluster-scoped resource has no path within a namespace.
        let is_in_scope = resource.namespaced || path.namespace.is_none();
        // A path without a namespace can list a namespaced resource, but not name an object.
        let is_complete = !resource.namespaced || path.namespace.is_some() || path.name.is_none();
        (resource.serves(&path.version) && is_in_scope && is_complete).then(|| Self {
            resource,
            namespace: path.namespace.clone(),
            version: path.version.clone(),
        })
    }
}
