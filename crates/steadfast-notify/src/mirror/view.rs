//! What one rule sends to a mirror of one part of a cluster: of each object that the cache has, kept up with what changes in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use steadfast::{Entry as Cached, Informer, Lazy, Object, ObjectKey, Snapshot};
use tokio::sync::watch;

use super::entry::{Entry, entries};
use crate::change::{Change, State};
use crate::config::EventKind;
use crate::rule::{Compiled, Verdict};
use crate::shape::Shape;
use crate::source::{Lookout, Source, subject, whole};

/// After so many objects others have their turn.
const AT_ONCE: usize = 256;

/// What a rule sends of an object, or why nobody knows.
pub(super) type Sent = Result<Vec<Entry>, String>;

/// A rule that feeds a mirror, and what it looks at in one place.
pub struct View {
    source: Source,
    rule: Arc<Compiled>,
    informer: Informer<Lazy<DynamicObject>>,
    /// The state of the cache that `sent` is of.
    seen: Option<Arc<Snapshot<Lazy<DynamicObject>>>>,
    sent: BTreeMap<ObjectKey, Sent>,
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
        Ok(Self { source, rule, informer, seen: None, sent: BTreeMap::new(), is_confirmed: false })
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
    pub(super) async fn catch_up(&mut self, shape: Shape) -> bool {
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
        }
        for (number, entry) in come.iter().enumerate() {
            if number % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let sent = self.ask(entry, shape);
            self.sent.insert(entry.key().clone(), sent);
        }
        self.seen = Some(now);
        true
    }

    /// What the rule sends of each object, in the order of their names.
    pub(super) fn sent(&self) -> impl Iterator<Item = &Sent> {
        self.sent.values()
    }

    fn ask(&self, entry: &Cached<Lazy<DynamicObject>>, shape: Shape) -> Sent {
        let Some(Ok(object)) = entry.object().map(Object::decoded) else {
            return Err(format!("{} {} cannot be decoded", self.source.resource_name(), entry.key()));
        };
        let subject = subject(&self.source, &self.source.resource_name(), &object);
        let told = subject.told();
        let state = State::new(whole(&object, &self.source.resource));
        let change = Arc::new(Change {
            id: String::new(),
            kind: EventKind::Added,
            initial: true,
            again: false,
            subject,
            old: None,
            new: Some(state.clone()),
            certainty: None,
            reason: None,
            at: Timestamp::UNIX_EPOCH,
        });
        let rule = &self.rule.config.name;
        match self.rule.project(&change) {
            Verdict::Fires(value) => {
                let read = entries(&value, shape, state.shown());
                read.map_err(|why| format!("what the rule {rule} sends of {told}: {why}"))
            }
            Verdict::Failed { expression, why } => {
                Err(format!("`{expression}` of the rule {rule} failed for {told}: {why}"))
            }
            Verdict::OtherKind | Verdict::Initial(_) | Verdict::DoesNotHold => Ok(Vec::new()),
        }
    }
}
