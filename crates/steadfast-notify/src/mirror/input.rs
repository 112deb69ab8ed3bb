//! Entries that one rule adds to a mirror, for the watched objects of one cluster. Updated from the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::Value;
use steadfast::{Entry as CacheEntry, Informer, Lazy, Lookup, Object, ObjectKey, Snapshot};
use steadfast_targets::{ObjectId, Origin};
use tokio::sync::{Notify, watch};

use super::claim::ObjectEntries;
use super::entry::{Entry, entries, has_ended};
use super::grouping::Grouping;
use super::slices::{LiveObjects, SliceSet, claims};
use super::term_barrier::TermBarrier;
use crate::change::{EventSubject, ObjectChange, ObjectState};
use crate::config::EventKind;
use crate::endpoints::EndpointSlice;
use crate::entry_fields::EntryFields;
use crate::instants::RecheckSchedule;
use crate::lookups::{Dependents, LookupCaches, LookupKey, LookupSnapshot};
use crate::offload::offload;
use crate::rule::{CompiledRule, RuleOutcome};
use crate::rule_source::{ClusterInformers, RuleSource, doubt, json_with_type, subject};

/// Number of objects per evaluation batch. Other rules can run between batches.
const OBJECTS_PER_BATCH: usize = 16;

/// Cache snapshot for checking the existence of an entry's object.
pub(super) struct ExistenceSnapshot {
    cluster: String,
    selection: String,
    snapshot: Arc<Snapshot<Lazy<DynamicObject>>>,
    /// Endpoints of Services, if the entries belong to endpoints.
    live_objects: Option<Arc<LiveObjects>>,
}

impl ExistenceSnapshot {
    /// Returns true if the object of `origin` exists and is not terminating. `None` for an object outside of this
    /// cache.
    pub(super) fn is_live(&self, origin: &Origin) -> Option<bool> {
        let ObjectId { cluster, selection, namespace, name, .. } = &origin.object;
        // Each input contains only objects of its own cluster and selection.
        if (cluster, selection) != (&self.cluster, &self.selection) {
            return None;
        }
        if let Some(live_objects) = &self.live_objects {
            return Some(live_objects.contains(&(namespace.clone(), name.clone(), origin.uid.clone())));
        }
        let namespace = (!namespace.is_empty()).then_some(namespace.as_str());
        Some(match self.snapshot.get(namespace, name) {
            Lookup::Absent => false,
            // The object exists, although it cannot be decoded.
            Lookup::Undecodable { .. } => true,
            Lookup::Found(object) => {
                // A recreated object has the same name, but its entries belong to the deleted one.
                let is_same = *object.identity().uid == *origin.uid;
                is_same
                    && object.decoded().is_ok_and(|object| {
                        let is_terminating = object.metadata.deletion_timestamp.is_some();
                        let phase = object.data["status"]["phase"].as_str();
                        let is_pod = object.types.as_ref().is_none_or(|types| types.kind == "Pod");
                        !(is_terminating || is_pod && matches!(phase, Some("Succeeded" | "Failed")))
                    })
            }
        })
    }
}

/// Rule of a mirror, and the cache of the objects that the rule watches in one cluster.
pub struct MirrorInput {
    source: RuleSource,
    /// Number of the cluster's connection.
    connection_id: u64,
    /// Wall clock.
    clock: fn() -> Timestamp,
    rule: Arc<CompiledRule>,
    informer: Informer<Lazy<DynamicObject>>,
    /// Snapshot from which `object_entries` was computed.
    last_snapshot: Option<Arc<Snapshot<Lazy<DynamicObject>>>>,
    object_entries: BTreeMap<ObjectKey, ObjectEntries>,
    /// `EndpointSlice`s, if the rule mirrors endpoints of Services. `object_entries` is empty in this case.
    slices: SliceSet,
    /// Caches for lookups, if the rule has lookups.
    caches: Option<Arc<LookupCaches>>,
    /// Lookups from which `object_entries` was computed.
    looked_up: Option<Arc<LookupSnapshot>>,
    dependents: Dependents<ObjectKey>,
    /// Instants of the next evaluation of objects.
    instants: RecheckSchedule<ObjectKey>,
    /// True after the first instant without doubt. Before that instant, caches restored from an earlier run must not
    /// add entries.
    is_confirmed: bool,
    /// Wait for the writes before the current term. `None` without replicas, and on a standby.
    term_barrier: Option<TermBarrier>,
}

