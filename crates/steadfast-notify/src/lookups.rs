//! Lookups of objects of other resources in expressions: `get(RESOURCE, NAMESPACE, NAME)`.
//!
//! Each looked-up resource of a rule has an informer. An evaluation reads one immutable snapshot per cache
//! ([`LookupSnapshot`]). Snapshots of different caches may show different instants. The evaluation records each
//! looked-up object ([`LookupKey`]). A later change of a recorded object causes another evaluation.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube::core::{ApiResource, DynamicObject};
use parking_lot::Mutex;
use serde_json::Value;
use steadfast::{Informer, Lazy, Lookup, Snapshot};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::object_state::ObjectState;
use crate::rule_source::{ClusterInformers, LookupResource, doubt, json_with_type};
use crate::short_hash::short_hash;

/// Maximum number of different objects that one evaluation may look up.
const MAX_LOOKUPS: usize = 64;

/// Length of the hash of all lookups of an evaluation, in bytes.
const HASH_BYTES: usize = 8;

/// Identity of a looked-up object. The namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LookupKey {
    resource: String,
    namespace: String,
    name: String,
}

impl fmt::Display for LookupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, namespace, name } = self;
        if namespace.is_empty() { write!(f, "{resource} {name}") } else { write!(f, "{resource} {namespace}/{name}") }
    }
}

/// Informers of all looked-up resources of a rule in one scope of a cluster.
pub(crate) struct LookupCaches {
    cluster: String,
    caches: Vec<(LookupResource, Informer<Lazy<DynamicObject>>)>,
}

impl LookupCaches {
    /// Starts or shares the informers of `lookup_resources`. Returns `None` if `lookup_resources` is empty.
    ///
    /// # Errors
    ///
    /// Returns the informer's error text if an informer cannot be started.
    pub(crate) fn start(
        cluster_informers: &ClusterInformers,
        cluster: &str,
        lookup_resources: &[LookupResource],
    ) -> Result<Option<Arc<Self>>, String> {
        let mut caches = Vec::new();
        for lookup_resource in lookup_resources {
            let informer = cluster_informers.informer(&lookup_resource.resource, lookup_resource.scope(), None)?;
            caches.push((lookup_resource.clone(), informer));
        }
        Ok((!caches.is_empty()).then(|| Arc::new(Self { cluster: cluster.to_owned(), caches })))
    }

    /// Takes a snapshot of each cache, one after another.
    pub(crate) fn snapshot(self: &Arc<Self>) -> Arc<LookupSnapshot> {
        let resources = self.caches.iter().map(|(lookup_resource, informer)| {
            // The doubt is read first. If the doubt ends in between, the snapshot is newer than the recorded doubt. The
            // opposite order could label an uncertain snapshot as certain.
            let doubt = self.doubt_of(lookup_resource, informer);
            let resource_snapshot =
                ResourceSnapshot { lookup_resource: lookup_resource.clone(), snapshot: informer.snapshot(), doubt };
            (lookup_resource.name.clone(), Arc::new(resource_snapshot))
        });
        Arc::new(LookupSnapshot {
            resources: Arc::new(resources.collect()),
            caches: self.clone(),
            looked_up: Mutex::default(),
        })
    }

    fn doubt_of(&self, lookup_resource: &LookupResource, informer: &Informer<Lazy<DynamicObject>>) -> Option<Arc<str>> {
        Some(format!("{} of {}: {}", lookup_resource.name, self.cluster, doubt(informer)?).into())
    }

    /// Returns receivers that are notified of each change of a cache or of the freshness.
    pub(crate) fn change_receivers(&self) -> impl Iterator<Item = watch::Receiver<u64>> {
        self.caches.iter().map(|(_, informer)| informer.changed())
    }

    /// Returns the informers of the caches.
    pub(crate) fn informers(&self) -> impl Iterator<Item = &Informer<Lazy<DynamicObject>>> {
        self.caches.iter().map(|(_, informer)| informer)
    }

    /// Waits until no cache is in doubt.
    pub(crate) async fn wait_until_certain(&self) {
        self.wait_until_certain_where(|_| true).await;
    }

