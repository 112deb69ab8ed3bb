//! State of the history: a log per resource, every version of every object, and the caches that follow it.

mod snapshots;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;

use super::{Cache, Change, History, TerminatingNamespaces};
use crate::clock::Clock;
use crate::metadata;
use crate::random::Random;
use crate::resources::{DEFINITIONS, Definition, GroupResource, NAMESPACES, Registry};

/// Key of an object within its resource, ordered by `namespace/name` as one string, as in etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectKey {
    /// Namespace; empty for cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.namespace.bytes().chain([b'/']).chain(self.name.bytes())
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.namespace == other.namespace {
            return self.name.cmp(&other.name);
        }
        // etcd orders whole paths, so `a-b/x` precedes `a/x`.
        self.bytes().cmp(other.bytes())
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Objects and changes of one resource.
#[derive(Debug, Default)]
struct ResourceHistory {
    log: Vec<Arc<Change>>,
    versions: BTreeMap<ObjectKey, Vec<Arc<Change>>>,
    /// Last versions of the existing objects. Reads of the current state need no search among the deleted objects, which
    /// stay in `versions`.
    live: BTreeMap<ObjectKey, Arc<Change>>,
}

impl ResourceHistory {
    fn push(&mut self, key: ObjectKey, change: Arc<Change>) {
        self.log.push(Arc::clone(&change));
        match change.object {
            Some(_) => self.live.insert(key.clone(), Arc::clone(&change)),
            None => self.live.remove(&key),
        };
        self.versions.entry(key).or_default().push(change);
    }

    /// Returns the objects at a revision, ordered by key, starting at `start`.
    fn objects_at(
        &self,
        start: Bound<ObjectKey>,
        revision: u64,
    ) -> impl Iterator<Item = (&ObjectKey, &Arc<Change>)> + use<'_> {
        let is_current = self.log.last().is_none_or(|change| change.revision <= revision);
        let range = (start, Bound::Unbounded);
        let current = is_current.then(|| self.live.range(range.clone()));
        let earlier = (!is_current).then(|| self.versions.range(range));
        let earlier = earlier.into_iter().flatten();
        let earlier = earlier.filter_map(move |(key, versions)| Some((key, version_at(versions, revision)?)));
        current.into_iter().flatten().chain(earlier)
    }

    /// Removes the changes after `revision`.
    fn truncate(&mut self, revision: u64) {
        self.log.retain(|change| change.revision <= revision);
        for versions in self.versions.values_mut() {
            versions.retain(|change| change.revision <= revision);
        }
        // Objects that were created after the revision no longer exist.
        self.versions.retain(|_, versions| !versions.is_empty());
        let last = |(key, versions): (&ObjectKey, &Vec<Arc<Change>>)| {
            Some((key.clone(), Arc::clone(version_at(versions, revision)?)))
        };
        self.live = self.versions.iter().filter_map(last).collect();
    }
}

/// The history, and the part that each replica has seen.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) clock: Clock,
    pub(crate) random: Random,
    pub(crate) registry: Registry,
    pub(crate) caches: Vec<Cache>,
    pub(crate) terminating: TerminatingNamespaces,
    revision: u64,
    /// Highest revision of all epochs. A restore does not lower it.
    highest_revision: u64,
    /// Revision after which the history has all changes: that of the server's start, or of the last forgotten change.
    first_revision: u64,
    epochs: Vec<u64>,
    compacted_revision: u64,
    resources: BTreeMap<GroupResource, ResourceHistory>,
    all_changes: Vec<Arc<Change>>,
    /// Number of changes that `forget` has removed from `all_changes`.
    forgotten_changes: usize,
    /// Number of the request that makes the current changes; `None` for other changes, which are not part of a request.
    pub(super) request: Option<u64>,
}

