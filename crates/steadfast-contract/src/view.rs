//! One scope's view of a history: a timeline for each name, cut into stays.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::history::{Change, History};
use crate::scope::{Filter, Leaving};
use crate::seen::{Key, Ref, StoreHeld, digest};

/// A state of a name, from the change that made it until the next one.
#[derive(Clone, Debug)]
pub(crate) struct State<'h> {
    /// The object's UID; empty before there was any.
    pub(crate) uid: &'h str,
    pub(crate) epoch: u32,
    pub(crate) version: u64,
    /// The version as the wire shows it.
    pub(crate) text: Cow<'h, str>,
    /// The object; none where there is none.
    pub(crate) object: Option<&'h Value>,
    pub(crate) at: Duration,
    /// Whether a restore brought it back, rather than a change.
    pub(crate) restored: bool,
    /// The stay that it belongs to; none while it is not in scope.
    pub(crate) stay: Option<usize>,
}

impl State<'_> {
    fn nothing() -> Self {
        let (version, at) = (0, Duration::ZERO);
        Self { uid: "", epoch: 0, version, text: "".into(), object: None, at, restored: false, stay: None }
    }

    pub(crate) fn is(&self, uid: &str, version: &str) -> bool {
        self.text == version && self.uid == uid
    }

    /// Whether this is the state delivered, its content too where that is known.
    pub(crate) fn shows(&self, told: &Ref) -> bool {
        let content = |told| self.object.is_some_and(|object| digest(object) == told);
        self.is(&told.uid, &told.version) && told.digest.is_none_or(content)
    }
}

impl<'h> From<&'h Change> for State<'h> {
    fn from(change: &'h Change) -> Self {
        let opaque = change.object.as_ref().and_then(|object| object.pointer("/metadata/resourceVersion")?.as_str());
        let number = |text: &str| text.parse::<u64>().is_ok_and(|number| number.to_string() == text);
        let opaque = opaque.filter(|text| !text.is_empty() && !number(text));
        Self {
            uid: &change.uid,
            epoch: change.epoch,
            version: change.version,
            text: opaque.map_or_else(|| change.version.to_string().into(), Cow::Borrowed),
            object: change.object.as_ref(),
            at: change.at,
            restored: false,
            stay: None,
        }
    }
}

/// The time from an object's entry into the scope to its exit; the numbers are those of states.
#[derive(Debug)]
pub(crate) struct Stay {
    pub(crate) first: usize,
    pub(crate) last: usize,
    /// The state that ended it, if it has ended.
    pub(crate) end: Option<usize>,
}

/// Where a recorded state is found on a timeline, seen from a place that was reached before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Here, not before the place reached.
    At(usize),
    /// Only here, before the place reached.
    Behind(usize),
    /// Here, where the object was not in scope.
    Outside(usize),
    /// Nowhere, or only later than the moment at which it was recorded.
    Never,
}

/// All that was under one name, in order; it begins with nothing.
#[derive(Debug)]
pub(crate) struct Timeline<'h> {
    pub(crate) states: Vec<State<'h>>,
    pub(crate) stays: Vec<Stay>,
}

impl<'h> Timeline<'h> {
    /// Cuts `states` into stays.
    fn new(mut states: Vec<State<'h>>, in_scope: impl Fn(&Value) -> bool) -> Self {
        let mut stays: Vec<Stay> = Vec::new();
        let mut open: Option<usize> = None;
        for index in 0..states.len() {
            let inside = states[index].object.is_some_and(&in_scope);
            let goes_on = open.filter(|_| inside && states[index].uid == states[index - 1].uid);
            if let (Some(stay), None) = (open, goes_on) {
                stays[stay].end = Some(index);
            }
            open = match (inside, goes_on) {
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
            states[index].stay = open;
        }
        Self { states, stays }
    }

    pub(crate) fn last(&self) -> &State<'h> {
        &self.states[self.states.len() - 1]
    }

    /// The stay that the state at `index` belongs to.
    pub(crate) fn stay_at(&self, index: usize) -> Option<&Stay> {
        self.states[index].stay.map(|stay| &self.stays[stay])
    }

    /// Where the state delivered, made until `latest`, is found, seen from `from`.
    ///
    /// Two epochs can give a version twice; then it is the one with the content delivered.
    pub(crate) fn find(&self, told: &Ref, from: usize, latest: Duration) -> Place {
        match self.search(from, latest, |state| state.shows(told), true) {
            Place::Never => self.search(from, latest, |state| state.is(&told.uid, &told.version), true),
            place => place,
        }
    }

