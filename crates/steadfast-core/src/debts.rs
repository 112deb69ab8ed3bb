//! What a handler is owed that acknowledges what it has done: for each object one event at a time, the same one until it is
//! acknowledged, and written down before it is told. The rules, without I/O.
//!
//! An object of which everything is acknowledged has nothing here. For any other there is one [`Debt`], however much has
//! happened to it: what was acknowledged, what is due, how the stay of that has ended if it has, and what is there now.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Certainty, Change, DeleteReason, Event};
use crate::key::ObjectKey;
use crate::object::Object;
use crate::version::ResourceVersion;

/// What is owed to one handler.
pub struct Debts<K> {
    of: BTreeMap<ObjectKey, Debt<Object<K>>>,
    /// The objects whose debts are not written down as they are.
    unwritten: BTreeSet<ObjectKey>,
    /// Those of them that are being written.
    going: BTreeSet<ObjectKey>,
    /// Whether the end of a stay is owed of which the handler was not told.
    owes_unseen_ends: bool,
}

/// What is owed of one name, in states of its objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debt<S> {
    /// What was acknowledged last; nothing where that was an end, or there was nothing.
    pub base: Option<S>,
    /// What is to be told until it is acknowledged.
    pub due: Option<Due<S>>,
    /// How the stay has ended of which the handler knows, or will when it has acknowledged what is due.
    pub ended: Option<End<S>>,
    /// What is there now.
    pub latest: Option<S>,
    /// Whether what is due was there when the handler's view began.
    pub initial: bool,
    /// Whether what is due is written down.
    is_written: bool,
}

/// An event that is to be told, beside what was acknowledged before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due<S> {
    /// This state: of an object that is new to the handler, or the next one.
    State(S),
    /// The end of what it knows.
    End(End<S>),
}

/// How a stay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End<S> {
    /// Its last state.
    pub last: S,
    /// The deletion's own version, where the server told it.
    pub version: Option<ResourceVersion>,
    /// How it is known.
    pub certainty: Certainty,
    /// What ended it.
    pub reason: DeleteReason,
}

/// Debts to be written down: of each name what is to be there, or nothing.
pub type Rows<K> = Vec<(ObjectKey, Option<Debt<Object<K>>>)>;

impl<S> End<S> {
    /// The same with other states; nothing where `state` has none.
    pub fn map<T>(self, state: &mut impl FnMut(S) -> Option<T>) -> Option<End<T>> {
        let Self { last, version, certainty, reason } = self;
        Some(End { last: state(last)?, version, certainty, reason })
    }
}

impl<K> Due<Object<K>> {
    /// The same in each life of the program, and of nothing else that the handler is told.
    pub fn id(&self) -> String {
        let (object, suffix) = match self {
            Self::State(object) => (object, ""),
            Self::End(End { last, .. }) => (last, "-gone"),
        };
        format!("{}@{}{suffix}", object.identity().uid.as_str(), object.version())
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::State(one), Self::State(other)) => one.is(other),
            (Self::End(one), Self::End(other)) => one.last.is(&other.last),
            _ => false,
        }
    }
}

impl<S> Debt<S> {
    /// The same with other states; nothing where `state` has none.
    pub fn map<T>(self, state: &mut impl FnMut(S) -> Option<T>) -> Option<Debt<T>> {
        let Self { base, due, ended, latest, initial, is_written } = self;
        let base = base.map_or(Some(None), |base| state(base).map(Some))?;
        let due = match due {
            Some(Due::State(due)) => Some(Due::State(state(due)?)),
            Some(Due::End(end)) => Some(Due::End(end.map(state)?)),
            None => None,
        };
        let ended = ended.map_or(Some(None), |ended| ended.map(state).map(Some))?;
        let latest = latest.map_or(Some(None), |latest| state(latest).map(Some))?;
        Some(Debt { base, due, ended, latest, initial, is_written })
    }
}

impl<K> Debt<Object<K>> {
    fn since(base: Option<&Object<K>>) -> Self {
        let base = base.cloned();
        Self { latest: base.clone(), base, ..Self::default() }
    }

    /// Whether the handler knows of a stay, or will when it has acknowledged what is due, of whose end it does not.
    fn is_in_stay(&self) -> bool {
        let begun = match &self.due {
            Some(Due::State(_)) => true,
            Some(Due::End(_)) => false,
            None => self.base.is_some(),
        };
        begun && self.ended.is_none()
    }

    fn is_end_due(&self) -> bool {
        matches!(self.due, Some(Due::End(_)))
    }

