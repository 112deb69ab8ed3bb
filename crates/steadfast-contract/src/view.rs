//! One scope's view of a history: a timeline for each name. A timeline consists of stays, the times in scope.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::history::{Change, History};
use crate::objects::{Key, ObjectVersionRef, StoreContent, digest};
use crate::scope::{ExitRule, Filter};

/// A state of a name, from its change until the next one.
#[derive(Clone, Debug)]
pub(crate) struct State<'h> {
    /// UID of the object; empty before the first object.
    pub(crate) uid: &'h str,
    pub(crate) epoch: u32,
    pub(crate) version: u64,
    /// Version, in the form of the wire.
    pub(crate) wire_version: Cow<'h, str>,
    /// The object, if one exists.
    pub(crate) object: Option<&'h Value>,
    pub(crate) at: Duration,
    /// True if a restore created the state, rather than a change.
    pub(crate) is_restored: bool,
    /// Stay of the state; `None` while the object is not in scope.
    pub(crate) stay: Option<usize>,
}

impl State<'_> {
    fn empty() -> Self {
        let (version, at) = (0, Duration::ZERO);
        Self { uid: "", epoch: 0, version, wire_version: "".into(), object: None, at, is_restored: false, stay: None }
    }

    pub(crate) fn has_identity(&self, uid: &str, version: &str) -> bool {
        self.wire_version == version && self.uid == uid
    }

    /// Returns whether this is the delivered state. Compares the content too, if known.
    pub(crate) fn matches(&self, delivered: &ObjectVersionRef) -> bool {
        let content = |delivered| self.object.is_some_and(|object| digest(object) == delivered);
        self.has_identity(&delivered.uid, &delivered.version) && delivered.digest.is_none_or(content)
    }
}

impl<'h> From<&'h Change> for State<'h> {
    fn from(change: &'h Change) -> Self {
        let opaque = change.object.as_ref().and_then(|object| object.pointer("/metadata/resourceVersion")?.as_str());
        // Only canonical numbers count: `007` is an opaque version.
        let number = |text: &str| text.parse::<u64>().is_ok_and(|number| number.to_string() == text);
        let opaque = opaque.filter(|text| !text.is_empty() && !number(text));
        Self {
            uid: &change.uid,
            epoch: change.epoch,
            version: change.version,
            wire_version: opaque.map_or_else(|| change.version.to_string().into(), Cow::Borrowed),
            object: change.object.as_ref(),
            at: change.at,
            is_restored: false,
            stay: None,
        }
    }
}

/// Time from an object's entry into the scope to its exit, as indexes of states.
#[derive(Debug)]
pub(crate) struct Stay {
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// The state that ended the stay, if it has ended.
    pub(crate) end: Option<usize>,
}

/// Position of a recorded state on a timeline, relative to the index that the checker has already reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimelinePosition {
    /// At this index, which is the reached one or a later one.
    At(usize),
    /// Only at this index, which is before the reached one.
    Before(usize),
    /// At this index, outside of the scope.
    OutOfScope(usize),
    /// Not in the history, or only later than the time of the record.
    Missing,
}

/// All states of one name, in order. The first state is empty.
#[derive(Debug)]
pub(crate) struct Timeline<'h> {
    pub(crate) states: Vec<State<'h>>,
    pub(crate) stays: Vec<Stay>,
}

impl<'h> Timeline<'h> {
    /// Splits `states` into stays.
    fn new(mut states: Vec<State<'h>>, in_scope: impl Fn(&Value) -> bool) -> Self {
        let mut stays: Vec<Stay> = Vec::new();
        let mut current_stay: Option<usize> = None;
        for index in 0..states.len() {
            let is_inside = states[index].object.is_some_and(&in_scope);
            // A stay continues while the same UID is in scope. `current_stay` is only set after index 0, so `index - 1`
            // exists.
            let continued_stay = current_stay.filter(|_| is_inside && states[index].uid == states[index - 1].uid);
            if let (Some(stay), None) = (current_stay, continued_stay) {
                stays[stay].end = Some(index);
            }
            current_stay = match (is_inside, continued_stay) {
                (false, _) => None,
                (true, Some(stay)) => {
                    stays[stay].last = index;
                    Some(stay)
                }
                (true, None) => {
                    stays.push(Stay { first: index, last: index, end: None });
                    Some(stays.len() - 1)
                }
            };
            states[index].stay = current_stay;
        }
        Self { states, stays }
    }