impl MirrorInput {
    /// Starts to watch `source` for `rule`. Inputs of the same source share one watch.
    ///
    /// # Errors
    ///
    /// Returns the informer's error text if an informer cannot be started.
    pub fn start(
        cluster_informers: &ClusterInformers,
        source: RuleSource,
        rule: Arc<CompiledRule>,
    ) -> Result<Self, String> {
        let informer = source.informer(cluster_informers, None)?;
        let caches = LookupCaches::start(cluster_informers, &source.cluster, &source.lookups)?;
        let (connection_id, clock) = (cluster_informers.connection_id, cluster_informers.clock);
        let (object_entries, slices, last_snapshot, looked_up) = (BTreeMap::new(), SliceSet::default(), None, None);
        let (dependents, instants, is_confirmed) = (Dependents::default(), RecheckSchedule::default(), false);
        Ok(Self {
            source,
            connection_id,
            clock,
            rule,
            informer,
            last_snapshot,
            object_entries,
            slices,
            caches,
            looked_up,
            dependents,
            instants,
            is_confirmed,
            term_barrier: None,
        })
    }

    /// Returns true if the input has this `source` and `rule`. The rule may have been reloaded without a change.
    pub(super) fn has_source_and_rule(
        &self,
        cluster_informers: &ClusterInformers,
        source: &RuleSource,
        rule: &CompiledRule,
    ) -> bool {
        let is_same_source = self.connection_id == cluster_informers.connection_id && self.source == *source;
        is_same_source && self.rule.number == rule.number && self.rule.config == rule.config
    }

    /// Returns receivers that are notified of changes of a cache or of the freshness.
    pub(super) fn changed(&self) -> Vec<watch::Receiver<u64>> {
        let looked_up = self.caches.iter().flat_map(|caches| caches.change_receivers());
        [self.informer.changed()].into_iter().chain(looked_up).collect()
    }

    /// Makes the input wait for all writes before `term`, unless this wait has already started. 0 ends the wait: this
    /// process has no term, or has no replicas. Wakes with `wake` at the end of the wait. `planned_pause` is the maximum
    /// pause before this pass.
    pub(super) fn enter_term(&mut self, term: u64, planned_pause: Duration, wake: &Arc<Notify>) {
        if term == 0 {
            self.term_barrier = None;
        } else if self.term_barrier.as_ref().is_none_or(|barrier| !barrier.is_of(term)) {
            self.term_barrier = Some(TermBarrier::start(term, self.informer.clone(), self.caches.clone(), wake));
        }
        self.term_barrier.iter_mut().for_each(|barrier| barrier.record_pass(planned_pause));
    }

    /// Returns true if the entries must not be added or changed yet, because the earlier leader may have a newer cache.
    pub(super) fn is_held_back(&self) -> bool {
        self.term_barrier.as_ref().is_some_and(TermBarrier::holds_back)
    }

    /// Marks the input as confirmed if there is no doubt.
    pub(super) fn confirm(&mut self) {
        // An input stays confirmed, because the informer itself reports later doubt.
        self.is_confirmed = self.is_confirmed || self.doubt_now().is_none();
    }

    /// Returns the reason why the cache may be stale.
    pub(super) fn doubt(&self) -> Option<String> {
        let unconfirmed =
            || (!self.is_confirmed).then(|| "the server has not confirmed the restored cache yet".to_owned());
        let is_behind = self.term_barrier.as_ref().is_some_and(|barrier| !barrier.is_confirmed());
        let behind = || {
            let RuleSource { cluster, .. } = &self.source;
            let resource = self.source.resource_name();
            is_behind
                .then(|| format!("{resource} of {cluster}: the cache may lack changes that the earlier leader knew"))
        };
        self.doubt_now().or_else(unconfirmed).or_else(behind)
    }

    fn doubt_now(&self) -> Option<String> {
        let RuleSource { cluster, .. } = &self.source;
        Some(format!("{} of {cluster}: {}", self.source.resource_name(), doubt(&self.informer)?))
    }

    /// Waits until there is no doubt, at most for `limit`.
    pub(super) async fn wait_until_fresh(&self, limit: Duration) {
        let mut changed = self.informer.changed();
        let fresh = async {
            while self.doubt_now().is_some() && changed.changed().await.is_ok() {}
            if let Some(caches) = &self.caches {
                caches.wait_until_certain().await;
            }
        };
        // Remaining doubt is reported in the preview.
        let _ = tokio::time::timeout(limit, fresh).await;
    }