    /// Makes due what comes next, unless something is; whether anything is due then.
    fn fall_due(&mut self) -> bool {
        if self.due.is_some() {
            return true;
        }
        self.is_written = false;
        self.due = match (self.ended.take(), &self.latest) {
            (Some(ended), _) => Some(Due::End(ended)),
            (None, Some(latest)) if !self.base.as_ref().is_some_and(|base| base.is(latest)) => {
                Some(Due::State(latest.clone()))
            }
            _ => None,
        };
        self.due.is_some()
    }

    /// Returns the version of the first change that is not acknowledged, or a lower one.
    fn first_pending(&self) -> Option<&ResourceVersion> {
        match (&self.due, &self.ended, &self.latest) {
            (Some(Due::State(state)), ..) => Some(state.version()),
            (Some(Due::End(end)), ..) | (None, Some(end), _) => end.version.as_ref().or(Some(end.last.version())),
            (None, None, Some(latest)) if !self.base.as_ref().is_some_and(|base| base.is(latest)) => {
                Some(latest.version())
            }
            _ => None,
        }
    }

    /// What is due, as the handler sees it.
    pub fn event(&self) -> Option<Event<K>> {
        Some(match self.due.as_ref()? {
            Due::End(End { last, version, certainty, reason }) => {
                Event::Deleted { last: last.clone(), version: version.clone(), certainty: *certainty, reason: *reason }
            }
            Due::State(new) => match &self.base {
                Some(old) => Event::Updated { old: old.clone(), new: new.clone() },
                None => Event::Added { object: new.clone(), initial: self.initial },
            },
        })
    }
}

impl<K> Debts<K> {
    /// Sets whether the end of a stay is owed of which the handler was not told, because it began and ended in quick succession.
    pub fn owe_unseen_ends(&mut self, owes: bool) {
        self.owes_unseen_ends = owes;
    }

    /// How many objects there are of which something is owed.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Whether nothing is owed.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Whether nothing is owed, and that is written down.
    pub fn is_settled(&self) -> bool {
        self.is_empty() && self.unwritten.is_empty() && self.going.is_empty()
    }

    /// What is owed of one name.
    pub fn get(&self, key: &ObjectKey) -> Option<&Debt<Object<K>>> {
        self.of.get(key)
    }

    /// What may be told now: what is due, and written down.
    pub fn told(&self, key: &ObjectKey) -> Option<&Debt<Object<K>>> {
        self.of.get(key).filter(|debt| debt.due.is_some() && debt.is_written)
    }

    /// Returns the lowest version of a change that is not acknowledged. A deletion whose own version is unknown counts as the
    /// last version of its object, which is lower. Versions that are in no order come first.
    pub fn first_pending(&self) -> Option<&ResourceVersion> {
        let pending = self.of.values().filter_map(Debt::first_pending);
        pending.min_by(|one, other| one.order(other).unwrap_or(std::cmp::Ordering::Less))
    }

    /// The names of which something may be told.
    pub fn to_tell(&self) -> impl Iterator<Item = &ObjectKey> {
        self.of.iter().filter(|(_, debt)| debt.due.is_some() && debt.is_written).map(|(key, _)| key)
    }

    /// Takes in what an earlier life of the program has written.
    pub fn restore(&mut self, key: ObjectKey, debt: Debt<Object<K>>) {
        let is_written = debt.due.is_some();
        if !is_written {
            self.unwritten.insert(key.clone());
        }
        self.of.insert(key, Debt { is_written, ..debt });
    }

    /// Copies all pending deliveries of another handler, to be written before they are delivered.
    pub fn copy_from(&mut self, other: &Self) {
        for (key, debt) in &other.of {
            self.of.insert(key.clone(), Debt { is_written: false, ..debt.clone() });
            self.unwritten.insert(key.clone());
        }
    }

    /// Takes in a change.
    pub fn record(&mut self, change: &Change<K>) {
        let key = change.key();
        let base = match &change.event {
            Event::Added { .. } => None,
            Event::Updated { old: base, .. } | Event::Deleted { last: base, .. } => Some(base),
            Event::Resynced { .. } => return,
        };
        let debt = self.of.entry(key.clone()).or_insert_with(|| Debt::since(base));
        match &change.event {
            Event::Added { object, initial } => {
                debt.latest = Some(object.clone());
                if debt.base.is_none() && debt.due.is_none() {
                    debt.initial = *initial;
                }
            }
            Event::Updated { new, .. } => debt.latest = Some(new.clone()),
            Event::Deleted { last, version, certainty, reason } => {
                debt.latest = None;
                // A stay of which the handler has not been told is over before it could be; another replica may have been told.
                let is_unseen = self.owes_unseen_ends && debt.ended.is_none() && !debt.is_end_due();
                if debt.is_in_stay() || is_unseen {
                    let end =
                        End { last: last.clone(), version: version.clone(), certainty: *certainty, reason: *reason };
                    debt.ended = Some(end);
                }
            }
            Event::Resynced { .. } => {}
        }
        self.unwritten.insert(key.clone());
    }

