//! The scope of a controller's own objects: which keys they can have.

use std::any::TypeId;
use std::sync::{Arc, OnceLock};

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use steadfast::{Informer, Kept, ObjectKey, Scope};

use super::source::SourceError;

/// Whether the objects of a resource are in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    Namespaced,
    Cluster,
    /// The type does not state it: a `DynamicObject` is of either kind.
    Unknown,
}

impl Placement {
    /// Placement of the resource type `R`.
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

/// The scope of a controller's own objects. Cheap to clone.
#[derive(Clone)]
pub(super) struct Primary {
    name: Arc<str>,
    scope: Scope,
    placement: Placement,
    /// The placement of the objects themselves, once one was seen.
    seen: Arc<OnceLock<Placement>>,
    look: Arc<dyn Fn() -> Option<Placement> + Send + Sync>,
}

impl Primary {
    /// Scope of the objects in the cache of `informer`.
    pub(super) fn of<K: Kept>(informer: &Informer<K>) -> Self {
        let placement = match Placement::of::<K::Resource>() {
            // Only a resource with namespaces can be requested in one.
            Placement::Unknown if informer.scope().in_namespace().is_some() => Placement::Namespaced,
            placement => placement,
        };
        let cache = informer.clone();
        let look = move || {
            let snapshot = cache.snapshot();
            let first = snapshot.iter().next()?;
            Some(if first.key().namespace().is_some() { Placement::Namespaced } else { Placement::Cluster })
        };
        let (name, scope) = (informer.name().into(), informer.scope().clone());
        Self { name, scope, placement, seen: Arc::default(), look: Arc::new(look) }
    }

    /// The resource and its scope, for people.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Placement by the type, the requested scope, or the objects in the cache.
    fn placement(&self) -> Placement {
        if self.placement != Placement::Unknown {
            return self.placement;
        }
        if let Some(seen) = self.seen.get() {
            return *seen;
        }
        (self.look)().map_or(Placement::Unknown, |placement| *self.seen.get_or_init(|| placement))
    }

    /// The keys of the owner `name` of a child in `namespace`.
    ///
    /// An owner is in the namespace of its child, or in none. These are two keys until it is known which.
    pub(super) fn owner(&self, namespace: Option<&str>, name: &str) -> impl Iterator<Item = ObjectKey> + use<> {
        let placement = self.placement();
        let namespaced = namespace.filter(|_| placement != Placement::Cluster);
        let namespaced = namespaced.map(|namespace| ObjectKey::namespaced(namespace, name));
        let cluster = (placement != Placement::Namespaced).then(|| ObjectKey::cluster(name));
        namespaced.into_iter().chain(cluster)
    }

    /// Returns false if no object here can have this key.
    pub(super) fn can_have(&self, key: &ObjectKey) -> bool {
        let is_placed = match self.placement() {
            Placement::Namespaced => key.namespace().is_some(),
            Placement::Cluster => key.namespace().is_none(),
            Placement::Unknown => true,
        };
        is_placed && self.scope.in_namespace().is_none_or(|own| key.namespace() == Some(own))
    }

    /// Checks that the objects of `owned` can have owners here.
    ///
    /// # Errors
    ///
    /// If they are in other namespaces, or in none while the owners are in namespaces.
    pub(super) fn can_own<C: Kept>(&self, owned: &Informer<C>) -> Result<(), SourceError> {
        let (own, theirs) = (self.scope.in_namespace(), owned.scope().in_namespace());
        let is_elsewhere = own.zip(theirs).is_some_and(|(own, theirs)| own != theirs);
        let is_nowhere =
            self.placement == Placement::Namespaced && Placement::of::<C::Resource>() == Placement::Cluster;
        if is_elsewhere || is_nowhere {
            let (owned, owners) = (owned.name().to_owned(), self.name.to_string());
            return Err(SourceError::NoOwners { owned, owners });
        }
        Ok(())
    }
}
