//! Shared ownership of an informer by its handles.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use kube::core::{Selector, SelectorExt};
use steadfast_core::ObjectKey;
use tokio::sync::mpsc;

use crate::driver::Command;
use crate::resource::Collection;
use crate::scope::Scope;
use crate::shared::Shared;
use crate::writes::{ObjectLabels, Outcome, ServerIdentity, Write, WriteTarget};

/// The part of an informer that keeps its watch running: the watch ends when the last reference is dropped.
pub(crate) struct WatchOwner<K> {
    pub(crate) shared: Arc<Shared<K>>,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) origin: Origin,
    /// Notifies the factory after a handle or a handler was dropped; unset for an informer without a factory.
    pub(crate) release: OnceLock<ReleaseFn>,
}

/// Callback that lets the factory drop an informer without handles and handlers.
pub(crate) type ReleaseFn = Arc<dyn Fn() + Send + Sync>;

/// Value that all handles of one informer share. The factory is notified when the last handle is dropped, and the value
/// with it.
pub(crate) struct HandleGuard {
    release: ReleaseFn,
}

impl HandleGuard {
    pub(crate) fn new(release: ReleaseFn) -> Self {
        Self { release }
    }
}

impl Drop for HandleGuard {
    fn drop(&mut self) {
        (self.release)();
    }
}

/// A reference to an informer. Handles have a guard; the factory's own reference has none.
pub(crate) struct InformerReference<K> {
    // Fields are dropped in this order. The dropped guard may cause the factory to drop its own reference. The
    // reference in `owner` is then the last one.
    handle_guard: Option<Arc<HandleGuard>>,
    owner: Arc<WatchOwner<K>>,
}

impl<K> InformerReference<K> {
    pub(crate) fn new(owner: Arc<WatchOwner<K>>) -> Self {
        Self { owner, handle_guard: None }
    }

    /// Creates a guard for a new handle, if all earlier handles were dropped. Returns `None` for an informer without a
    /// factory.
    pub(crate) fn new_handle_guard(&self) -> Option<Arc<HandleGuard>> {
        self.owner.release.get().map(|release| Arc::new(HandleGuard::new(release.clone())))
    }

    pub(crate) fn with_handle_guard(&self, handle_guard: Arc<HandleGuard>) -> Self {
        Self { owner: self.owner.clone(), handle_guard: Some(handle_guard) }
    }
}

impl<K> Clone for InformerReference<K> {
    fn clone(&self) -> Self {
        Self { owner: self.owner.clone(), handle_guard: self.handle_guard.clone() }
    }
}

impl<K> Deref for InformerReference<K> {
    type Target = WatchOwner<K>;

    fn deref(&self) -> &WatchOwner<K> {
        &self.owner
    }
}

/// Source of an informer's objects.
pub(crate) struct Origin {
    pub(crate) server: ServerIdentity,
    pub(crate) collection: Collection,
    pub(crate) scope: Scope,
    /// Label selector, if objects can be matched locally.
    pub(crate) selector: Option<Selector>,
}

impl Origin {
    /// Returns true if `write` may have changed an object of this scope. The API version is ignored: all versions of a
    /// group share their objects.
    pub(crate) fn concerns(&self, write: &Write) -> bool {
        let target = write.target();
        let (scope_namespace, written) = (self.scope.in_namespace(), target.namespace.as_deref());
        let is_other_namespace = scope_namespace.is_some() && written.is_some() && scope_namespace != written;
        write.is_on(&self.server) && self.is_resource(&target.group, &target.plural) && !is_other_namespace
    }

    /// Returns true if both caches have the same resource and server, in any scope.
    pub(crate) fn has_same_resource(&self, other: &Self) -> bool {
        self.server == other.server && self.is_resource(other.collection.group(), other.collection.plural())
    }

    fn is_resource(&self, group: &str, plural: &str) -> bool {
        self.collection.group() == group && self.collection.plural() == plural
    }

    /// Returns a write to this resource with `outcome`.
    pub(crate) fn write(&self, namespace: Option<&str>, name: Option<&str>, outcome: Outcome) -> Write {
        let target = WriteTarget {
            group: self.collection.group().to_owned(),
            plural: self.collection.plural().to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
        };
        Write::new(Some(self.server.clone()), target, outcome)
    }

    /// Returns a value that represents all writes to this scope so far, by any client.
    pub(crate) fn anything(&self) -> Write {
        self.write(self.scope.in_namespace(), None, Outcome::Unknown(None))
    }

    /// Returns true if an object with this name and these labels may match the scope. Selectors that cannot be
    /// evaluated locally count as matching.
    pub(crate) fn may_contain(&self, key: &ObjectKey, labels: Option<&ObjectLabels>) -> bool {
        let selected = self.selector.as_ref().zip(labels).is_none_or(|(selector, labels)| selector.matches(labels));
        self.scope.may_match_name(key.name()) && selected
    }
}
