//! What one rule sends to a mirror of one part of a cluster: of each object that the cache has, kept up with what changes in it.

use std::collections::BTreeMap;
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
use crate::offload::offload;
use crate::rule::{Compiled, Verdict};
use crate::shape::Shape;
use crate::source::{Lookout, Source, subject, whole};

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
    rule: Arc<Compiled>,
    informer: Informer<Lazy<DynamicObject>>,
    /// The state of the cache that `sent` is of.
    seen: Option<Arc<Snapshot<Lazy<DynamicObject>>>>,
    sent: BTreeMap<ObjectKey, Sent>,
    /// The `EndpointSlice`s, if the rule mirrors the endpoints of Services; `sent` is empty then.
    slices: SliceSet,
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
        let connection = lookout.connection;
        let (sent, slices) = (BTreeMap::new(), SliceSet::default());
        Ok(Self { source, connection, rule, informer, seen: None, sent, slices, is_confirmed: false })
    }

    /// Returns whether this is the view of `source` for `rule`, which may have been read again without a change.
    pub(super) fn is_of(&self, lookout: &Lookout, source: &Source, rule: &Compiled) -> bool {
        let is_same_place = self.connection == lookout.connection && self.source == *source;
        is_same_place && self.rule.number == rule.number && self.rule.config == rule.config
    }

    /// Tells of what changes in the cache, or in what it is worth.
    pub(super) fn changed(&self) -> watch::Receiver<u64> {
        self.informer.changed()
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
        let freshness = self.informer.freshness();
        let why = freshness.doubt().map(|doubt| doubt.why.clone());
        let why = why.or_else(|| (!self.informer.has_synced()).then(|| "it was not listed yet".into()))?;
        let Source { cluster, .. } = &self.source;
        Some(format!("{} of {cluster}: {}: {why}", self.source.resource_name(), freshness.name()))
    }

    /// Waits until there is no doubt, for so long at most.
    pub(super) async fn until_fresh(&self, patience: Duration) {
        let mut changed = self.changed();
        let fresh = async { while self.doubt_now().is_some() && changed.changed().await.is_ok() {} };
        // What is in doubt then is told so.
        let _ = tokio::time::timeout(patience, fresh).await;
    }

    /// Asks the rule about what has changed since the last time. Whether anything has is the answer.
    pub(super) async fn catch_up(&mut self, shape: Shape, grouping: &Grouping) -> bool {
        if !self.is_confirmed {
            return false;
        }
        let now = self.informer.snapshot();
        if self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, &now)) {
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
        }
        if self.rule.endpoints.is_some() {
            for (number, entry) in come.iter().enumerate() {
                if number % AT_ONCE == AT_ONCE - 1 {
                    tokio::task::yield_now().await;
                }
                self.slices.insert(entry.key().clone(), self.slice(entry));
            }
            come.clear();
        }
        let evaluation =
            Arc::new(Evaluation { source: self.source.clone(), rule: self.rule.clone(), grouping: grouping.clone() });
        for entries in come.chunks(AT_ONCE) {
            let (asked, evaluated) = (entries.to_vec(), evaluation.clone());
            let sent = offload(move || asked.iter().map(|entry| evaluated.ask(entry, shape)).collect::<Vec<_>>()).await;
            let failed = |why: &str| {
                let failed = entries.iter().map(|entry| (evaluation.object(entry), Err(why.to_owned())));
                failed.map(|(object, entries)| Sent { object, entries }).collect()
            };
            let sent = sent.unwrap_or_else(|why| failed(&why));
            self.sent.extend(entries.iter().map(|entry| entry.key().clone()).zip(sent));
        }
        self.seen = Some(now);
        if let Some(endpoints) = &self.rule.endpoints {
            self.slices.resolve(endpoints, &object_id(&self.source, &self.rule, "", ""), shape, grouping);
        }
        true
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
}

impl Evaluation {
    fn object(&self, entry: &Cached<Lazy<DynamicObject>>) -> ObjectId {
        let (namespace, name) = (entry.key().namespace().unwrap_or_default(), entry.key().name());
        object_id(&self.source, &self.rule, namespace, name)
    }

    fn ask(&self, entry: &Cached<Lazy<DynamicObject>>, shape: Shape) -> Sent {
        let object = self.object(entry);
        let Some(Ok(decoded)) = entry.object().map(Object::decoded) else {
            let why = format!("{} {} cannot be decoded", self.source.resource_name(), entry.key());
            return Sent { object, entries: Err(why) };
        };
        let subject = subject(&self.source, &self.source.resource_name(), &decoded);
        let whole = whole(&decoded, &self.source.resource);
        let entries = self.entries(&whole, &subject, shape);
        let claims = entries.and_then(|entries| claims(entries, &self.grouping, &subject, &whole, &object));
        Sent { object, entries: claims }
    }

    /// Evaluates the rule for an object.
    fn entries(&self, object: &Value, subject: &Subject, shape: Shape) -> Result<Vec<Entry>, String> {
        if has_ended(object) {
            return Ok(Vec::new());
        }
        let told = subject.told();
        let state = State::new(object.clone());
        let change = Arc::new(Change {
            id: String::new(),
            kind: EventKind::Added,
            initial: true,
            again: false,
            subject: subject.clone(),
            old: None,
            new: Some(state.clone()),
            certainty: None,
            reason: None,
            at: Timestamp::UNIX_EPOCH,
        });
        let rule = &self.rule.config.name;
        match self.rule.project(&change) {
            Verdict::Fires(value) => {
                let read = entries(&value, shape, state.shown(), &identity(subject));
                read.map_err(|why| format!("what the rule {rule} sends of {told}: {why}"))
            }
            Verdict::Failed { expression, why } => {
                Err(format!("`{expression}` of the rule {rule} failed for {told}: {why}"))
            }
            Verdict::OtherKind | Verdict::Initial(_) | Verdict::DoesNotHold => Ok(Vec::new()),
        }
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
