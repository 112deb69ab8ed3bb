//! Which collection an informer asks for.

use std::any::TypeId;
use std::sync::Arc;

use k8s_openapi::ClusterResourceScope;
use kube::Resource;
use steadfast_core::decode::{Kept, Wanted};

use crate::scope::Scope;

/// What is said at run time of the resource that `K` is a form of: nothing, where its type says all.
pub type DynamicType<K> = <<K as Kept>::Resource as Resource>::DynamicType;

/// A resource's collection: its path and its name for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Collection {
    path: String,
    everywhere: String,
    name: String,
    list_kind: Option<String>,
    api_version: Arc<str>,
    kind: Arc<str>,
    group: String,
    version: String,
    plural: String,
    /// Whether its type says that its objects are in no namespace; a dynamic one does not say.
    cluster_scoped: bool,
}

impl Collection {
    /// The collection of the objects within `scope` that `K` is a form of.
    pub(crate) fn of<K: Kept>(kind: &DynamicType<K>, scope: &Scope) -> Self {
        Self::of_resource::<K::Resource>(kind, scope)
    }

    fn of_resource<K: Resource + 'static>(kind: &K::DynamicType, scope: &Scope) -> Self {
        let group = K::group(kind);
        let plural = K::plural(kind);
        let name = if group.is_empty() { plural.clone().into_owned() } else { format!("{plural}.{group}") };
        // Whoever defines a resource may call its lists anything, and definitions have groups with a dot; those without
        // are the server's own.
        let list_kind = (!group.contains('.')).then(|| format!("{}List", K::kind(kind)));
        Self {
            path: K::url_path(kind, scope.in_namespace()),
            everywhere: K::url_path(kind, None),
            name,
            list_kind,
            api_version: K::api_version(kind).into(),
            kind: K::kind(kind).into(),
            group: group.into_owned(),
            version: K::version(kind).into_owned(),
            plural: plural.into_owned(),
            cluster_scoped: TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>(),
        }
    }

    /// Its path on the server.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The path of its resource in all namespaces: what holds for one namespace on a server holds for all.
    pub(crate) fn everywhere(&self) -> &str {
        &self.everywhere
    }

    /// Whether its objects are known to be in no namespace.
    pub(crate) fn is_cluster_scoped(&self) -> bool {
        self.cluster_scoped
    }

    /// The `kind` of its lists, where that is beyond doubt.
    pub(crate) fn list_kind(&self) -> Option<&str> {
        self.list_kind.as_deref()
    }

    /// What its objects say they are; where `metadata` alone are requested, they may say that they are those.
    pub(crate) fn wanted(&self, metadata: bool) -> Wanted {
        Wanted { api_version: self.api_version.clone(), kind: self.kind.clone(), metadata }
    }

    /// How metrics name an informer of it in `scope`.
    #[cfg(feature = "metrics")]
    pub(crate) fn labels(&self, scope: &Scope) -> crate::metrics::observed::Labels {
        crate::metrics::observed::Labels::new(&self.group, &self.version, &self.plural, scope)
    }

    /// Its group, empty for the oldest one.
    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    /// The resource as paths have it.
    pub(crate) fn plural(&self) -> &str {
        &self.plural
    }

    /// Its name for people: `pods`, `deployments.apps`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
