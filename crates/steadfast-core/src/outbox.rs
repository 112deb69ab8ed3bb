//! Pending deliveries of a handler with acknowledgements. Each object has at most one due event. The event is recorded
//! before its delivery and repeated until its acknowledgement. This module decides about deliveries. It performs no
//! I/O.
//!
//! An object without unacknowledged changes has no entry. Every other object has one [`PendingDelivery`], independent
//! of the number of its changes. This delivery contains the last acknowledged state, the due event, the end of the
//! stay, and the current state.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Certainty, Change, DeleteReason, Event};
use crate::key::ObjectKey;
use crate::object::Object;
use crate::version::ResourceVersion;

/// Pending deliveries of one handler.
pub struct Outbox<K> {
    pending_by_key: BTreeMap<ObjectKey, PendingDelivery<Object<K>>>,
    /// Keys whose current entries are not recorded.
    unrecorded: BTreeSet<ObjectKey>,
    /// Keys that are being recorded.
    writing: BTreeSet<ObjectKey>,
    /// Set if the handler also receives the ends of stays whose start it did not see.
    delivers_unseen_ends: bool,
}

/// Pending delivery of one key. `S` is the form of the object's states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingDelivery<S> {
    /// Last acknowledged state; `None` after an acknowledged end, or without any earlier event.
    pub base: Option<S>,
    /// Event to deliver until its acknowledgement.
    pub due: Option<DueEvent<S>>,
    /// End of the stay that the handler knows, or will know after the acknowledgement of the due event.
    pub ended: Option<StayEnd<S>>,
    /// Current state.
    pub latest: Option<S>,
    /// Set if the due state existed when the handler's view started.
    pub initial: bool,
    /// Set if the due event is recorded, or may be delivered without a record.
    is_written: bool,
    /// Version of the first change that is not acknowledged, or a lower one. `None` if unknown: a record of format 2
    /// does not contain it.
    pub first_change: Option<ResourceVersion>,
    /// Version of the first change after the due event, or a lower one.
    first_after_due: Option<ResourceVersion>,
    /// Version of the first change after `ended`, or a lower one.
    first_after_end: Option<ResourceVersion>,
}

/// Event to deliver, relative to the acknowledged state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DueEvent<S> {
    /// Next state of an object, or its first state for this handler.
    State(S),
    /// End of the stay that the handler knows.
    End(StayEnd<S>),
}

/// End of a stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StayEnd<S> {
    /// Last state of the object.
    pub last: S,
    /// Version of the deletion, if the server reported it.
    pub version: Option<ResourceVersion>,
    /// Source of the deletion.
    pub certainty: Certainty,
    /// Cause of the end.
    pub reason: DeleteReason,
}

/// Pending deliveries to record: the entry of each key, or `None` to remove it.
pub type Rows<K> = Vec<(ObjectKey, Option<PendingDelivery<Object<K>>>)>;

/// Returns a lower bound of all versions after `version`: the next number, or `version` itself if it is opaque.
fn lowest_after(version: &ResourceVersion) -> ResourceVersion {
    let number = version.is_ordered().then(|| version.as_str().parse::<u128>().ok()).flatten();
    let next = number.and_then(|number| number.checked_add(1));
    next.map_or_else(|| version.clone(), |next| ResourceVersion::new(&next.to_string()))
}

/// Returns the lowest version. Of two versions that cannot be ordered, the first one counts as the lower one.
fn lowest<'a>(versions: impl Iterator<Item = &'a ResourceVersion>) -> Option<&'a ResourceVersion> {
    versions.min_by(|one, other| one.order(other).unwrap_or(Ordering::Less))
}

impl<S> StayEnd<S> {
    /// Converts the states; `None` if `state` returns `None` for one of them.
    pub fn map<T>(self, state: &mut impl FnMut(S) -> Option<T>) -> Option<StayEnd<T>> {
        let Self { last, version, certainty, reason } = self;
        Some(StayEnd { last: state(last)?, version, certainty, reason })
    }
}

