//! What one rule sends to a mirror of one part of a cluster: of each object that the cache has, kept up with what changes in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::Value;
use steadfast::{Entry as Cached, Informer, Lazy, Lookup, Object, ObjectKey, Snapshot};
use steadfast_outside::{ObjectId, Origin};
use tokio::sync::watch;

use super::claim::Sent;
use super::entry::{Entry, entries, has_ended};
use super::grouping::Grouping;
use super::slices::{Living, SliceSet, claims};
use crate::change::{Change, State, Subject};
use crate::config::EventKind;
use crate::endpoints::Slice;
use crate::instants::Instants;
use crate::lookups::{Dependents, LookupCaches, Lookups, Read};
use crate::offload::offload;
use crate::rule::{Compiled, Verdict};
use crate::shape::Shape;
use crate::source::{Lookout, Source, doubt, subject, whole};

/// Number of objects that are evaluated before other rules have their turn.
const AT_ONCE: usize = 16;

/// A state of a cache, to tell whether an object of an entry still exists.
pub(super) struct Presence {
    cluster: String,
    selection: String,
    snapshot: Arc<Snapshot<Lazy<DynamicObject>>>,
    /// The endpoints of Services, if these are the objects of the entries.
    living: Option<Arc<Living>>,
}

impl Presence {
    /// Whether the object of `origin` exists and is not about to end; `None` for an object that this cache does not select.
    pub(super) fn of(&self, origin: &Origin) -> Option<bool> {
        let ObjectId { cluster, selection, namespace, name, .. } = &origin.object;
        if (cluster, selection) != (&self.cluster, &self.selection) {
            return None;
        }
        if let Some(living) = &self.living {
            return Some(living.contains(&(namespace.clone(), name.clone(), origin.uid.clone())));
        }
        let namespace = (!namespace.is_empty()).then_some(namespace.as_str());
        Some(match self.snapshot.get(namespace, name) {
            Lookup::Absent => false,
            // Whatever it is, it is there.
            Lookup::Unknown { .. } => true,
            Lookup::Found(object) => {
                let is_same = *object.identity().uid == *origin.uid;
                is_same
                    && object.decoded().is_ok_and(|object| {
                        let ends = object.metadata.deletion_timestamp.is_some();
                        let phase = object.data["status"]["phase"].as_str();
                        let is_pod = object.types.as_ref().is_none_or(|types| types.kind == "Pod");
                        !(ends || is_pod && matches!(phase, Some("Succeeded" | "Failed")))
                    })
            }
        })
    }
}

/// A rule that feeds a mirror, and what it looks at in one place.
pub struct View {
    source: Source,
    /// Number of the connection of its cluster.
    connection: u64,
    /// Wall clock.
    clock: fn() -> Timestamp,
    rule: Arc<Compiled>,
    informer: Informer<Lazy<DynamicObject>>,
    /// The state of the cache that `sent` is of.
    seen: Option<Arc<Snapshot<Lazy<DynamicObject>>>>,
    sent: BTreeMap<ObjectKey, Sent>,
    /// The `EndpointSlice`s, if the rule mirrors the endpoints of Services; `sent` is empty then.
    slices: SliceSet,
    /// What the rule looks up, if it does.
    caches: Option<Arc<LookupCaches>>,
    /// The state of these that `sent` is of.
    looked_up: Option<Arc<Lookups>>,
    dependents: Dependents<ObjectKey>,
    /// When objects have to be evaluated again.
    instants: Instants<ObjectKey>,
    /// Whether there was a moment without doubt: what an earlier life of the program has kept is no ground to put anything in.
    is_confirmed: bool,
}

impl View {
    /// Begins to look at `source`, for the rule that it names. Several that look at the same thing share one watch.
    ///
    /// # Errors
    ///
    /// Where there is no such informer, in its words.
    pub fn begin(lookout: &Lookout, source: Source, rule: Arc<Compiled>) -> Result<Self, String> {
        let informer = source.informer(lookout, None)?;
        let caches = LookupCaches::begin(lookout, &source.cluster, &source.lookups)?;
        let (connection, clock) = (lookout.connection, lookout.clock);
        let (sent, slices, seen, looked_up) = (BTreeMap::new(), SliceSet::default(), None, None);
        let (dependents, instants, is_confirmed) = (Dependents::default(), Instants::default(), false);
        Ok(Self {
            source,
            connection,
            clock,
            rule,
            informer,
            seen,
            sent,
            slices,
            caches,
            looked_up,
            dependents,
            instants,
            is_confirmed,
        })
    }

    /// Returns whether this is the view of `source` for `rule`, which may have been read again without a change.
    pub(super) fn is_of(&self, lookout: &Lookout, source: &Source, rule: &Compiled) -> bool {
        let is_same_place = self.connection == lookout.connection && self.source == *source;
        is_same_place && self.rule.number == rule.number && self.rule.config == rule.config
    }