    pub(crate) fn last(&self) -> &State<'h> {
        &self.states[self.states.len() - 1]
    }

    /// Returns the stay of the state at `index`.
    pub(crate) fn stay_at(&self, index: usize) -> Option<&Stay> {
        self.states[index].stay.map(|stay| &self.stays[stay])
    }

    /// Returns the position of a delivered state relative to the index `from`. The state must not be newer than
    /// `latest`.
    ///
    /// Two epochs can contain the same version. The state with the delivered content then takes precedence.
    pub(crate) fn find(&self, delivered: &ObjectVersionRef, from: usize, latest: Duration) -> TimelinePosition {
        match self.search(from, latest, |state| state.matches(delivered), true) {
            TimelinePosition::Missing => {
                self.search(from, latest, |state| state.has_identity(&delivered.uid, &delivered.version), true)
            }
            position => position,
        }
    }

    /// Returns the position of a cache's content relative to the index `from`. The content must not be newer than
    /// `latest`. `None` if the content was not read.
    pub(crate) fn find_content(
        &self,
        content: &StoreContent,
        from: usize,
        latest: Duration,
    ) -> Option<TimelinePosition> {
        Some(match content {
            StoreContent::NotRead => return None,
            StoreContent::Absent => self.search(from, latest, |state| state.stay.is_none(), false),
            StoreContent::Present { uid, version } => {
                self.search(from, latest, |state| state.has_identity(uid, version), true)
            }
            StoreContent::Undecodable { version } => {
                self.search(from, latest, |state| state.wire_version == *version, true)
            }
        })
    }

    /// Returns the index of the oldest state that a cache can contain after it has followed `epoch` up to `version`.
    pub(crate) fn index_at_version(&self, epoch: u32, version: u64) -> usize {
        // State 0 is the empty one, so that the subtraction is safe for versions before the first change.
        self.states.partition_point(|state| (state.epoch, state.version) <= (epoch, version)).saturating_sub(1)
    }

    /// Returns the index of the last state that is not newer than `at`.
    pub(crate) fn index_at_time(&self, at: Duration) -> usize {
        self.states.partition_point(|state| state.at <= at).saturating_sub(1)
    }

    fn search(
        &self,
        from: usize,
        latest: Duration,
        predicate: impl Fn(&State<'_>) -> bool,
        must_be_in_scope: bool,
    ) -> TimelinePosition {
        let is_match = |state: &State<'_>| state.at <= latest && predicate(state);
        let is_valid = |state: &State<'_>| is_match(state) && (!must_be_in_scope || state.stay.is_some());
        let from = from.min(self.states.len());
        // Prefer the nearest state ahead: a restore can repeat a version, and the earliest candidate restricts later
        // events least.
        if let Some(ahead) = self.states[from..].iter().position(is_valid) {
            return TimelinePosition::At(from + ahead);
        }
        if let Some(behind) = self.states[..from].iter().rposition(is_valid) {
            return TimelinePosition::Before(behind);
        }
        // The state exists, but outside of the scope. The last occurrence describes the violation best.
        self.states.iter().rposition(is_match).map_or(TimelinePosition::Missing, TimelinePosition::OutOfScope)
    }
}

/// A change that is visible in the scope: an entry, a change within the scope, or an exit.
#[derive(Debug)]
pub(crate) struct VisibleChange {
    pub(crate) at: Duration,
    pub(crate) epoch: u32,
    pub(crate) version: u64,
    pub(crate) key: Key,
}

/// One scope's view of a history.
#[derive(Debug)]
pub(crate) struct View<'h> {
    pub(crate) timelines: BTreeMap<Key, Timeline<'h>>,
    /// All changes visible in the scope, in order.
    pub(crate) visible_changes: Vec<VisibleChange>,
    pub(crate) exit_rule: ExitRule,
    empty_timeline: Timeline<'h>,
}

impl<'h> View<'h> {
    pub(crate) fn new(names: &StatesByName<'h>, filter: &Filter) -> Self {
        let mut timelines = BTreeMap::new();
        let mut visible_changes = Vec::new();
        for (key, states) in &names.0 {
            let namespace = key.namespace.as_deref();
            if !filter.matches_namespace(namespace) {
                continue;
            }
            let timeline = Timeline::new(states.clone(), |object| filter.matches(namespace, &key.name, object));
            for (index, state) in timeline.states.iter().enumerate().skip(1).filter(|(_, state)| !state.is_restored) {
                // An exit is visible as a deletion event, although the state itself is out of scope.
                if state.stay.is_some() || timeline.states[index - 1].stay.is_some() {
                    let State { at, epoch, version, .. } = *state;
                    visible_changes.push(VisibleChange { at, epoch, version, key: key.clone() });
                }
            }
            timelines.insert(key.clone(), timeline);
        }
        visible_changes.sort_by_key(|change| (change.epoch, change.version));
        Self {
            timelines,
            visible_changes,
            exit_rule: filter.exit_rule(),
            empty_timeline: Timeline::new(vec![State::empty()], |_| false),
        }
    }

    /// Returns the timeline of `key`; an empty one if the history does not contain the key.
    pub(crate) fn timeline(&self, key: &Key) -> &Timeline<'h> {
        self.timelines.get(key).unwrap_or(&self.empty_timeline)
    }
}

/// States of all names, independent of the scope.
#[derive(Debug)]
pub(crate) struct StatesByName<'h>(BTreeMap<Key, Vec<State<'h>>>);

impl<'h> StatesByName<'h> {
    pub(crate) fn new(history: &'h History) -> Self {
        let mut names = Self(BTreeMap::new());
        let mut restores = history.restores().iter().peekable();
        for change in history.changes() {
            // Restores apply before the first change of their epoch.
            while let Some(restore) = restores.next_if(|restore| restore.epoch <= change.epoch) {
                names.restore(restore.epoch, restore.to, restore.at);
            }
            names.0.entry(change.key()).or_insert_with(|| vec![State::empty()]).push(change.into());
        }
        for restore in restores {
            names.restore(restore.epoch, restore.to, restore.at);
        }
        names
    }

    fn restore(&mut self, epoch: u32, to: u64, at: Duration) {
        for states in self.0.values_mut() {
            // States of an earlier epoch that a restore discarded are before the restored state in the list. The last
            // state up to `to` is therefore the restored one.
            let index = states.iter().rposition(|state| state.version <= to).unwrap_or(0);
            if index + 1 < states.len() {
                let restored = states[index].clone();
                // If the object did not exist at `to`, the restored state has no version of its own. The state then has
                // the version `to`, at which the epoch starts.
                let version = if restored.object.is_some() { restored.version } else { to };
                states.push(State { epoch, version, at, is_restored: true, ..restored });
            }
        }
    }
}