    /// Where a store that gave this answer until `latest` is, seen from `from`; `None` if it was not asked.
    pub(crate) fn stands(&self, answer: &StoreHeld, from: usize, latest: Duration) -> Option<Place> {
        Some(match answer {
            StoreHeld::NotAsked => return None,
            StoreHeld::Absent => self.search(from, latest, |state| state.stay.is_none(), false),
            StoreHeld::Held { uid, version } => self.search(from, latest, |state| state.is(uid, version), true),
            StoreHeld::Unknown { version } => self.search(from, latest, |state| state.text == *version, true),
        })
    }

    /// The last state that a store must have reached that has followed `epoch` up to `version`.
    pub(crate) fn reached(&self, epoch: u32, version: u64) -> usize {
        self.states.partition_point(|state| (state.epoch, state.version) <= (epoch, version)).saturating_sub(1)
    }

    /// The last state made until `at`.
    pub(crate) fn reached_by(&self, at: Duration) -> usize {
        self.states.partition_point(|state| state.at <= at).saturating_sub(1)
    }

    fn search(&self, from: usize, latest: Duration, wanted: impl Fn(&State<'_>) -> bool, inside: bool) -> Place {
        let known = |state: &State<'_>| state.at <= latest && wanted(state);
        let fits = |state: &State<'_>| known(state) && (!inside || state.stay.is_some());
        let from = from.min(self.states.len());
        if let Some(ahead) = self.states[from..].iter().position(fits) {
            return Place::At(from + ahead);
        }
        if let Some(behind) = self.states[..from].iter().rposition(fits) {
            return Place::Behind(behind);
        }
        self.states.iter().rposition(known).map_or(Place::Never, Place::Outside)
    }
}

/// A change that the scope can see: an entry, a change within, or an exit.
#[derive(Debug)]
pub(crate) struct Visible {
    pub(crate) at: Duration,
    pub(crate) epoch: u32,
    pub(crate) version: u64,
    pub(crate) key: Key,
}

/// One scope's view of a history.
#[derive(Debug)]
pub(crate) struct View<'h> {
    pub(crate) lines: BTreeMap<Key, Timeline<'h>>,
    /// All changes that the scope can see, in the order in which they were made.
    pub(crate) visible: Vec<Visible>,
    pub(crate) leaving: Leaving,
    nothing: Timeline<'h>,
}

impl<'h> View<'h> {
    pub(crate) fn new(names: &Names<'h>, filter: &Filter) -> Self {
        let mut lines = BTreeMap::new();
        let mut visible = Vec::new();
        for (key, states) in &names.0 {
            let namespace = key.namespace.as_deref();
            if !filter.matches_namespace(namespace) {
                continue;
            }
            let line = Timeline::new(states.clone(), |object| filter.matches(namespace, &key.name, object));
            for (index, state) in line.states.iter().enumerate().skip(1).filter(|(_, state)| !state.restored) {
                if state.stay.is_some() || line.states[index - 1].stay.is_some() {
                    let State { at, epoch, version, .. } = *state;
                    visible.push(Visible { at, epoch, version, key: key.clone() });
                }
            }
            lines.insert(key.clone(), line);
        }
        visible.sort_by_key(|change| (change.epoch, change.version));
        Self { lines, visible, leaving: filter.leaving(), nothing: Timeline::new(vec![State::nothing()], |_| false) }
    }

    /// The timeline of `key`: nothing and never anything, where the history does not know it.
    pub(crate) fn line(&self, key: &Key) -> &Timeline<'h> {
        self.lines.get(key).unwrap_or(&self.nothing)
    }
}

/// The states of every name, whatever the scope.
#[derive(Debug)]
pub(crate) struct Names<'h>(BTreeMap<Key, Vec<State<'h>>>);

impl<'h> Names<'h> {
    pub(crate) fn new(history: &'h History) -> Self {
        let mut names = Self(BTreeMap::new());
        let mut restores = history.restores().iter().peekable();
        for change in history.changes() {
            while let Some(restore) = restores.next_if(|restore| restore.epoch <= change.epoch) {
                names.restore(restore.epoch, restore.to, restore.at);
            }
            names.0.entry(change.key()).or_insert_with(|| vec![State::nothing()]).push(change.into());
        }
        for restore in restores {
            names.restore(restore.epoch, restore.to, restore.at);
        }
        names
    }

    fn restore(&mut self, epoch: u32, to: u64, at: Duration) {
        for states in self.0.values_mut() {
            // What one epoch did not keep of another lies behind what it put there instead, so the last state in
            // bounds is the one that counted.
            let then = states.iter().rposition(|state| state.version <= to).unwrap_or(0);
            if then + 1 < states.len() {
                let then = states[then].clone();
                // A state that a restore takes away has no version of its own: it ends where the epoch begins.
                let version = if then.object.is_some() { then.version } else { to };
                states.push(State { epoch, version, at, restored: true, ..then });
            }
        }
    }
}