    /// Receivers that are notified when a cache changes, or its freshness.
    pub(super) fn changed(&self) -> Vec<watch::Receiver<u64>> {
        let looked_up = self.caches.iter().flat_map(|caches| caches.changed());
        [self.informer.changed()].into_iter().chain(looked_up).collect()
    }

    /// From the first moment without doubt on there is something to go by.
    pub(super) fn confirm(&mut self) {
        self.is_confirmed = self.is_confirmed || self.doubt_now().is_none();
    }

    /// Why the cache may not be how things are, where it may not.
    pub(super) fn doubt(&self) -> Option<String> {
        let unconfirmed = || (!self.is_confirmed).then(|| "the server has not confirmed yet what was kept".to_owned());
        self.doubt_now().or_else(unconfirmed)
    }

    fn doubt_now(&self) -> Option<String> {
        let Source { cluster, .. } = &self.source;
        Some(format!("{} of {cluster}: {}", self.source.resource_name(), doubt(&self.informer)?))
    }

    /// Waits until there is no doubt, for so long at most.
    pub(super) async fn until_fresh(&self, patience: Duration) {
        let mut changed = self.informer.changed();
        let fresh = async {
            while self.doubt_now().is_some() && changed.changed().await.is_ok() {}
            if let Some(caches) = &self.caches {
                caches.until_certain().await;
            }
        };
        // What is in doubt then is told so.
        let _ = tokio::time::timeout(patience, fresh).await;
    }

    /// Evaluates the rule for the objects whose entries may differ from those of the last time: the objects that changed,
    /// those that looked up what changed, and those whose instant has come. Returns whether there were any.
    pub(super) async fn catch_up(&mut self, shape: Shape, grouping: &Grouping) -> bool {
        if !self.is_confirmed {
            return false;
        }
        let at = (self.clock)();
        let looked_up = self.caches.as_ref().map(LookupCaches::freeze);
        let now = self.informer.snapshot();
        let due = self.due(looked_up.as_deref(), at);
        self.looked_up.clone_from(&looked_up);
        if due.is_empty() && self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &now)) {
            return false;
        }
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        let mut differ = |old: Option<&Cached<Lazy<DynamicObject>>>, new: Option<&Cached<Lazy<DynamicObject>>>| {
            gone.extend(old.map(|old| old.key().clone()));
            come.extend(new.cloned());
        };
        match &self.seen {
            Some(seen) => seen.differences(&now, differ),
            None => now.iter().for_each(|entry| differ(None, Some(entry))),
        }
        for key in gone {
            self.sent.remove(&key);
            self.slices.remove(&key);
            self.dependents.remove(&key);
            self.instants.set(&key, None);
        }
        let known: BTreeSet<&ObjectKey> = come.iter().map(Cached::key).collect();
        let due = due.iter().filter(|key| !known.contains(key));
        let due: Vec<_> = due.filter_map(|key| now.entry(key.namespace(), key.name()).cloned()).collect();
        come.extend(due);
        if self.rule.endpoints.is_some() {
            for (number, entry) in come.iter().enumerate() {
                if number % AT_ONCE == AT_ONCE - 1 {
                    tokio::task::yield_now().await;
                }
                self.slices.insert(entry.key().clone(), self.slice(entry));
            }
            come.clear();
        }
        let (source, rule, grouping_of) = (self.source.clone(), self.rule.clone(), grouping.clone());
        let evaluation = Arc::new(Evaluation { source, rule, grouping: grouping_of, looked_up, at });
        for entries in come.chunks(AT_ONCE) {
            let (asked, evaluated) = (entries.to_vec(), evaluation.clone());
            let sent = offload(move || asked.iter().map(|entry| evaluated.ask(entry, shape)).collect::<Vec<_>>()).await;
            let failed = |why: &str| {
                let failed = entries.iter().map(|entry| (evaluation.object(entry), Err(why.to_owned())));
                let failed = failed.map(|(object, entries)| Sent { object, entries });
                failed.map(|sent| Asked { sent, recheck_at: None, reads: Vec::new() }).collect()
            };
            let sent = sent.unwrap_or_else(|why| failed(&why));
            for (entry, Asked { sent, recheck_at, reads }) in entries.iter().zip(sent) {
                self.instants.set(entry.key(), recheck_at);
                self.dependents.set(entry.key(), reads);
                self.sent.insert(entry.key().clone(), sent);
            }
        }
        self.seen = Some(now);
        if let Some(endpoints) = &self.rule.endpoints {
            self.slices.resolve(endpoints, &object_id(&self.source, &self.rule, "", ""), shape, grouping);
        }
        true
    }

    /// Takes out the objects that have to be evaluated although they did not change.
    fn due(&mut self, looked_up: Option<&Lookups>, at: Timestamp) -> BTreeSet<ObjectKey> {
        let mut due = BTreeSet::new();
        while let Some((_, key)) = self.instants.take_due(at) {
            due.insert(key);
        }
        if let (Some(before), Some(now)) = (&self.looked_up, looked_up) {
            due.extend(self.dependents.of(&now.differences(before)));
        }
        due
    }

    /// Reads an `EndpointSlice` from the cache.
    fn slice(&self, entry: &Cached<Lazy<DynamicObject>>) -> Result<Slice, String> {
        match entry.object().map(Object::decoded) {
            Some(Ok(object)) => Slice::read(&whole(&object, &self.source.resource)),
            _ => Err("it cannot be decoded".to_owned()),
        }
    }

    /// The cluster that it looks at.
    pub(super) fn cluster(&self) -> &str {
        &self.source.cluster
    }

    /// The state of the cache that the entries are of.
    pub(super) fn presence(&self) -> Option<Presence> {
        let snapshot = self.seen.clone()?;
        let living = match self.rule.endpoints {
            Some(_) => Some(self.slices.living()?),
            None => None,
        };
        Some(Presence { cluster: self.source.cluster.clone(), selection: selection(&self.source), snapshot, living })
    }

    /// What the rule sends of each object, in the order of their names.
    pub(super) fn sent(&self) -> impl Iterator<Item = &Sent> {
        self.sent.values().chain(self.slices.sent())
    }
}

