//! What was written through a client: so that a cache can be waited for that has it (C12).
//!
//! A write is known by what the server has answered. Where that was lost, the write may have been made all the same: then
//! it is taken to be no newer than what the server has come to when it is asked a while afterwards ([`GRACE`]).

pub(crate) mod answer;
pub(crate) mod recording;
pub(crate) mod request;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use kube::Resource;
use kube::core::ObjectMeta;
use steadfast_core::{Instant, ObjectKey, ResourceVersion, Uid};
use tokio::sync::Notify;

/// So long after an answer was lost the server is asked: it may act until it notices that nobody waits. One that is behind
/// something which does not tell it may act later, for as long as a request may take there.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// Writes that were made, or may have been.
///
/// They come from a [`Recording`](crate::Recording), or are [added](Self::add) by hand where another client made them.
/// [`Informer::wait_for_writes`](crate::Informer::wait_for_writes) and
/// [`InformerFactory::wait_for_writes`](crate::InformerFactory::wait_for_writes) wait until caches have them.
#[derive(Clone, Default)]
pub struct Writes {
    made: Vec<Arc<Write>>,
}

/// A request that may have written, and what came of it.
pub(crate) struct Write {
    /// On which server; none where whoever tells of it does not say.
    server: Option<Server>,
    target: Target,
    outcome: Mutex<Outcome>,
    /// Wakes who waits for that. There is one of these for each write that a cache does not have yet, and a channel would be ten times
    /// as large.
    ended: Notify,
    /// What the server had come to when it was asked after the write.
    reached: OnceLock<ResourceVersion>,
}

/// Tells one server from another: what has the same is the same connection, or a clone of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server(Arc<()>);

impl PartialEq for Server {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What a request writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The group, empty for the oldest one.
    pub(crate) group: String,
    /// The resource as paths have it.
    pub(crate) plural: String,
    /// None for what is in no namespace, or in any.
    pub(crate) namespace: Option<String>,
    /// None where the server chooses it, and for a whole collection.
    pub(crate) name: Option<String>,
}

/// The labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// What came of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is under way.
    Awaited,
    /// Nothing was written.
    Nothing,
    /// The object is, or was, in this version, and has these labels, where they are known.
    Held { key: ObjectKey, version: ResourceVersion, labels: Option<Labels> },
    /// The object is gone; in this version, if the server has said so.
    Gone { key: ObjectKey, uid: Option<Uid>, version: Option<ResourceVersion> },
    /// It may have been made: it was answered, and no version told; or the answer was lost, at this moment.
    Unknown(Option<Instant>),
}

