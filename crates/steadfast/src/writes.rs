//! Writes of a client, so that a caller can wait until a cache contains them (C12).
//!
//! A write is identified by its response. If the response is lost, the server may have executed the write. The client
//! then requests the server's current version after [`VERSION_REQUEST_DELAY`], and assumes that the write is not newer.

pub(crate) mod recording;
pub(crate) mod request;
pub(crate) mod response;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::Resource;
use kube::core::ObjectMeta;
use parking_lot::{Mutex, MutexGuard};
use steadfast_core::{Instant, ObjectKey, ResourceVersion, Uid};
use tokio::sync::Notify;

/// Delay between a lost response and the version request. During this time the server can still execute the write,
/// until it notices that the client has disconnected. A proxy that does not forward the disconnect can delay the write
/// for as long as its own request timeout.
pub(crate) const VERSION_REQUEST_DELAY: Duration = Duration::from_secs(5);

/// Writes that were made, or may have been made.
///
/// A [`WriteRecording`](crate::WriteRecording) collects the writes of clients. The caller can also [add](Self::add)
/// writes of another client. [`Informer::wait_for_writes`](crate::Informer::wait_for_writes) and
/// [`InformerFactory::wait_for_writes`](crate::InformerFactory::wait_for_writes) wait until caches contain them.
#[derive(Clone, Default)]
pub struct Writes {
    list: Vec<Arc<Write>>,
}

/// A request that may have written, and its outcome.
pub(crate) struct Write {
    /// Server of the write; `None` if the caller did not specify it.
    server: Option<ServerIdentity>,
    target: WriteTarget,
    outcome: Mutex<Outcome>,
    /// Wakes the waiters for the outcome. Each write that a cache lacks has one of these; a channel would be ten times
    /// as large.
    ended: Notify,
    /// Server's version in the response to a request that was sent after the write.
    reached_version: OnceLock<ResourceVersion>,
}

/// Identity of a server: equal for a connection and its clones.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerIdentity(Arc<()>);

impl PartialEq for ServerIdentity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Target of a write request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteTarget {
    /// API group, empty for the core group.
    pub(crate) group: String,
    /// Plural resource name, as in request paths.
    pub(crate) plural: String,
    /// `None` for a cluster-scoped resource or all namespaces.
    pub(crate) namespace: Option<String>,
    /// `None` if the server generates the name, and for a whole collection.
    pub(crate) name: Option<String>,
}

/// Labels of an object.
pub(crate) type ObjectLabels = BTreeMap<String, String>;

/// Outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// In flight.
    Pending,
    /// No effect.
    NoEffect,
    /// The object exists, or existed, in this version, with these labels if known.
    Stored { key: ObjectKey, version: ResourceVersion, labels: Option<ObjectLabels> },
    /// The object was deleted, in this version if the server returned one.
    Deleted { key: ObjectKey, uid: Option<Uid>, version: Option<ResourceVersion> },
    /// The write may have been made. The response had no version, or was lost at this time.
    Unknown(Option<Instant>),
}

impl Writes {
    /// Returns true if there are no writes.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns true if all writes have a known version of an existing object. A cache can then be compared with the
    /// writes without a request to the server.
    ///
    /// Other writes need a request to the server, a pending response, or the observed removal of an object.
    pub fn are_versioned(&self) -> bool {
        self.list.iter().all(|write| match write.outcome() {
            Outcome::Stored { version, .. } => version.is_ordered(),
            Outcome::NoEffect => true,
            Outcome::Unknown(_) => write.reached_version().is_some(),
            Outcome::Deleted { .. } | Outcome::Pending => false,
        })
    }

    /// Returns the number of writes.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds a write of another client. `written` is the object in the server's response.
    ///
    /// An object without a version is ignored.
    pub fn add<K: Resource>(&mut self, written: &K)
    where
        K::DynamicType: Default,
    {
        let meta = written.meta();
        let Some((key, version)) = key_of(meta).zip(meta.resource_version.as_deref()) else { return };
        let labels = Some(meta.labels.clone().unwrap_or_default());
        self.add_outcome::<K>(&key, Outcome::Stored { key: key.clone(), version: version.into(), labels });
    }