    /// Waits until none of the caches selected by `is_required` is in doubt.
    async fn wait_until_certain_where(&self, is_required: impl Fn(&str) -> bool) {
        for (lookup_resource, informer) in
            self.caches.iter().filter(|(lookup_resource, _)| is_required(&lookup_resource.name))
        {
            let mut changed = informer.changed();
            // A closed channel ends the wait: the informer has stopped, and the doubt stays.
            while self.doubt_of(lookup_resource, informer).is_some() && changed.changed().await.is_ok() {}
        }
    }
}

/// Starts the informers of `lookup_resources`, and returns one snapshot for a command that evaluates a rule once.
///
/// Waits at most `limit` until no cache is in doubt. Lookups in caches that are still in doubt fail. Returns `None` if
/// `lookup_resources` is empty.
///
/// # Errors
///
/// Returns the informer's error text if an informer cannot be started.
pub async fn lookup_snapshot(
    cluster_informers: &ClusterInformers,
    cluster: &str,
    lookup_resources: &[LookupResource],
    limit: Duration,
) -> Result<Option<Arc<LookupSnapshot>>, String> {
    let Some(caches) = LookupCaches::start(cluster_informers, cluster, lookup_resources)? else { return Ok(None) };
    let _ = timeout(limit, caches.wait_until_certain()).await;
    Ok(Some(caches.snapshot()))
}

struct ResourceSnapshot {
    lookup_resource: LookupResource,
    snapshot: Arc<Snapshot<Lazy<DynamicObject>>>,
    doubt: Option<Arc<str>>,
}

/// Snapshot of all looked-up resources of a rule.
pub struct LookupSnapshot {
    resources: Arc<BTreeMap<String, Arc<ResourceSnapshot>>>,
    caches: Arc<LookupCaches>,
    /// Objects that evaluations with this snapshot looked up, with versions.
    looked_up: Mutex<BTreeMap<LookupKey, String>>,
}

impl fmt::Debug for LookupSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The objects may be Secrets, so only the names of the resources are shown.
        f.debug_struct("LookupSnapshot").field("resources", &self.resources.keys()).finish_non_exhaustive()
    }
}

impl LookupSnapshot {
    /// Returns a copy of this snapshot for another evaluation. The copy has no recorded lookups.
    pub(crate) fn without_looked_up(&self) -> Arc<Self> {
        self.with_resources(self.resources.clone())
    }

    fn with_resources(&self, resources: Arc<BTreeMap<String, Arc<ResourceSnapshot>>>) -> Arc<Self> {
        Arc::new(Self { resources, caches: self.caches.clone(), looked_up: Mutex::default() })
    }

    /// Returns a new snapshot of the same caches.
    pub(crate) fn current_snapshot(&self) -> Arc<Self> {
        self.caches.snapshot()
    }

    /// Returns this snapshot with one exception: a resource in doubt is taken from `before`, if the resource was
    /// certain there.
    pub(crate) fn with_certain_from(&self, before: &Self) -> Arc<Self> {
        let resources = self.resources.iter().map(|(resource, current)| {
            // A resource in doubt keeps the last certain state. The next comparison after the doubt then shows all
            // differences.
            let certain =
                before.resources.get(resource).filter(|before| current.doubt.is_some() && before.doubt.is_none());
            (resource.clone(), certain.unwrap_or(current).clone())
        });
        self.with_resources(Arc::new(resources.collect()))
    }

    /// Returns true if any resource is in doubt.
    pub(crate) fn has_resource_in_doubt(&self) -> bool {
        self.resources.values().any(|resource| resource.doubt.is_some())
    }

    /// Returns true if an evaluation with this snapshot looked up a resource in doubt. The result of the evaluation is
    /// then uncertain.
    pub(crate) fn has_read_in_doubt(&self) -> bool {
        // Doubt about a resource that the evaluation did not read is irrelevant.
        let reads = self.looked_up.lock();
        reads.keys().any(|read| self.resources.get(&read.resource).is_some_and(|resource| resource.doubt.is_some()))
    }