    /// Makes due what is not yet, and says what is to be written: all that is not, or where `anew` all there is.
    /// [`settle`](Self::settle) is to follow.
    pub fn cut(&mut self, anew: bool) -> Rows<K> {
        self.going.append(&mut self.unwritten);
        if anew {
            self.going.extend(self.of.keys().cloned());
        }
        for key in &self.going {
            if self.of.get_mut(key).is_some_and(|debt| !debt.fall_due()) {
                self.of.remove(key);
            }
        }
        self.going.iter().map(|key| (key.clone(), self.of.get(key).cloned())).collect()
    }

    /// What was [cut](Self::cut) is written, or may be not; returns what may be told by that.
    pub fn settle(&mut self, written: bool) -> Vec<ObjectKey> {
        let going = std::mem::take(&mut self.going);
        if !written {
            self.unwritten.extend(going);
            return Vec::new();
        }
        let mut told = Vec::new();
        for key in going {
            if let Some(debt) = self.of.get_mut(&key)
                && debt.due.is_some()
                && !std::mem::replace(&mut debt.is_written, true)
            {
                told.push(key);
            }
        }
        told
    }

    /// Has told what is due though it cannot be written; returns what may be told by that.
    pub fn waive(&mut self) -> Vec<ObjectKey> {
        let mut told = Vec::new();
        for key in &self.unwritten {
            let Some(debt) = self.of.get_mut(key) else { continue };
            if !debt.fall_due() {
                self.of.remove(key);
            } else if !std::mem::replace(&mut debt.is_written, true) {
                told.push(key.clone());
            }
        }
        told
    }

    /// The handler has done what was due; returns whether it was that which is due now.
    pub fn acknowledge(&mut self, key: &ObjectKey, done: &Due<Object<K>>) -> bool {
        let Some(debt) = self.of.get_mut(key) else { return false };
        let Some(due) = debt.due.take_if(|due| due.is(done)) else { return false };
        debt.initial = false;
        debt.is_written = false;
        debt.base = match due {
            Due::State(object) => Some(object),
            Due::End(_) => None,
        };
        let is_known = match (&debt.base, &debt.latest) {
            (Some(base), Some(latest)) => base.is(latest),
            (None, None) => true,
            _ => false,
        };
        if is_known && debt.ended.is_none() {
            self.of.remove(key);
        }
        self.unwritten.insert(key.clone());
        true
    }

    /// The names of which something may be written.
    pub fn into_names(self) -> BTreeSet<ObjectKey> {
        let Self { of, unwritten, going, owes_unseen_ends: _ } = self;
        of.into_keys().chain(unwritten).chain(going).collect()
    }

    /// Forgets all debts; what is written of them is to go.
    pub fn forget(&mut self) {
        self.unwritten.extend(std::mem::take(&mut self.of).into_keys());
    }
}

// By hand: a derive would ask for objects with a default.
impl<K> Default for Debts<K> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), unwritten: BTreeSet::new(), going: BTreeSet::new(), owes_unseen_ends: false }
    }
}

// By hand: a derive would ask for states with a default.
impl<S> Default for Debt<S> {
    fn default() -> Self {
        Self { base: None, due: None, ended: None, latest: None, initial: false, is_written: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Identity;
    use std::sync::Arc;

    fn object(version: &str) -> Object<()> {
        let key = ObjectKey::namespaced("default", "a");
        Object::new(Identity { key, uid: "u".into(), version: version.into() }, Arc::new(()))
    }

    fn created_and_deleted(owes_unseen_ends: bool) -> Debts<()> {
        let mut debts = Debts::default();
        debts.owe_unseen_ends(owes_unseen_ends);
        let added = Event::Added { object: object("5"), initial: false };
        let (last, version) = (object("5"), Some(ResourceVersion::new("6")));
        let (certainty, reason) = (Certainty::Observed, DeleteReason::Deleted);
        for event in [added, Event::Deleted { last, version, certainty, reason }] {
            debts.record(&Change::of_list(event));
        }
        debts
    }

    #[test]
    fn unseen_stay_has_its_end_owed_to_replicas_only() {
        let mut debts = created_and_deleted(true);
        assert_eq!(debts.first_pending(), Some(&ResourceVersion::new("6")));
        debts.cut(false);
        debts.settle(true);
        let due = debts.get(&ObjectKey::namespaced("default", "a")).and_then(|debt| debt.due.clone()).expect("an end");
        assert_eq!(due.id(), "u@5-gone");
        assert!(debts.acknowledge(&ObjectKey::namespaced("default", "a"), &due));
        assert_eq!(debts.first_pending(), None);
        let mut debts = created_and_deleted(false);
        debts.cut(false);
        assert_eq!((debts.len(), debts.first_pending()), (0, None));
    }
}