impl State {
    pub(crate) fn new(clock: Clock, random: Random, registry: Registry, terminating: TerminatingNamespaces) -> Self {
        Self {
            clock,
            random,
            registry,
            caches: Vec::new(),
            terminating,
            // The first revision of etcd. 0 means "any" in the API.
            revision: 1,
            highest_revision: 1,
            first_revision: 1,
            epochs: vec![0],
            compacted_revision: 0,
            resources: BTreeMap::new(),
            all_changes: Vec::new(),
            forgotten_changes: 0,
            request: None,
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the oldest revision that can be read exactly.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted_revision
    }

    pub(crate) fn history(&self) -> History {
        History { changes: self.all_changes.clone(), epochs: self.epochs.clone(), revision: self.revision }
    }

    /// Appends a change and sets the resource version of `object`.
    pub(crate) fn append(
        &mut self,
        resource: &GroupResource,
        key: ObjectKey,
        object: Option<Value>,
        previous: Option<Arc<Value>>,
    ) -> Arc<Change> {
        // Every change takes its own revision, like a transaction of etcd.
        self.revision += 1;
        self.highest_revision = self.highest_revision.max(self.revision);
        let object = object.map(|mut object| {
            metadata::set(&mut object, "resourceVersion", Some(self.revision.to_string().into()));
            Arc::new(object)
        });
        let definition = self.definition_for(resource, object.as_ref().or(previous.as_ref()));
        let mut change = Change::new(self.revision, resource.clone(), (&key.namespace, &key.name), object, previous);
        (change.epoch, change.at, change.request) = (self.epoch(), self.clock.elapsed(), self.request);
        change.definition = definition;
        let change = Arc::new(change);
        // Injected losses apply before any stream can read the change.
        for cache in &mut self.caches {
            cache.observe(&change);
        }
        // The record survives restores, which truncate the tables.
        self.all_changes.push(Arc::clone(&change));
        self.resources.entry(resource.clone()).or_default().push(key, Arc::clone(&change));
        // The registry must follow each change of a definition within the same write, before any other request.
        if *resource == *DEFINITIONS {
            self.define_resources();
        }
        change
    }

    /// Returns the newest version of an object, if it exists.
    pub(crate) fn latest(&self, resource: &GroupResource, key: &ObjectKey) -> Option<&Arc<Change>> {
        self.resources.get(resource)?.live.get(key)
    }

    /// Returns the version of an object at a revision, if it existed.
    pub(crate) fn object_at(&self, resource: &GroupResource, key: &ObjectKey, revision: u64) -> Option<&Arc<Change>> {
        version_at(self.resources.get(resource)?.versions.get(key)?, revision)
    }

    /// Returns the objects of a resource at a revision, ordered by key, starting at `start`.
    pub(crate) fn objects_at<'a>(
        &'a self,
        resource: &GroupResource,
        namespace: Option<&'a str>,
        start: Bound<ObjectKey>,
        revision: u64,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Change>)> {
        let start = match (namespace, start) {
            // The empty name sorts before all names of the namespace.
            (Some(namespace), Bound::Unbounded) => Bound::Included(ObjectKey::new(namespace, "")),
            (_, start) => start,
        };
        let history = self.resources.get(resource).into_iter();
        let objects = history.flat_map(move |history| history.objects_at(start.clone(), revision));
        // Keys are ordered by namespace, so the first key of another namespace ends the range.
        objects.take_while(move |(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace))
    }