    /// Waits until no resource with a recorded lookup is in doubt.
    pub(crate) async fn wait_until_certain(&self) {
        let resources: BTreeSet<String> = self.looked_up().into_iter().map(|read| read.resource).collect();
        self.caches.wait_until_certain_where(|name| resources.contains(name)).await;
    }

    /// Looks up an object. Returns `None` if the object does not exist. `namespace` is empty for cluster-scoped
    /// objects.
    ///
    /// # Errors
    ///
    /// Returns the reason why the state of the object is unknown.
    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Result<Option<Value>, String> {
        let Some(resource_snapshot) = self.resources.get(resource) else {
            return Err(format!("{resource} are not watched"));
        };
        let ResourceSnapshot { lookup_resource, snapshot, doubt } = &**resource_snapshot;
        if lookup_resource.is_namespaced && namespace.is_empty() {
            return Err(format!("the resource {resource} is namespaced: use get('{resource}', NAMESPACE, NAME)"));
        }
        if !lookup_resource.is_namespaced && !namespace.is_empty() {
            return Err(format!("the resource {resource} is cluster-scoped: use get('{resource}', NAME)"));
        }
        // An object outside of the watched namespace is unknown. Absence would be a wrong result.
        if lookup_resource.namespace.as_deref().is_some_and(|only| only != namespace) {
            return Err(format!("{resource} can be looked up only in the namespace that the rule watches"));
        }
        let key = LookupKey { resource: resource.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() };
        let lookup = snapshot.get((!namespace.is_empty()).then_some(namespace), name);
        let version = match &lookup {
            Lookup::Found(object) => format!("{}@{}", object.identity().uid, object.version()),
            Lookup::Undecodable { version } => format!("@{version}"),
            Lookup::Absent => String::new(),
        };
        {
            let mut reads = self.looked_up.lock();
            if reads.len() >= MAX_LOOKUPS && !reads.contains_key(&key) {
                return Err(format!(
                    "an evaluation may look up at most {MAX_LOOKUPS} different objects; use fewer lookups"
                ));
            }
            // Recorded before a possible failure, so that a change of the object causes another evaluation.
            reads.insert(key, version);
        }
        if let Some(doubt) = doubt {
            return Err(doubt.to_string());
        }
        match lookup {
            Lookup::Absent => Ok(None),
            Lookup::Found(object) => match object.decoded() {
                Ok(decoded) => Ok(Some(visible_json(&decoded, &lookup_resource.resource))),
                Err(_) => Err(format!("{resource} {name} cannot be decoded")),
            },
            Lookup::Undecodable { .. } => Err(format!("{resource} {name} cannot be decoded")),
        }
    }

    /// Returns the looked-up objects.
    pub(crate) fn looked_up(&self) -> Vec<LookupKey> {
        self.looked_up.lock().keys().cloned().collect()
    }

    /// Returns a hash of the looked-up objects and their versions, or `None` without lookups. The hash is equal in all
    /// processes and releases.
    pub(crate) fn fingerprint(&self) -> Option<String> {
        let reads = self.looked_up.lock();
        if reads.is_empty() {
            return None;
        }
        let lines = reads.iter().map(|(LookupKey { resource, namespace, name }, version)| {
            // Unambiguous: names contain no slashes, and each line ends with the version.
            format!("{resource}/{namespace}/{name}/{version}\n")
        });
        Some(short_hash(&lines.collect::<String>(), HASH_BYTES))
    }

    /// Returns the objects that differ from `before`, and the resources that entered or left doubt.
    pub(crate) fn differences(&self, before: &Self) -> LookupDifferences {
        let mut differences = LookupDifferences::default();
        for (resource, now) in &*self.resources {
            let Some(old) = before.resources.get(resource) else { continue };
            if old.doubt.is_some() != now.doubt.is_some() {
                differences.resources.insert(resource.clone());
            }
            // Snapshots are shared, so an unchanged cache is recognised without a comparison.
            if Arc::ptr_eq(&old.snapshot, &now.snapshot) {
                continue;
            }
            old.snapshot.differences(&now.snapshot, |old, new| {
                for key in [old, new].into_iter().flatten().map(steadfast::Entry::key) {
                    let (namespace, name) = (key.namespace().unwrap_or_default().to_owned(), key.name().to_owned());
                    differences.objects.insert(LookupKey { resource: resource.clone(), namespace, name });
                }
            });
        }
        differences
    }
}

