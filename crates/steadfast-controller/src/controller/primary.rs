//! Scope of a controller's own objects, and the keys that such objects can have.

use std::any::TypeId;
use std::sync::{Arc, OnceLock};

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use steadfast::{Cacheable, ObjectKey, Scope};

use super::cache_handle::CacheHandle as _;
use super::source_cache::{SourceCache, name_of};
use super::source_error::SourceError;

/// Placement of a resource: namespaced or cluster-scoped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceScope {
    Namespaced,
    Cluster,
    /// The type does not state its scope, for example `DynamicObject`.
    Unknown,
}

impl ResourceScope {
    /// Returns the placement of the resource type `R`.
    pub(super) fn of<R: Resource + 'static>() -> Self {
        let scope = TypeId::of::<R::Scope>();
        if scope == TypeId::of::<ClusterResourceScope>() {
            Self::Cluster
        } else if scope == TypeId::of::<NamespaceResourceScope>() {
            Self::Namespaced
        } else {
            Self::Unknown
        }
    }
}

/// Scopes of a controller's own objects. Cheap to clone.
#[derive(Clone)]
pub(super) struct Primary {
    name: Arc<str>,
    scopes: Arc<[Scope]>,
    placement: ResourceScope,
    /// Result of `placement_of_first_object`, once an object was cached.
    observed_placement: Arc<OnceLock<ResourceScope>>,
    placement_of_first_object: Arc<dyn Fn() -> Option<ResourceScope> + Send + Sync>,
}

impl Primary {
    /// Returns the scopes of the objects in `caches`.
    pub(super) fn of<K: Cacheable>(caches: &[SourceCache<K>]) -> Self {
        let scopes: Arc<[Scope]> = caches.iter().map(|cache| cache.scope().clone()).collect();
        let placement = match ResourceScope::of::<K::Resource>() {
            // Only a namespaced resource can be requested in one namespace.
            ResourceScope::Unknown if scopes.iter().any(|scope| scope.in_namespace().is_some()) => {
                ResourceScope::Namespaced
            }
            placement => placement,
        };
        let name = name_of(caches).into();
        let caches = caches.to_vec();
        let placement_of_first_object = move || {
            let first = caches.iter().find_map(|cache| Some(cache.snapshot().iter().next()?.key().clone()))?;
            Some(if first.namespace().is_some() { ResourceScope::Namespaced } else { ResourceScope::Cluster })
        };
        Self {
            name,
            scopes,
            placement,
            observed_placement: Arc::default(),
            placement_of_first_object: Arc::new(placement_of_first_object),
        }
    }

    /// Returns the resource and its scopes for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the placement by the type, the requested scope, or an object in the cache.
    fn placement(&self) -> ResourceScope {
        if self.placement != ResourceScope::Unknown {
            return self.placement;
        }
        if let Some(placement) = self.observed_placement.get() {
            return *placement;
        }
        // Remembered after the first object: the scope of a resource never changes.
        (self.placement_of_first_object)()
            .map_or(ResourceScope::Unknown, |placement| *self.observed_placement.get_or_init(|| placement))
    }

    /// Returns the keys of the owner `name` of a child in `namespace`.
    ///
    /// An owner is in the namespace of its child, or cluster-scoped. Returns both keys until the placement is known.
    pub(super) fn owner(&self, namespace: Option<&str>, name: &str) -> impl Iterator<Item = ObjectKey> + use<> {
        let placement = self.placement();
        // A namespaced owner is in the namespace of its dependent. A cluster-scoped dependent has cluster-scoped owners
        // only.
        let namespaced = namespace.filter(|_| placement != ResourceScope::Cluster);
        let namespaced = namespaced.map(|namespace| ObjectKey::namespaced(namespace, name));
        let cluster = (placement != ResourceScope::Namespaced).then(|| ObjectKey::cluster(name));
        namespaced.into_iter().chain(cluster)
    }

    /// Returns false if no object of the controller can have this key.
    pub(super) fn may_contain_key(&self, key: &ObjectKey) -> bool {
        let is_placed = match self.placement() {
            ResourceScope::Namespaced => key.namespace().is_some(),
            ResourceScope::Cluster => key.namespace().is_none(),
            ResourceScope::Unknown => true,
        };
        let is_in = |scope: &Scope| scope.in_namespace().is_none_or(|own| key.namespace() == Some(own));
        is_placed && self.scopes.iter().any(is_in)
    }

    /// Checks that the objects of each cache in `owned` can have owners among the controller's objects.
    ///
    /// # Errors
    ///
    /// Returns an error if the owned objects are in other namespaces than the owners, or if the owned objects are
    /// cluster-scoped and the owners namespaced.
    pub(super) fn can_own<C: Cacheable>(&self, owned: &[SourceCache<C>]) -> Result<(), SourceError> {
        // Kubernetes permits no namespaced owner of a cluster-scoped object; such an object would be garbage-collected.
        let has_no_namespace =
            self.placement == ResourceScope::Namespaced && ResourceScope::of::<C::Resource>() == ResourceScope::Cluster;
        let has_owners = |cache: &&SourceCache<C>| {
            let owned_namespace = cache.scope().in_namespace();
            let is_in_same_namespace =
                |own: &Scope| own.in_namespace().zip(owned_namespace).is_none_or(|(own, theirs)| own == theirs);
            !has_no_namespace && self.scopes.iter().any(is_in_same_namespace)
        };
        match owned.iter().find(|cache| !has_owners(cache)) {
            None => Ok(()),
            Some(cache) => {
                let (owned, owners) = (cache.name().to_owned(), self.name.to_string());
                Err(SourceError::NoOwners { owned, owners })
            }
        }
    }
}
