//! Resource and collection of an informer.

use std::any::TypeId;
use std::sync::Arc;

use k8s_openapi::ClusterResourceScope;
use kube::Resource;
use steadfast_core::decode::{Cacheable, ExpectedKind};

use crate::scope::Scope;

/// Run-time description of the resource of `K`; `()` for types that are known at compile time.
pub type DynamicType<K> = <<K as Cacheable>::Resource as Resource>::DynamicType;

/// Returns true if the type states that its objects are cluster-scoped; false for dynamic types.
pub(crate) fn is_cluster_scoped<R: Resource + 'static>() -> bool {
    TypeId::of::<R::Scope>() == TypeId::of::<ClusterResourceScope>()
}

/// Collection of a resource: its path and its display name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Collection {
    path: String,
    all_namespaces_path: String,
    name: String,
    list_kind: Option<String>,
    api_version: Arc<str>,
    kind: Arc<str>,
    group: String,
    version: String,
    plural: String,
    /// True if the type is known to be cluster-scoped; false for dynamic types.
    is_cluster_scoped: bool,
}

impl Collection {
    /// Returns the collection of `K` within `scope`.
    pub(crate) fn of<K: Cacheable>(kind: &DynamicType<K>, scope: &Scope) -> Self {
        Self::from_resource::<K::Resource>(kind, scope)
    }

    fn from_resource<K: Resource + 'static>(kind: &K::DynamicType, scope: &Scope) -> Self {
        let group = K::group(kind);
        let plural = K::plural(kind);
        let name = if group.is_empty() { plural.clone().into_owned() } else { format!("{plural}.{group}") };
        // A custom resource definition can choose any list kind. Its group contains a dot; groups without a dot are
        // built in.
        let list_kind = (!group.contains('.')).then(|| format!("{}List", K::kind(kind)));
        Self {
            path: K::url_path(kind, scope.in_namespace()),
            all_namespaces_path: K::url_path(kind, None),
            name,
            list_kind,
            api_version: K::api_version(kind).into(),
            kind: K::kind(kind).into(),
            group: group.into_owned(),
            version: K::version(kind).into_owned(),
            plural: plural.into_owned(),
            is_cluster_scoped: is_cluster_scoped::<K>(),
        }
    }

    /// Returns the path on the server.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the path of the resource in all namespaces, as a key for facts that hold for the whole resource.
    pub(crate) fn all_namespaces_path(&self) -> &str {
        &self.all_namespaces_path
    }

    /// Returns true if the objects are known to be cluster-scoped.
    pub(crate) fn is_cluster_scoped(&self) -> bool {
        self.is_cluster_scoped
    }

    /// Returns the `kind` of the resource's lists, if it is certain.
    pub(crate) fn list_kind(&self) -> Option<&str> {
        self.list_kind.as_deref()
    }

    /// Returns the expected kind of the objects. With `metadata`, `PartialObjectMetadata` is accepted too.
    pub(crate) fn expected_kind(&self, metadata: bool) -> ExpectedKind {
        ExpectedKind { api_version: self.api_version.clone(), kind: self.kind.clone(), metadata }
    }

    /// Returns the metric labels of an informer of this collection in `scope` with this `name`.
    pub(crate) fn labels(&self, scope: &Scope, name: Option<Arc<str>>) -> crate::metrics::observed::InformerLabels {
        crate::metrics::observed::InformerLabels::new(&self.group, &self.version, &self.plural, scope, name)
    }

    /// Returns the API group, empty for the core group.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// Returns the plural resource name, as in request paths.
    pub(crate) fn plural(&self) -> &str {
        &self.plural
    }

    /// Returns the display name: `pods`, `deployments.apps`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