fn visible_json(object: &DynamicObject, resource: &ApiResource) -> Value {
    ObjectState::new(json_with_type(object, resource)).masked().clone()
}

/// Differences between two snapshots of a rule's looked-up resources.
#[derive(Debug, Default)]
pub(crate) struct LookupDifferences {
    objects: BTreeSet<LookupKey>,
    /// Resources that entered or left doubt. All their objects count as changed.
    resources: BTreeSet<String>,
}

/// Index from each looked-up object to the objects of the rule that looked it up.
#[derive(Debug)]
pub(crate) struct Dependents<K> {
    by_lookup: BTreeMap<LookupKey, BTreeSet<K>>,
    by_object: HashMap<K, Vec<LookupKey>>,
}

impl<K> Default for Dependents<K> {
    fn default() -> Self {
        Self { by_lookup: BTreeMap::new(), by_object: HashMap::new() }
    }
}

impl<K: Clone + Ord + std::hash::Hash> Dependents<K> {
    /// Replaces the lookups of the object `key`.
    pub(crate) fn set(&mut self, key: &K, reads: Vec<LookupKey>) {
        // Reads of an earlier evaluation may not apply any more.
        self.remove(key);
        for read in &reads {
            self.by_lookup.entry(read.clone()).or_default().insert(key.clone());
        }
        if !reads.is_empty() {
            self.by_object.insert(key.clone(), reads);
        }
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, key: &K) {
        for read in self.by_object.remove(key).into_iter().flatten() {
            if let Some(keys) = self.by_lookup.get_mut(&read) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_lookup.remove(&read);
                }
            }
        }
    }

    /// Returns the objects that looked up a changed object. Ignores resources that entered or left doubt.
    pub(crate) fn affected_by_objects(&self, differences: &LookupDifferences) -> BTreeSet<K> {
        differences.objects.iter().filter_map(|read| self.by_lookup.get(read)).flatten().cloned().collect()
    }

    /// Returns the objects that looked up a changed object, or any object of a resource that entered or left doubt.
    pub(crate) fn affected_by(&self, differences: &LookupDifferences) -> BTreeSet<K> {
        let (mut affected, resources) = (self.affected_by_objects(differences), &differences.resources);
        if !resources.is_empty() {
            let reads_of_resources = self.by_lookup.iter().filter(|(read, _)| resources.contains(&read.resource));
            affected.extend(reads_of_resources.flat_map(|(_, keys)| keys.iter().cloned()));
        }
        affected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup_key(name: &str) -> LookupKey {
        LookupKey { resource: "services".to_owned(), namespace: "shop".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn dependents_follow_the_latest_lookups() {
        let mut dependents = Dependents::default();
        dependents.set(&"a", vec![lookup_key("x"), lookup_key("y")]);
        dependents.set(&"b", vec![lookup_key("y")]);
        let affected_by_object = |dependents: &Dependents<&'static str>, name: &str| {
            let differences = LookupDifferences { objects: [lookup_key(name)].into(), ..LookupDifferences::default() };
            dependents.affected_by(&differences).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(affected_by_object(&dependents, "y"), ["a", "b"]);
        dependents.set(&"a", vec![lookup_key("x")]);
        assert_eq!(affected_by_object(&dependents, "y"), ["b"]);
        dependents.remove(&"b");
        assert!(affected_by_object(&dependents, "y").is_empty());
        let all = LookupDifferences { resources: ["services".to_owned()].into(), ..LookupDifferences::default() };
        assert_eq!(dependents.affected_by(&all).into_iter().collect::<Vec<_>>(), ["a"]);
        dependents.remove(&"a");
        assert!(dependents.by_lookup.is_empty() && dependents.by_object.is_empty(), "no entries remain");
    }
}