impl Writes {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.made.is_empty()
    }

    /// Whether all of them tell a version that objects have since, so that a cache says by itself when it has come to that. Of others it
    /// takes a question to the server to find out, an answer that is still to come, or to see an object go.
    pub fn are_versioned(&self) -> bool {
        self.made.iter().all(|write| match write.outcome() {
            Outcome::Held { version, .. } => version.is_ordered(),
            Outcome::Nothing => true,
            Outcome::Unknown(_) => write.reached().is_some(),
            Outcome::Gone { .. } | Outcome::Awaited => false,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.made.len()
    }

    /// Adds a write that another client made: `written` is what the server answered.
    ///
    /// One without a version says nothing, and is not added.
    pub fn add<K: Resource>(&mut self, written: &K)
    where
        K::DynamicType: Default,
    {
        let meta = written.meta();
        let Some((key, version)) = key_of(meta).zip(meta.resource_version.as_deref()) else { return };
        let labels = Some(meta.labels.clone().unwrap_or_default());
        self.tell::<K>(&key, Outcome::Held { key: key.clone(), version: version.into(), labels });
    }

    /// Adds a deletion that another client made: `deleted` is the object as it was seen or answered last.
    pub fn add_deleted<K: Resource>(&mut self, deleted: &K)
    where
        K::DynamicType: Default,
    {
        let meta = deleted.meta();
        let Some(key) = key_of(meta) else { return };
        let uid = meta.uid.as_deref().filter(|uid| !uid.is_empty()).map(Uid::from);
        let version = meta.resource_version.as_deref().map(ResourceVersion::from);
        self.tell::<K>(&key, Outcome::Gone { key: key.clone(), uid, version });
    }

    fn tell<K: Resource>(&mut self, key: &ObjectKey, outcome: Outcome)
    where
        K::DynamicType: Default,
    {
        let kind = K::DynamicType::default();
        let target = Target {
            group: K::group(&kind).into_owned(),
            plural: K::plural(&kind).into_owned(),
            namespace: key.namespace().map(str::to_owned),
            name: Some(key.name().to_owned()),
        };
        self.push(Arc::new(Write::new(None, target, outcome)));
    }

    /// Adds those of `others`; of two states of one object the newer is enough, and of two of which nobody knows what they were
    /// the one after which the server is asked later.
    pub fn extend(&mut self, others: Self) {
        for write in others.made {
            match self.made.iter_mut().find(|known| write.covers(known)) {
                Some(known) => *known = write,
                None => self.made.push(write),
            }
        }
    }

    /// Takes out those that are among `others`, the very same.
    pub fn remove(&mut self, others: &Self) {
        self.made.retain(|write| !others.made.iter().any(|other| Arc::ptr_eq(write, other)));
    }

    pub(crate) fn push(&mut self, write: Arc<Write>) {
        self.made.push(write);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Write>> {
        self.made.iter()
    }
}

fn key_of(meta: &ObjectMeta) -> Option<ObjectKey> {
    Some(key_in(meta.namespace.as_deref(), meta.name.as_deref()?))
}

/// The key of `name` in `namespace`, which is none for what is in none.
pub(crate) fn key_in(namespace: Option<&str>, name: &str) -> ObjectKey {
    namespace.map_or_else(|| ObjectKey::cluster(name), |namespace| ObjectKey::namespaced(namespace, name))
}

impl Write {
    pub(crate) fn new(server: Option<Server>, target: Target, outcome: Outcome) -> Self {
        Self { server, target, outcome: Mutex::new(outcome), ended: Notify::new(), reached: OnceLock::new() }
    }

    /// Whether it may have been made on `server`.
    pub(crate) fn is_on(&self, server: &Server) -> bool {
        self.server.as_ref().is_none_or(|own| own == server)
    }

    /// Whether a cache that has this also has `other`, and is to hold both if it is to hold one.
    fn covers(&self, other: &Self) -> bool {
        // As good as always these differ, and nothing is copied.
        if (&self.server, &self.target) != (&other.server, &other.target) {
            return false;
        }
        // One lock at a time: two that are compared both ways must not wait for each other.
        let theirs = other.outcome();
        match (&*self.lock(), &theirs) {
            (Outcome::Unknown(None), Outcome::Unknown(None)) => self.reached().is_none(),
            (Outcome::Held { version, labels, .. }, Outcome::Held { version: older, labels: before, .. }) => {
                labels == before && version.order(older).is_some_and(std::cmp::Ordering::is_ge)
            }
            _ => false,
        }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// What came of it, so far.
    pub(crate) fn outcome(&self) -> Outcome {
        self.lock().clone()
    }

    /// Says what came of it, if that was not known.
    pub(crate) fn end(&self, outcome: Outcome) {
        let mut known = self.lock();
        if *known == Outcome::Awaited {
            *known = outcome;
            drop(known);
            self.ended.notify_waiters();
        }
    }

    /// What came of it, once that is known.
    pub(crate) async fn ended(&self) -> Outcome {
        loop {
            // It hears of what happens from here on.
            let ended = self.ended.notified();
            let known = self.outcome();
            if known != Outcome::Awaited {
                return known;
            }
            ended.await;
        }
    }

    /// The history in which it was made is no more.
    pub(crate) fn make_void(&self) {
        *self.lock() = Outcome::Nothing;
        self.ended.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server had come to when it was asked after the write, if it was.
    pub(crate) fn reached(&self) -> Option<&ResourceVersion> {
        self.reached.get()
    }

    /// The server was asked after the write, and had come to `version`; the first answer stays.
    pub(crate) fn reach(&self, version: ResourceVersion) {
        drop(self.reached.set(version));
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { group, plural, namespace, name } = &self.target;
        let dot = if group.is_empty() { "" } else { "." };
        match self.outcome() {
            Outcome::Held { key, version, .. } => write!(f, "{plural}{dot}{group} {key} at version {version}"),
            Outcome::Gone { key, .. } => write!(f, "the end of {plural}{dot}{group} {key}"),
            outcome => {
                let what = match outcome {
                    Outcome::Awaited => "a write that is under way",
                    Outcome::Nothing => "a write that was refused",
                    Outcome::Unknown(None) => "what may have been written",
                    _ => "a write whose answer was lost",
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
        f.debug_list().entries(self.made.iter().map(ToString::to_string)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_no_version_is_not_found_in_a_cache_by_that() {
        let key = || key_in(Some("default"), "a");
        let target = || Target {
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
        let gone = |uid: Option<&str>, version: Option<&str>| Outcome::Gone {
            key: key(),
            uid: uid.map(Uid::from),
            version: version.map(ResourceVersion::from),
        };
        assert!(Writes::default().are_versioned());
        assert!(are_versioned(Outcome::Held { key: key(), version: "7".into(), labels: None }));
        assert!(are_versioned(Outcome::Nothing));
        let opaque = Outcome::Held { key: key(), version: "0x7".into(), labels: None };
        let gone = [gone(Some("u"), Some("8")), gone(Some("u"), None), gone(None, Some("8"))];
        for outcome in gone.into_iter().chain([opaque, Outcome::Awaited, Outcome::Unknown(None)]) {
            assert!(!are_versioned(outcome.clone()), "{outcome:?}");
        }
        let asked = Write::new(None, target(), Outcome::Unknown(None));
        asked.reach("9".into());
        let mut writes = Writes::default();
        writes.push(Arc::new(asked));
        assert!(writes.are_versioned(), "the server was asked");
    }
}