    /// Adds a deletion by another client. `deleted` is the last known state of the object.
    pub fn add_deleted<K: Resource>(&mut self, deleted: &K)
    where
        K::DynamicType: Default,
    {
        let meta = deleted.meta();
        let Some(key) = key_of(meta) else { return };
        let uid = meta.uid.as_deref().filter(|uid| !uid.is_empty()).map(Uid::from);
        let version = meta.resource_version.as_deref().map(ResourceVersion::from);
        self.add_outcome::<K>(&key, Outcome::Deleted { key: key.clone(), uid, version });
    }

    fn add_outcome<K: Resource>(&mut self, key: &ObjectKey, outcome: Outcome)
    where
        K::DynamicType: Default,
    {
        let kind = K::DynamicType::default();
        let target = WriteTarget {
            group: K::group(&kind).into_owned(),
            plural: K::plural(&kind).into_owned(),
            namespace: key.namespace().map(str::to_owned),
            name: Some(key.name().to_owned()),
        };
        self.push(Arc::new(Write::new(None, target, outcome)));
    }

    /// Adds the writes of `others`.
    ///
    /// An added state of an object replaces an older one with the same labels. An added unconfirmed write replaces an
    /// earlier one to the same target, if the client has not yet requested the server's version for the added write.
    pub fn extend(&mut self, others: Self) {
        for write in others.list {
            match self.list.iter_mut().find(|current| write.covers(current)) {
                Some(current) => *current = write,
                None => self.list.push(write),
            }
        }
    }

    /// Removes the writes that are also in `others`, by identity.
    pub fn remove(&mut self, others: &Self) {
        self.list.retain(|write| !others.list.iter().any(|other| Arc::ptr_eq(write, other)));
    }

    pub(crate) fn push(&mut self, write: Arc<Write>) {
        self.list.push(write);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Write>> {
        self.list.iter()
    }
}

fn key_of(meta: &ObjectMeta) -> Option<ObjectKey> {
    Some(object_key(meta.namespace.as_deref(), meta.name.as_deref()?))
}

/// Returns the key of `name` in `namespace`, which is `None` for cluster-scoped objects.
pub(crate) fn object_key(namespace: Option<&str>, name: &str) -> ObjectKey {
    namespace.map_or_else(|| ObjectKey::cluster(name), |namespace| ObjectKey::namespaced(namespace, name))
}

impl Write {
    pub(crate) fn new(server: Option<ServerIdentity>, target: WriteTarget, outcome: Outcome) -> Self {
        Self { server, target, outcome: Mutex::new(outcome), ended: Notify::new(), reached_version: OnceLock::new() }
    }

    /// Returns true if the write may have been made on `server`.
    pub(crate) fn is_on(&self, server: &ServerIdentity) -> bool {
        self.server.as_ref().is_none_or(|own| own == server)
    }

    /// Returns true if a cache that contains this write also contains `other`, and both match the same caches.
    fn covers(&self, other: &Self) -> bool {
        // The cheap comparison comes first: it nearly always fails, and copies nothing.
        if (&self.server, &self.target) != (&other.server, &other.target) {
            return false;
        }
        // Takes one lock at a time: two writes compared in both orders must not deadlock.
        let other_outcome = other.outcome();
        match (&*self.lock(), &other_outcome) {
            // Neither write has a known version. If the client has not yet requested the server's version for this
            // write, that request follows both writes, so its version covers both.
            (Outcome::Unknown(None), Outcome::Unknown(None)) => self.reached_version().is_none(),
            (Outcome::Stored { version, labels, .. }, Outcome::Stored { version: older, labels: before, .. }) => {
                labels == before && version.order(older).is_some_and(std::cmp::Ordering::is_ge)
            }
            _ => false,
        }
    }

    pub(crate) fn target(&self) -> &WriteTarget {
        &self.target
    }