impl<K> StayEnd<Object<K>> {
    /// Returns the version of the deletion, or a lower one.
    fn version(&self) -> &ResourceVersion {
        self.version.as_ref().unwrap_or(self.last.version())
    }
}

impl<K> DueEvent<Object<K>> {
    /// Returns an identifier of the event that is stable across runs and unique among the handler's events.
    pub fn id(&self) -> String {
        let (object, suffix) = match self {
            Self::State(object) => (object, ""),
            Self::End(StayEnd { last, .. }) => (last, "-gone"),
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

impl<S> PendingDelivery<S> {
    /// Converts the states; `None` if `state` returns `None` for one of them.
    pub fn map<T>(self, state: &mut impl FnMut(S) -> Option<T>) -> Option<PendingDelivery<T>> {
        let Self { base, due, ended, latest, initial, is_written, first_change, first_after_due, first_after_end } =
            self;
        let base = base.map_or(Some(None), |base| state(base).map(Some))?;
        let due = match due {
            Some(DueEvent::State(due)) => Some(DueEvent::State(state(due)?)),
            Some(DueEvent::End(end)) => Some(DueEvent::End(end.map(state)?)),
            None => None,
        };
        let ended = ended.map_or(Some(None), |ended| ended.map(state).map(Some))?;
        let latest = latest.map_or(Some(None), |latest| state(latest).map(Some))?;
        Some(PendingDelivery {
            base,
            due,
            ended,
            latest,
            initial,
            is_written,
            first_change,
            first_after_due,
            first_after_end,
        })
    }
}

impl<K> PendingDelivery<Object<K>> {
    fn since(base: Option<&Object<K>>) -> Self {
        let base = base.cloned();
        Self { latest: base.clone(), base, ..Self::default() }
    }

    /// Returns whether the handler knows a stay, or will know it after the acknowledgement of the due event, and does
    /// not know its end.
    fn is_in_stay(&self) -> bool {
        let has_started = match &self.due {
            Some(DueEvent::State(_)) => true,
            Some(DueEvent::End(_)) => false,
            None => self.base.is_some(),
        };
        has_started && self.ended.is_none()
    }

    fn is_end_due(&self) -> bool {
        matches!(self.due, Some(DueEvent::End(_)))
    }

    /// Selects the next due event, unless an event is already due. Returns whether an event is due afterwards.
    fn select_due(&mut self) -> bool {
        if self.due.is_some() {
            return true;
        }
        self.is_written = false;
        if self.ended.is_some() {
            self.first_after_due = self.first_after_end.take();
        }
        // The end of a stay precedes the next stay with the same name.
        self.due = match (self.ended.take(), &self.latest) {
            (Some(ended), _) => Some(DueEvent::End(ended)),
            (None, Some(latest)) if !self.base.as_ref().is_some_and(|base| base.is(latest)) => {
                Some(DueEvent::State(latest.clone()))
            }
            _ => None,
        };
        self.due.is_some()
    }

    /// Remembers the version of a change. Must be called before the change is applied.
    fn note_change(&mut self, version: &ResourceVersion) {
        let first = match (&self.due, &self.ended) {
            (_, Some(_)) => &mut self.first_after_end,
            (Some(_), None) => &mut self.first_after_due,
            (None, None) => &mut self.first_change,
        };
        // A later version can be lower after a restore of the server from a backup.
        if first.as_ref().is_none_or(|first| version.is_older_than(first)) {
            *first = Some(version.clone());
        }
    }

    /// Sets lower bounds for the versions of changes that an earlier run has merged. Records contain at most the first
    /// of these versions.
    fn restore_first_changes(&mut self) {
        if self.first_change.is_none() {
            self.first_change = self.base.as_ref().map(|base| lowest_after(base.version()));
        }
        let (due_version, is_known) = match &self.due {
            Some(DueEvent::State(state)) => {
                (Some(state.version()), self.latest.as_ref().is_some_and(|latest| latest.is(state)))
            }
            Some(DueEvent::End(end)) => (Some(end.version()), self.latest.is_none()),
            None => (None, true),
        };
        self.first_after_due = due_version.filter(|_| !is_known || self.ended.is_some()).map(lowest_after);
        let ended = self.ended.as_ref().filter(|_| self.latest.is_some());
        self.first_after_end = ended.map(|ended| lowest_after(ended.version()));
    }

    /// Returns the version of the first change that is not acknowledged, or a lower one.
    fn first_pending(&self) -> Option<&ResourceVersion> {
        let next_event = match (&self.due, &self.ended, &self.latest) {
            (Some(DueEvent::State(state)), ..) => state.version(),
            (Some(DueEvent::End(end)), ..) | (None, Some(end), _) => end.version(),
            (None, None, Some(latest)) if !self.base.as_ref().is_some_and(|base| base.is(latest)) => latest.version(),
            _ => return None,
        };
        // The event can merge several changes. None of them is acknowledged, so the version of the event is too high.
        let changes = [&self.first_change, &self.first_after_due, &self.first_after_end];
        lowest(std::iter::once(next_event).chain(changes.into_iter().flatten()))
    }

    /// Returns whether a change is pending whose first version is unknown.
    fn has_unknown_first_change(&self) -> bool {
        self.first_change.is_none() && self.first_pending().is_some()
    }

    /// Returns the due event as the handler receives it.
    pub fn event(&self) -> Option<Event<K>> {
        Some(match self.due.as_ref()? {
            DueEvent::End(StayEnd { last, version, certainty, reason }) => {
                Event::Deleted { last: last.clone(), version: version.clone(), certainty: *certainty, reason: *reason }
            }
            // Relative to the acknowledged state, not to the previous cached state: intermediate
            // states may be merged.
            DueEvent::State(new) => match &self.base {
                Some(old) => Event::Updated { old: old.clone(), new: new.clone() },
                None => Event::Added { object: new.clone(), initial: self.initial },
            },
        })
    }
}

impl<K> Outbox<K> {
    /// Sets whether the handler receives the ends of stays whose start it did not see. Such a stay ended before its
    /// start was delivered.
    pub fn deliver_unseen_ends(&mut self, delivers: bool) {
        self.delivers_unseen_ends = delivers;
    }

    /// Returns the number of objects with pending deliveries.
    pub fn len(&self) -> usize {
        self.pending_by_key.len()
    }

    /// Returns whether no delivery is pending.
    pub fn is_empty(&self) -> bool {
        self.pending_by_key.is_empty()
    }

    /// Returns whether no delivery is pending and no record remains to be written or removed.
    pub fn is_settled(&self) -> bool {
        self.is_empty() && self.unrecorded.is_empty() && self.writing.is_empty()
    }

    /// Returns the pending delivery of a key.
    pub fn get(&self, key: &ObjectKey) -> Option<&PendingDelivery<Object<K>>> {
        self.pending_by_key.get(key)
    }

    /// Returns the pending delivery of a key if it can be delivered now: due, and recorded or
    /// [exempt](Self::deliver_unrecorded) from recording.
    pub fn deliverable(&self, key: &ObjectKey) -> Option<&PendingDelivery<Object<K>>> {
        self.pending_by_key.get(key).filter(|pending| pending.due.is_some() && pending.is_written)
    }

    /// Returns the lowest version of the unacknowledged changes. A deletion without a known version counts with the
    /// last version of the object, which is lower. Of two versions that cannot be ordered, the version of the earlier
    /// key counts as the lower one.
    pub fn first_pending(&self) -> Option<&ResourceVersion> {
        lowest(self.pending_by_key.values().filter_map(PendingDelivery::first_pending))
    }

    /// Returns whether [`first_pending`](Self::first_pending) may be too high. A pending delivery of an earlier release
    /// may have merged changes of unknown versions.
    pub fn has_unknown_first_change(&self) -> bool {
        self.pending_by_key.values().any(PendingDelivery::has_unknown_first_change)
    }

    /// Returns the keys whose events can be delivered now.
    pub fn deliverable_keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.pending_by_key
            .iter()
            .filter(|(_, pending)| pending.due.is_some() && pending.is_written)
            .map(|(key, _)| key)
    }

    /// Adds a pending delivery that an earlier run has recorded.
    pub fn restore(&mut self, key: ObjectKey, mut pending: PendingDelivery<Object<K>>) {
        pending.restore_first_changes();
        // An entry without a due event goes through `begin_write` first, so its event is recorded before
        // delivery.
        let is_written = pending.due.is_some();
        if !is_written {
            self.unrecorded.insert(key.clone());
        }
        self.pending_by_key.insert(key, PendingDelivery { is_written, ..pending });
    }

    /// Copies all pending deliveries of another handler, to be written before they are delivered.
    pub fn copy_from(&mut self, other: &Self) {
        for (key, pending) in &other.pending_by_key {
            self.pending_by_key.insert(key.clone(), PendingDelivery { is_written: false, ..pending.clone() });
            self.unrecorded.insert(key.clone());
        }
    }

    /// Records a change of the cache. A change of a list may have skipped versions; see
    /// [`record_after`](Self::record_after).
    pub fn record(&mut self, change: &Change<K>) {
        self.record_after(change, None);
    }

    /// Records a change of the cache, which had reached the version `reached` before. A change of a list may merge all
    /// changes since then.
    pub fn record_after(&mut self, change: &Change<K>, reached: Option<&ResourceVersion>) {
        let key = change.key();
        let (base, version) = match &change.event {
            Event::Added { object, .. } => (None, object.version()),
            Event::Updated { old, new } => (Some(old), new.version()),
            Event::Deleted { last, version, .. } => (Some(last), version.as_ref().unwrap_or(last.version())),
            Event::Resynced { .. } => return,
        };
        // Without an entry, all earlier changes are acknowledged, so the previous state is the
        // base.
        let pending = self.pending_by_key.entry(key.clone()).or_insert_with(|| PendingDelivery::since(base));
        pending.note_change(version);
        // A watch delivers each change with its own version. A list shows only the last state of an object.
        if let Some(reached) = reached.filter(|_| change.version.is_none()) {
            pending.note_change(&lowest_after(reached));
        }
        match &change.event {
            Event::Added { object, initial } => {
                pending.latest = Some(object.clone());
                // `initial` describes the first delivery. A due event keeps its own flag.
                if pending.base.is_none() && pending.due.is_none() {
                    pending.initial = *initial;
                }
            }
            Event::Updated { new, .. } => pending.latest = Some(new.clone()),
            Event::Deleted { last, version, certainty, reason } => {
                pending.latest = None;
                // The stay ended before its start was delivered. Another replica may have delivered the start, so its
                // end is delivered as well.
                let is_unseen = self.delivers_unseen_ends && pending.ended.is_none() && !pending.is_end_due();
                if pending.is_in_stay() || is_unseen {
                    let end = StayEnd {
                        last: last.clone(),
                        version: version.clone(),
                        certainty: *certainty,
                        reason: *reason,
                    };
                    pending.ended = Some(end);
                }
            }
            Event::Resynced { .. } => {}
        }
        self.unrecorded.insert(key.clone());
    }

    /// Selects the due events and returns the entries to record: all unrecorded ones, or every entry if `all` is set.
    /// [`finish_write`](Self::finish_write) must follow.
    pub fn begin_write(&mut self, all: bool) -> Rows<K> {
        // Keys stay in `writing` until `finish_write`, since a failed write returns them to `unrecorded`.
        self.writing.append(&mut self.unrecorded);
        if all {
            self.writing.extend(self.pending_by_key.keys().cloned());
        }
        for key in &self.writing {
            if self.pending_by_key.get_mut(key).is_some_and(|pending| !pending.select_due()) {
                // Nothing remains to deliver. The missing entry removes the recorded row.
                self.pending_by_key.remove(key);
            }
        }
        self.writing.iter().map(|key| (key.clone(), self.pending_by_key.get(key).cloned())).collect()
    }

    /// Finishes a write that [`begin_write`](Self::begin_write) started. `written` must be set only if the entries are
    /// certainly recorded. Returns the keys that can be delivered now.
    pub fn finish_write(&mut self, written: bool) -> Vec<ObjectKey> {
        let writing = std::mem::take(&mut self.writing);
        if !written {
            // An uncertain write may have succeeded. Writing these rows again is idempotent.
            self.unrecorded.extend(writing);
            return Vec::new();
        }
        let mut deliverable = Vec::new();
        for key in writing {
            // An acknowledgement between `begin_write` and `finish_write` removes the due event. The next
            // write selects another.
            if let Some(pending) = self.pending_by_key.get_mut(&key)
                && pending.due.is_some()
                && !std::mem::replace(&mut pending.is_written, true)
            {
                deliverable.push(key);
            }
        }
        deliverable
    }

    /// Marks due events as deliverable although they cannot be recorded. Returns the keys that can be delivered now.
    pub fn deliver_unrecorded(&mut self) -> Vec<ObjectKey> {
        let mut deliverable = Vec::new();
        for key in &self.unrecorded {
            let Some(pending) = self.pending_by_key.get_mut(key) else { continue };
            if !pending.select_due() {
                self.pending_by_key.remove(key);
            } else if !std::mem::replace(&mut pending.is_written, true) {
                deliverable.push(key.clone());
            }
        }
        deliverable
    }

    /// Acknowledges the event `done`. Returns true if `done` is the due event of the key.
    pub fn acknowledge(&mut self, key: &ObjectKey, done: &DueEvent<Object<K>>) -> bool {
        let Some(pending) = self.pending_by_key.get_mut(key) else { return false };
        // A repeated or late acknowledgement must not remove a newer due event.
        let Some(due) = pending.due.take_if(|due| due.is(done)) else { return false };
        pending.initial = false;
        pending.is_written = false;
        pending.first_change = pending.first_after_due.take();
        pending.base = match due {
            DueEvent::State(object) => Some(object),
            DueEvent::End(_) => None,
        };
        let is_known = match (&pending.base, &pending.latest) {
            (Some(base), Some(latest)) => base.is(latest),
            (None, None) => true,
            _ => false,
        };
        // The handler knows the current state. The next write removes the recorded row.
        if is_known && pending.ended.is_none() {
            self.pending_by_key.remove(key);
        }
        self.unrecorded.insert(key.clone());
        true
    }

    /// Returns the keys for which a record may exist.
    pub fn into_names(self) -> BTreeSet<ObjectKey> {
        let Self { pending_by_key, unrecorded, writing, delivers_unseen_ends: _ } = self;
        pending_by_key.into_keys().chain(unrecorded).chain(writing).collect()
    }

    /// Drops all pending deliveries. Their records will be removed.
    pub fn forget(&mut self) {
        self.unrecorded.extend(std::mem::take(&mut self.pending_by_key).into_keys());
    }
}

// Not derived: a derive would require objects with a default.
impl<K> Default for Outbox<K> {
    fn default() -> Self {
        Self {
            pending_by_key: BTreeMap::new(),
            unrecorded: BTreeSet::new(),
            writing: BTreeSet::new(),
            delivers_unseen_ends: false,
        }
    }
}

// Not derived: a derive would require states with a default.
impl<S> Default for PendingDelivery<S> {
    fn default() -> Self {
        Self {
            base: None,
            due: None,
            ended: None,
            latest: None,
            initial: false,
            is_written: false,
            first_change: None,
            first_after_due: None,
            first_after_end: None,
        }
    }
}

#[cfg(test)]
mod tests;
