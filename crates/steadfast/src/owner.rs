//! Shared ownership of an informer by its handles.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use kube::core::{Selector, SelectorExt};
use steadfast_core::ObjectKey;
use tokio::sync::mpsc;

use crate::driver::Command;
use crate::scope::Scope;
use crate::shared::Shared;
use crate::writes::{Labels, Outcome, Server, Target, Write};

/// The part of an informer that keeps its watch running: the watch ends when the last reference is dropped.
pub(crate) struct Owner<K> {
    pub(crate) shared: Arc<Shared<K>>,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) origin: Origin,
    /// Tells the factory that a handle or a handler is gone; unset for an informer without a factory.
    pub(crate) release: OnceLock<Release>,
}

/// Has the factory drop an informer that has neither handles nor handlers.
pub(crate) type Release = Arc<dyn Fn() + Send + Sync>;

/// The common share of all handles of one informer: the last one to be dropped tells the factory.
pub(crate) struct Share {
    release: Release,
}

impl Share {
    pub(crate) fn new(release: Release) -> Self {
        Self { release }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        (self.release)();
    }
}

/// A reference to an informer: that of a handle has a share, that of the factory has none.
pub(crate) struct Held<K> {
    owner: Arc<Owner<K>>,
    share: Option<Arc<Share>>,
}

impl<K> Held<K> {
    pub(crate) fn new(owner: Arc<Owner<K>>) -> Self {
        Self { owner, share: None }
    }

    /// Returns a share for the next handle, after the last one was dropped; none for an informer without a factory.
    pub(crate) fn new_share(&self) -> Option<Arc<Share>> {
        self.owner.release.get().map(|release| Arc::new(Share::new(release.clone())))
    }

    pub(crate) fn with_share(&self, share: Arc<Share>) -> Self {
        Self { owner: self.owner.clone(), share: Some(share) }
    }
}

impl<K> Clone for Held<K> {
    fn clone(&self) -> Self {
        Self { owner: self.owner.clone(), share: self.share.clone() }
    }
}

impl<K> Deref for Held<K> {
    type Target = Owner<K>;

    fn deref(&self) -> &Owner<K> {
        &self.owner
    }
}

impl<K> Drop for Held<K> {
    fn drop(&mut self) {
        // First, so that the factory's reference is the last one where it is dropped because of this.
        drop(self.share.take());
    }
}

/// Where the objects of an informer come from.
pub(crate) struct Origin {
    pub(crate) server: Server,
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) scope: Scope,
    /// Which labels they have, where that can be told of an object.
    pub(crate) selector: Option<Selector>,
}

impl Origin {
    /// Whether `write` may have changed something here. The version of the group does not matter: all are of the same objects.
    pub(crate) fn concerns(&self, write: &Write) -> bool {
        let target = write.target();
        let (own, written) = (self.scope.in_namespace(), target.namespace.as_deref());
        let elsewhere = own.is_some() && written.is_some() && own != written;
        write.is_on(&self.server) && self.is_resource(&target.group, &target.plural) && !elsewhere
    }

    /// Whether both hold objects of one resource of one server, in whichever scopes.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.server == other.server && self.is_resource(&other.group, &other.plural)
    }

    fn is_resource(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// A write to this resource that has come to `outcome`.
    pub(crate) fn write(&self, namespace: Option<&str>, name: Option<&str>, outcome: Outcome) -> Write {
        let target = Target {
            group: self.group.clone(),
            plural: self.plural.clone(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
        };
        Write::new(Some(self.server.clone()), target, outcome)
    }

    /// Whatever was written here so far, by anybody.
    pub(crate) fn anything(&self) -> Write {
        self.write(self.scope.in_namespace(), None, Outcome::Unknown(None))
    }

    /// Whether an object of this name with these labels may be held here, as far as that can be told.
    pub(crate) fn may_hold(&self, key: &ObjectKey, labels: Option<&Labels>) -> bool {
        let selected = self.selector.as_ref().zip(labels).is_none_or(|(selector, labels)| selector.matches(labels));
        self.scope.may_hold_name(key.name()) && selected
    }
}