/// The rule of a view, to be evaluated on another thread.
struct Evaluation {
    source: Source,
    rule: Arc<Compiled>,
    grouping: Grouping,
    looked_up: Option<Arc<Lookups>>,
    at: Timestamp,
}

/// What the rule sends of an object, and when that may change although the object does not.
struct Asked {
    sent: Sent,
    recheck_at: Option<Timestamp>,
    reads: Vec<Read>,
}

impl Evaluation {
    fn object(&self, entry: &Cached<Lazy<DynamicObject>>) -> ObjectId {
        let (namespace, name) = (entry.key().namespace().unwrap_or_default(), entry.key().name());
        object_id(&self.source, &self.rule, namespace, name)
    }

    fn ask(&self, entry: &Cached<Lazy<DynamicObject>>, shape: Shape) -> Asked {
        let object = self.object(entry);
        let Some(Ok(decoded)) = entry.object().map(Object::decoded) else {
            let why = format!("{} {} cannot be decoded", self.source.resource_name(), entry.key());
            return Asked { sent: Sent { object, entries: Err(why) }, recheck_at: None, reads: Vec::new() };
        };
        let subject = subject(&self.source, &self.source.resource_name(), &decoded);
        let whole = whole(&decoded, &self.source.resource);
        let looked_up = self.looked_up.as_ref().map(|lookups| lookups.afresh());
        let (entries, recheck_at) = self.entries(&whole, &subject, shape, looked_up.as_ref());
        let claims = entries.and_then(|entries| claims(entries, &self.grouping, &subject, &whole, &object));
        let reads = looked_up.map(|lookups| lookups.reads()).unwrap_or_default();
        Asked { sent: Sent { object, entries: claims }, recheck_at, reads }
    }

    /// Evaluates the rule for an object.
    fn entries(
        &self,
        object: &Value,
        subject: &Subject,
        shape: Shape,
        looked_up: Option<&Arc<Lookups>>,
    ) -> (Result<Vec<Entry>, String>, Option<Timestamp>) {
        if has_ended(object) {
            return (Ok(Vec::new()), None);
        }
        let told = subject.told();
        let state = State::new(object.clone());
        let change = Arc::new(Change {
            initial: true,
            new: Some(state.clone()),
            lookups: looked_up.cloned(),
            ..Change::new(String::new(), EventKind::Added, subject.clone(), self.at)
        });
        let rule = &self.rule.config.name;
        let (verdict, recheck_at) = self.rule.outlook(&change);
        let entries = match verdict {
            Verdict::Fires(value) => {
                let read = entries(&value, shape, state.shown(), &identity(subject));
                read.map_err(|why| format!("what the rule {rule} sends of {told}: {why}"))
            }
            Verdict::Failed { expression, why } => {
                Err(format!("`{expression}` of the rule {rule} failed for {told}: {why}"))
            }
            Verdict::OtherKind | Verdict::Initial(_) | Verdict::DoesNotHold => Ok(Vec::new()),
        };
        (entries, recheck_at)
    }
}

fn object_id(source: &Source, rule: &Compiled, namespace: &str, name: &str) -> ObjectId {
    ObjectId {
        rule: rule.config.name.clone(),
        cluster: source.cluster.clone(),
        selection: selection(source),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

/// Name of what a source selects, the same in every run.
fn selection(source: &Source) -> String {
    format!("{} {}", source.resource_name(), source.scope)
}

/// The key of an object's entry: no other object of any cluster has the same, since neither clusters nor namespaces have dots.
fn identity(Subject { cluster, namespace, name, .. }: &Subject) -> String {
    if namespace.is_empty() { format!("{cluster}..{name}") } else { format!("{cluster}.{namespace}.{name}") }
}

#[cfg(test)]
mod tests;