    /// Evaluates the rule for objects with possibly changed entries: changed objects, objects with changed lookups, and
    /// objects that are due. Returns true if there were any.
    pub(super) async fn catch_up(&mut self, entry_fields: EntryFields, grouping: &Grouping) -> bool {
        // A restored cache may lack objects that were created since the checkpoint.
        if !self.is_confirmed {
            return false;
        }
        let at = (self.clock)();
        let looked_up = self.caches.as_ref().map(LookupCaches::snapshot);
        // Taken after the lookups, so this snapshot is at least as new.
        let snapshot = self.informer.snapshot();
        let due_keys = self.take_due_keys(looked_up.as_deref(), at);
        self.looked_up.clone_from(&looked_up);
        if due_keys.is_empty() && self.last_snapshot.as_ref().is_some_and(|last| Arc::ptr_eq(last, &snapshot)) {
            return false;
        }
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        let mut add_difference = |old: Option<&CacheEntry<Lazy<DynamicObject>>>,
                                  new: Option<&CacheEntry<Lazy<DynamicObject>>>| {
            removed.extend(old.map(|old| old.key().clone()));
            added.extend(new.cloned());
        };
        // Removed first, then evaluated: an updated object is in both lists.
        match &self.last_snapshot {
            Some(last) => last.differences(&snapshot, add_difference),
            None => snapshot.iter().for_each(|entry| add_difference(None, Some(entry))),
        }
        for key in removed {
            self.object_entries.remove(&key);
            self.slices.remove(&key);
            self.dependents.remove(&key);
            self.instants.set(&key, None);
        }
        // Objects in `added` are evaluated anyway.
        let added_keys: BTreeSet<&ObjectKey> = added.iter().map(CacheEntry::key).collect();
        let due_keys = due_keys.iter().filter(|key| !added_keys.contains(key));
        let due_keys: Vec<_> =
            due_keys.filter_map(|key| snapshot.entry(key.namespace(), key.name()).cloned()).collect();
        added.extend(due_keys);
        if self.rule.endpoints.is_some() {
            for (number, entry) in added.iter().enumerate() {
                if number % OBJECTS_PER_BATCH == OBJECTS_PER_BATCH - 1 {
                    tokio::task::yield_now().await;
                }
                self.slices.insert(entry.key().clone(), self.slice(entry));
            }
            added.clear();
        }
        let (source, rule, grouping_of) = (self.source.clone(), self.rule.clone(), grouping.clone());
        let evaluation = Arc::new(Evaluation { source, rule, grouping: grouping_of, looked_up, at });
        for entries in added.chunks(OBJECTS_PER_BATCH) {
            let (batch, evaluation_of_batch) = (entries.to_vec(), evaluation.clone());
            let evaluated_entries = offload(move || {
                batch.iter().map(|entry| evaluation_of_batch.evaluate(entry, entry_fields)).collect::<Vec<_>>()
            })
            .await;
            let failed = |reason: &str| {
                let failed = entries.iter().map(|entry| (evaluation.object(entry), Err(reason.to_owned())));
                let failed = failed.map(|(object, entries)| ObjectEntries { object, entries });
                failed
                    .map(|object_entries| EvaluatedEntries { object_entries, recheck_at: None, reads: Vec::new() })
                    .collect()
            };
            let evaluated_entries = evaluated_entries.unwrap_or_else(|reason| failed(&reason));
            for (entry, EvaluatedEntries { object_entries, recheck_at, reads }) in entries.iter().zip(evaluated_entries)
            {
                self.instants.set(entry.key(), recheck_at);
                self.dependents.set(entry.key(), reads);
                self.object_entries.insert(entry.key().clone(), object_entries);
            }
        }
        // Only after all evaluations: a cancelled call repeats the whole pass.
        self.last_snapshot = Some(snapshot);
        if let Some(endpoints) = &self.rule.endpoints {
            let selection = self.selection();
            self.slices.resolve(endpoints, &selection, entry_fields, grouping);
        }
        true
    }

    /// Removes and returns the objects that must be evaluated although they have not changed.
    fn take_due_keys(&mut self, looked_up: Option<&LookupSnapshot>, at: Timestamp) -> BTreeSet<ObjectKey> {
        let mut due_keys = BTreeSet::new();
        while let Some((_, key)) = self.instants.take_due(at) {
            due_keys.insert(key);
        }
        if let (Some(before), Some(now)) = (&self.looked_up, looked_up) {
            due_keys.extend(self.dependents.affected_by(&now.differences(before)));
        }
        due_keys
    }

    /// Parses an `EndpointSlice` from the cache.
    fn slice(&self, entry: &CacheEntry<Lazy<DynamicObject>>) -> Result<EndpointSlice, String> {
        match entry.object().map(Object::decoded) {
            Some(Ok(object)) => EndpointSlice::read(&json_with_type(&object, &self.source.resource)),
            _ => Err("the object cannot be decoded".to_owned()),
        }
    }

    /// Returns the name of the cluster.
    pub(super) fn cluster(&self) -> &str {
        &self.source.cluster
    }

    /// Returns the rule, the cluster and the selection, as an object without namespace and name.
    pub(super) fn selection(&self) -> ObjectId {
        object_id(&self.source, &self.rule, "", "")
    }