    /// Returns the live objects of a resource, ordered by key.
    pub(crate) fn live<'a>(
        &'a self,
        resource: &GroupResource,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Change>)> {
        self.objects_at(resource, namespace, Bound::Unbounded, self.revision)
    }

    /// Returns the resources that have or had objects.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &GroupResource> {
        self.resources.keys()
    }

    /// Returns up to `max_count` changes of a resource with revisions above `after` and up to `upto`. Also returns the
    /// number of further changes.
    pub(crate) fn changes(
        &self,
        resource: &GroupResource,
        after: u64,
        upto: u64,
        max_count: usize,
    ) -> (Vec<Arc<Change>>, usize) {
        let Some(history) = self.resources.get(resource) else { return (Vec::new(), 0) };
        // The log is sorted by revision. Both bounds are binary searches, even for long histories.
        let first = history.log.partition_point(|change| change.revision <= after);
        let end = history.log.partition_point(|change| change.revision <= upto).max(first);
        let taken = end.min(first + max_count);
        (history.log[first..taken].to_vec(), end - taken)
    }

    /// Returns the revision of the last change of a resource up to `upto`; 0 if there is none.
    pub(crate) fn last_change(&self, resource: &GroupResource, upto: u64) -> u64 {
        let log = self.resources.get(resource).map(|history| history.log.as_slice()).unwrap_or_default();
        let end = log.partition_point(|change| change.revision <= upto);
        log[..end].last().map_or(0, |change| change.revision)
    }

    /// Returns the revision before the last `count` changes of a resource up to `version`.
    pub(crate) fn revision_before(&self, resource: &GroupResource, version: u64, count: usize) -> u64 {
        let log = self.resources.get(resource).map(|history| history.log.as_slice()).unwrap_or_default();
        let end = log.partition_point(|change| change.revision <= version);
        if count == 0 || end == 0 {
            return version;
        }
        // Changes that were delivered before are repeated on purpose.
        log[end.saturating_sub(count)].revision - 1
    }

    /// Compacts the history for exact reads at the current revision. The windows of the caches are unaffected.
    pub(crate) fn compact(&mut self) {
        // Watches still have their events: the watch cache has its own window.
        self.compacted_revision = self.revision;
    }

    /// Removes all changes but the newest `keep`, and no current state.
    pub(crate) fn forget(&mut self, keep: usize) {
        // A cache that lags still reads the states at its own revision.
        let applied = self.caches.iter().map(|cache| cache.applied_revision).min().unwrap_or(self.revision);
        let revision = self.revision.saturating_sub(keep as u64).min(applied);
        if revision <= self.first_revision {
            return;
        }
        // By position: changes of an earlier epoch can have higher revisions than later changes.
        let removed =
            self.all_changes.iter().rposition(|change| change.revision <= revision).map_or(0, |last| last + 1);
        self.all_changes.drain(..removed);
        self.forgotten_changes += removed;
        for history in self.resources.values_mut() {
            let first = history.log.partition_point(|change| change.revision <= revision);
            history.log.drain(..first);
            history.versions.retain(|_, versions| {
                // The last version up to `revision` is the state at `revision`, unless it is a tombstone.
                let newer = versions.partition_point(|change| change.revision <= revision);
                let has_state = newer > 0 && versions[newer - 1].object.is_some();
                versions.drain(..newer - usize::from(has_state));
                !versions.is_empty()
            });
        }
        self.first_revision = revision;
        self.compacted_revision = self.compacted_revision.max(revision);
        for cache in &mut self.caches {
            cache.window_start = cache.window_start.max(revision);
        }
    }

    /// Returns true if a watch at this revision has missed changes that `forget` removed.
    pub(crate) fn has_forgotten(&self, revision: u64) -> bool {
        revision < self.first_revision
    }

    /// Restores an older revision. Revisions continue in a new epoch.
    pub(crate) fn restore(&mut self, revision: u64) {
        // Earlier states of a snapshot's objects are unknown, so the start of the history is the oldest possible state.
        let revision = revision.max(self.first_revision);
        // The next change reuses a revision of the previous epoch, as after a restore of etcd.
        self.revision = revision.min(self.revision);
        self.epochs.push(self.revision);
        // A compaction beyond the restored revision never happened in the new epoch.
        self.compacted_revision = self.compacted_revision.min(self.revision);
        for history in self.resources.values_mut() {
            history.truncate(revision);
        }
        // Definitions may have changed with the restore, and the registry must follow.
        self.define_resources();
        self.restart_namespace_termination_delay();
        for cache in &mut self.caches {
            cache.lag_at = None;
            cache.frozen_at = None;
            // Caches follow the restored store from its revision, as after a restart of all servers.
            cache.restart(self.revision);
        }
    }

    /// Starts the delay of the terminating namespaces again, after older states became current.
    fn restart_namespace_termination_delay(&mut self) {
        self.terminating.clear();
        let now = self.clock.elapsed();
        let live: Vec<_> = self.live(&NAMESPACES, None).map(|(key, change)| (key.clone(), change.clone())).collect();
        for (key, change) in live {
            if change.object.as_deref().is_some_and(metadata::is_terminating) {
                self.terminating.start(&key.name, now);
            }
        }
    }

    pub(crate) fn advance_caches(&mut self) {
        for cache in &mut self.caches {
            cache.advance(self.revision);
        }
    }

    /// Returns the number of changes since the server's start, including those that `forget` removed. A restore removes
    /// none of them.
    pub(crate) fn recorded_count(&self) -> usize {
        self.forgotten_changes + self.all_changes.len()
    }

    /// Returns the changes of all resources after the first `count` ones since the server's start; `None` if `forget` has
    /// removed some of them.
    #[cfg(feature = "world")]
    pub(crate) fn recorded_since(&self, count: usize) -> Option<&[Arc<Change>]> {
        self.all_changes.get(count.checked_sub(self.forgotten_changes)?..)
    }

    /// Returns the number of restores.
    pub(crate) fn epoch(&self) -> u32 {
        self.epochs.len() as u32 - 1
    }

    /// Returns the definition with which a stored object can be sent unchanged.
    fn definition_for(&self, resource: &GroupResource, object: Option<&Arc<Value>>) -> Option<Arc<Definition>> {
        let (served, object) = (self.registry.get(resource)?, object?);
        // The stored encoding can be reused only without a conversion.
        let is_unconverted = Arc::ptr_eq(&served.view(object, served.storage_version()), object);
        served.definition.clone().filter(|_| is_unconverted)
    }

    fn define_resources(&mut self) {
        let live: Vec<_> = self.live(&DEFINITIONS, None).filter_map(|(_, change)| change.object.clone()).collect();
        self.registry.define(live.iter());
    }
}

fn version_at(versions: &[Arc<Change>], revision: u64) -> Option<&Arc<Change>> {
    // Versions are sorted by revision. The last version at or below `revision` is current, unless it is a tombstone.
    let newer = versions.partition_point(|change| change.revision <= revision);
    versions.get(newer.checked_sub(1)?).filter(|change| change.object.is_some())
}