    /// Returns the current outcome.
    pub(crate) fn outcome(&self) -> Outcome {
        self.lock().clone()
    }

    /// Sets the outcome, if it was not known.
    pub(crate) fn set_outcome(&self, outcome: Outcome) {
        let mut current = self.lock();
        // The first outcome counts: an observer that is dropped later must not make the write uncertain again.
        if *current == Outcome::Pending {
            *current = outcome;
            drop(current);
            self.ended.notify_waiters();
        }
    }

    /// Waits for the outcome.
    pub(crate) async fn wait_for_outcome(&self) -> Outcome {
        loop {
            // Subscribes before the check, so that no notification is lost.
            let ended = self.ended.notified();
            let current = self.outcome();
            if current != Outcome::Pending {
                return current;
            }
            ended.await;
        }
    }

    /// Marks the write as void: the history that contained it was replaced, for example by a restore.
    pub(crate) fn make_void(&self) {
        // Replaces any outcome: a wait for a version of the old history would never end.
        *self.lock() = Outcome::NoEffect;
        self.ended.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock()
    }

    /// Returns the server's version from a request after the write, if such a request was made.
    pub(crate) fn reached_version(&self) -> Option<&ResourceVersion> {
        self.reached_version.get()
    }

    /// Records that the server was at `version` after the write. The first response is kept.
    pub(crate) fn set_reached_version(&self, version: ResourceVersion) {
        drop(self.reached_version.set(version));
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WriteTarget { group, plural, namespace, name } = &self.target;
        let dot = if group.is_empty() { "" } else { "." };
        match self.outcome() {
            Outcome::Stored { key, version, .. } => write!(f, "{plural}{dot}{group} {key} at version {version}"),
            Outcome::Deleted { key, .. } => write!(f, "the deletion of {plural}{dot}{group} {key}"),
            outcome => {
                let what = match outcome {
                    Outcome::Pending => "a write in flight",
                    Outcome::NoEffect => "a rejected write",
                    Outcome::Unknown(None) => "an unconfirmed write",
                    _ => "a write whose response was lost",
                };
                write!(f, "{what}, {plural}{dot}{group}")?;
                namespace.as_deref().map_or(Ok(()), |namespace| write!(f, " in {namespace}"))?;
                name.as_deref().map_or(Ok(()), |name| write!(f, ", {name}"))
            }
        }
    }
}

impl fmt::Debug for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list.iter().map(ToString::to_string)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_without_version_is_unversioned() {
        let key = || object_key(Some("default"), "a");
        let target = || WriteTarget {
            group: String::new(),
            plural: "configmaps".to_owned(),
            namespace: Some("default".to_owned()),
            name: Some("a".to_owned()),
        };
        let are_versioned = |outcome: Outcome| {
            let mut writes = Writes::default();
            writes.push(Arc::new(Write::new(None, target(), outcome)));
            writes.are_versioned()
        };
        let deleted = |uid: Option<&str>, version: Option<&str>| Outcome::Deleted {
            key: key(),
            uid: uid.map(Uid::from),
            version: version.map(ResourceVersion::from),
        };
        assert!(Writes::default().are_versioned());
        assert!(are_versioned(Outcome::Stored { key: key(), version: "7".into(), labels: None }));
        assert!(are_versioned(Outcome::NoEffect));
        let opaque = Outcome::Stored { key: key(), version: "0x7".into(), labels: None };
        let deleted = [deleted(Some("u"), Some("8")), deleted(Some("u"), None), deleted(None, Some("8"))];
        for outcome in deleted.into_iter().chain([opaque, Outcome::Pending, Outcome::Unknown(None)]) {
            assert!(!are_versioned(outcome.clone()), "{outcome:?}");
        }
        let awaited = Write::new(None, target(), Outcome::Unknown(None));
        awaited.set_reached_version("9".into());
        let mut writes = Writes::default();
        writes.push(Arc::new(awaited));
        assert!(writes.are_versioned(), "a probe was sent to the server");
    }
}
