//! What informers, listers and indexes hold in common.

use std::sync::Arc;

use kube::core::{Selector, SelectorExt};
use steadfast_core::ObjectKey;
use tokio::sync::mpsc;

use crate::driver::Command;
use crate::scope::Scope;
use crate::shared::Shared;
use crate::writes::{Labels, Outcome, Server, Target, Write};

/// What keeps the watch running: as long as one is held, it goes on.
pub(crate) struct Owner<K> {
    pub(crate) shared: Arc<Shared<K>>,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) origin: Origin,
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