    /// Returns the snapshot from which the entries were computed.
    pub(super) fn existence_snapshot(&self) -> Option<ExistenceSnapshot> {
        let snapshot = self.last_snapshot.clone()?;
        let live_objects = match self.rule.endpoints {
            Some(_) => Some(self.slices.live_objects()?),
            None => None,
        };
        Some(ExistenceSnapshot {
            cluster: self.source.cluster.clone(),
            selection: selection(&self.source),
            snapshot,
            live_objects,
        })
    }

    /// Returns the entries of each object, ordered by name.
    pub(super) fn object_entries(&self) -> impl Iterator<Item = &ObjectEntries> {
        self.object_entries.values().chain(self.slices.object_entries())
    }
}

/// Evaluation of an input's rule on another thread.
struct Evaluation {
    source: RuleSource,
    rule: Arc<CompiledRule>,
    grouping: Grouping,
    looked_up: Option<Arc<LookupSnapshot>>,
    at: Timestamp,
}

/// Entries of an object, and conditions for another evaluation.
struct EvaluatedEntries {
    object_entries: ObjectEntries,
    recheck_at: Option<Timestamp>,
    reads: Vec<LookupKey>,
}

impl Evaluation {
    fn object(&self, entry: &CacheEntry<Lazy<DynamicObject>>) -> ObjectId {
        let (namespace, name) = (entry.key().namespace().unwrap_or_default(), entry.key().name());
        object_id(&self.source, &self.rule, namespace, name)
    }

    fn evaluate(&self, entry: &CacheEntry<Lazy<DynamicObject>>, entry_fields: EntryFields) -> EvaluatedEntries {
        let object = self.object(entry);
        let Some(Ok(decoded)) = entry.object().map(Object::decoded) else {
            let reason = format!("{} {} cannot be decoded", self.source.resource_name(), entry.key());
            return EvaluatedEntries {
                object_entries: ObjectEntries { object, entries: Err(reason) },
                recheck_at: None,
                reads: Vec::new(),
            };
        };
        let subject = subject(&self.source, &self.source.resource_name(), &decoded);
        let full = json_with_type(&decoded, &self.source.resource);
        let looked_up = self.looked_up.as_ref().map(|lookups| lookups.without_looked_up());
        let (entries, recheck_at) = self.entries(&full, &subject, entry_fields, looked_up.as_ref());
        let claims = entries.and_then(|entries| claims(entries, &self.grouping, &subject, &full, &object));
        let reads = looked_up.map(|lookups| lookups.looked_up()).unwrap_or_default();
        EvaluatedEntries { object_entries: ObjectEntries { object, entries: claims }, recheck_at, reads }
    }

    /// Evaluates the rule for an object.
    fn entries(
        &self,
        object: &Value,
        subject: &EventSubject,
        entry_fields: EntryFields,
        looked_up: Option<&Arc<LookupSnapshot>>,
    ) -> (Result<Vec<Entry>, String>, Option<Timestamp>) {
        if has_ended(object) {
            return (Ok(Vec::new()), None);
        }
        let subject_text = subject.description();
        let state = ObjectState::new(object.clone());
        let change = Arc::new(ObjectChange {
            is_initial: true,
            new: Some(state.clone()),
            lookups: looked_up.cloned(),
            ..ObjectChange::new(String::new(), EventKind::Added, subject.clone(), self.at)
        });
        let rule = &self.rule.config.name;
        let (outcome, recheck_at) = self.rule.project_with_recheck(&change);
        let entries = match outcome {
            RuleOutcome::Fires(value) => {
                let parsed = entries(&value, entry_fields, state.masked(), &default_key(subject));
                parsed
                    .map_err(|reason| format!("the result of the rule {rule} for {subject_text} is invalid: {reason}"))
            }
            RuleOutcome::Failed { expression, reason } => {
                Err(format!("`{expression}` of the rule {rule} failed for {subject_text}: {reason}"))
            }
            RuleOutcome::OtherEventKind | RuleOutcome::Initial(_) | RuleOutcome::DoesNotHold => Ok(Vec::new()),
        };
        (entries, recheck_at)
    }
}

fn object_id(source: &RuleSource, rule: &CompiledRule, namespace: &str, name: &str) -> ObjectId {
    ObjectId {
        rule: rule.config.name.clone(),
        cluster: source.cluster.clone(),
        selection: selection(source),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Returns a stable name of a source's selection.
fn selection(source: &RuleSource) -> String {
    format!("{} {}", source.resource_name(), source.scope)
}

/// Returns the default key of an object's entry. Keys are unique, since names of clusters and namespaces contain no
/// dots.
fn default_key(EventSubject { cluster, namespace, name, .. }: &EventSubject) -> String {
    if namespace.is_empty() { format!("{cluster}..{name}") } else { format!("{cluster}.{namespace}.{name}") }
}

#[cfg(test)]
mod tests;
