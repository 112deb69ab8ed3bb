//! Queue of a handler: its pending events, bounded by the number of objects and not of events (C1, C3, C5, C7, C8).
//!
//! Pending changes of an object merge. Intermediate states are skipped; the last state never is. If a delivered stay
//! has ended, its end is always delivered before the next stay starts.
//!
//! A queue that delivers [each](DeliveryQueue::each) change merges no changes while the number of pending changes is
//! within its bound. Later changes are merged as in other queues. The number of merged events is counted and reported
//! with the next delivery.

mod slot_map;

use std::collections::{BTreeMap, VecDeque};

use crate::event::{Certainty, Change, DeleteReason, Event};
use crate::fault_injection::{FaultInjection, inject};
use crate::footprint::tree;
use crate::key::ObjectKey;
use crate::object::Object;
use crate::slots::Slot;
use crate::time::Instant;
use crate::version::ResourceVersion;
use slot_map::SlotMap;

/// Queue of one handler.
pub struct DeliveryQueue<K> {
    keys: SlotMap<KeyState<K>>,
    /// Keys that can be delivered, in the order in which they became pending.
    ready: BTreeMap<u64, Slot>,
    last_position: u64,
    /// Number of initial objects of the handler's first view whose calls have not returned.
    initial: usize,
    /// Maximum number of changes that stay separate; `None` if all changes are merged.
    max_separate: Option<usize>,
    /// Number of separate pending changes.
    separate_count: usize,
    /// Number of events since the last delivery that were merged although each should be delivered.
    missed: u64,
    /// Memory in bytes of the earlier states in pending events. The store may have dropped these states.
    earlier_bytes: usize,
    faults: FaultInjection,
    /// All events, unmerged. Only the injected fault of C8 uses this queue.
    unbounded: VecDeque<Delivery<K>>,
}

/// Call that was taken from a queue. [`DeliveryQueue::done`] must follow it.
pub struct Delivery<K> {
    /// Key of the object.
    pub key: ObjectKey,
    /// Event to deliver.
    pub event: Event<K>,
    /// Time since which the event was pending: the time of the first change that it covers.
    pub since: Instant,
    /// Number of changes that the event covers: 0 if nothing changed, several if intermediate states were skipped.
    pub changes: u64,
    /// Number of events since the last delivery that were merged although each should be delivered.
    pub missed: u64,
}

/// Pending events of one key, and its running call.
struct KeyState<K> {
    running_call: Option<RunningCall>,
    /// Position in `ready`.
    position: Option<u64>,
    /// Separate changes, which are delivered before the merged ones.
    separate: VecDeque<SeparateChange<K>>,
    pending: Option<Pending<K>>,
    /// Time at which the merged event became pending.
    since: Instant,
}

/// Change that is delivered unmerged.
struct SeparateChange<K> {
    event: Event<K>,
    position: u64,
    since: Instant,
}

/// Call that has not returned.
struct RunningCall {
    initial: bool,
}

/// Difference between the state that the handler saw and the current state.
enum Pending<K> {
    /// The handler saw no object, and an object exists now.
    Add(Stay<K>),
    /// The handler saw an older state.
    Update { seen: Object<K>, object: Object<K>, changes: u64 },
    /// The handler saw this state; a resync delivers it again.
    Resync { object: Object<K> },
    /// The handler saw a stay that has ended; another stay may have started.
    // Boxed, since most pending events are of another variant and should stay small.
    End { end: Box<PendingEnd<K>>, next: Option<Stay<K>> },
}

/// Stay that the handler has not seen.
struct Stay<K> {
    object: Object<K>,
    initial: bool,
    changes: u64,
}

struct PendingEnd<K> {
    last: Object<K>,
    version: Option<ResourceVersion>,
    certainty: Certainty,
    reason: DeleteReason,
    changes: u64,
}

impl<K> Default for DeliveryQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> DeliveryQueue<K> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::bounded(None)
    }

    /// Creates an empty queue that delivers each change, in order, while at most `max_separate` changes are pending.
    pub fn each(max_separate: usize) -> Self {
        Self::bounded(Some(max_separate))
    }

    /// Sets the faults that a test injects.
    #[must_use]
    pub fn with_faults(mut self, faults: FaultInjection) -> Self {
        self.faults = faults;
        self
    }

    fn bounded(max_separate: Option<usize>) -> Self {
        Self {
            keys: SlotMap::default(),
            ready: BTreeMap::new(),
            last_position: 0,
            initial: 0,
            max_separate,
            separate_count: 0,
            missed: 0,
            earlier_bytes: 0,
            faults: FaultInjection::NONE,
            unbounded: VecDeque::new(),
        }
    }

    /// Adds a change of the store that was published at `now`.
    ///
    /// Returns the state that the handler saw, if `change` is a deletion that replaces a pending update. No pending
    /// event keeps this state. The returned handle may be the last handle of the object, and the `Drop` of the object
    /// is user code. All other dropped states are also referenced by the change.
    pub fn push(&mut self, change: Change<K>, now: Instant) -> Option<Object<K>> {
        if inject!(self.faults, UnboundedQueue) {
            let key = change.key().clone();
            self.unbounded.push_back(Delivery { key, event: change.event, since: now, changes: 1, missed: 0 });
            return None;
        }
        let slot = self.keys.find_or_insert(change.key(), || KeyState {
            running_call: None,
            position: None,
            separate: VecDeque::new(),
            pending: None,
            since: now,
        });
        let event = change.event;
        let state = self.keys.get_mut(slot)?;
        // A change stays separate only without a pending merged event of the same key: the order
        // per key must hold.
        if self.max_separate.is_some_and(|max_separate| self.separate_count < max_separate) && state.pending.is_none() {
            self.last_position += 1;
            self.separate_count += 1;
            self.initial += usize::from(is_initial(&event));
            self.earlier_bytes += earlier_bytes(&event);
            state.separate.push_back(SeparateChange { event, position: self.last_position, since: now });
            self.settle(slot);
            return None;
        }
        // `since` belongs to the first change of a merged event. Later changes keep the older time.
        if state.pending.is_none() {
            state.since = now;
        }
        // Subtracted before the merge and added afterwards, since a merge can start or end an
        // initial stay.
        self.initial -= usize::from(state.has_initial());
        // The merged deletion delivers `last`, so no pending event keeps the state that the handler
        // saw.
        let unwanted = match (&state.pending, &event) {
            (Some(Pending::Update { seen, .. }), Event::Deleted { .. }) => Some(seen.clone()),
            _ => None,
        };
        let change_count = change_count(&event);
        let events_before = state.pending.as_ref().map_or(0, Pending::events);
        self.earlier_bytes -= state.pending.as_ref().map_or(0, Pending::earlier_bytes);
        state.pending = Pending::merge(state.pending.take(), event, self.faults);
        let events_after = state.pending.as_ref().map_or(0, Pending::events);
        self.earlier_bytes += state.pending.as_ref().map_or(0, Pending::earlier_bytes);
        if self.max_separate.is_some() {
            // A resync that is replaced by a change does not count as merged.
            self.missed += (events_before + change_count).saturating_sub(events_after);
        }
        self.initial += usize::from(state.has_initial());
        self.settle(slot);
        unwanted
    }

    /// Returns the next call; `None` if every pending key has a running call.
    pub fn pop(&mut self) -> Option<Delivery<K>> {
        if let Some(delivery) = self.unbounded.pop_front() {
            return Some(delivery);
        }
        loop {
            let (_, slot) = self.ready.pop_first()?;
            let Some(key) = self.keys.key(slot).cloned() else { continue };
            let Some(state) = self.keys.get_mut(slot) else { continue };
            state.position = None;
            // Separate changes are older than the merged event of the same key.
            let (event, changes, since) = if let Some(SeparateChange { event, since, .. }) = state.separate.pop_front()
            {
                self.separate_count -= 1;
                let changes = change_count(&event);
                (event, changes, since)
            } else {
                let Some(pending) = state.pending.take() else { continue };
                let changes = pending.changes();
                // An end and the next stay are two calls. The second stays pending until the first
                // returns.
                let (event, rest) = pending.split();
                state.pending = rest;
                (event, changes, state.since)
            };
            self.earlier_bytes -= earlier_bytes(&event);
            let initial = is_initial(&event);
            state.running_call = Some(RunningCall { initial });
            // Injected fault: the key counts as idle, so a second call can overlap.
            if inject!(self.faults, OverlappingCalls) {
                state.running_call = None;
                self.initial -= usize::from(initial);
                self.settle(slot);
            }
            let missed = std::mem::take(&mut self.missed);
            return Some(Delivery { key, event, since, changes, missed });
        }
    }

    /// Marks the call for `key` as finished, after its return or its last retry.
    pub fn done(&mut self, key: &ObjectKey) {
        let Some(slot) = self.keys.find(key) else { return };
        if let Some(call) = self.keys.get_mut(slot).and_then(|state| state.running_call.take()) {
            self.initial -= usize::from(call.initial);
        }
        self.settle(slot);
    }

    /// Returns the number of entries: pending keys, keys with a running call, and separate changes.
    pub fn len(&self) -> usize {
        // Without separate changes, every key counts once: `settle` removes keys without events
        // and calls.
        let keys = if self.separate_count == 0 {
            self.keys.len()
        } else {
            self.keys.values().filter(|state| state.running_call.is_some() || state.pending.is_some()).count()
        };
        keys + self.separate_count + self.unbounded.len()
    }

    /// Returns whether no event is pending and no call is running.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.unbounded.is_empty()
    }

    /// Returns the number of events since the last delivery that were merged although each should be delivered.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the number of pending entries.
    pub fn undelivered(&self) -> usize {
        let pending = self.keys.values().filter(|state| state.pending.is_some()).count();
        pending + self.separate_count + self.unbounded.len()
    }

    /// Returns the memory of the pending events in bytes: an entry for each key, and the states that the store may have
    /// dropped.
    pub fn footprint(&self) -> usize {
        let ready = tree(self.ready.len(), size_of::<(u64, Slot)>());
        self.keys.footprint() + ready + self.separate_count * size_of::<SeparateChange<K>>() + self.earlier_bytes
    }

    /// Returns the time since which the next event has been pending. Events of keys with a running call do not count.
    pub fn waiting_since(&self) -> Option<Instant> {
        let (_, next) = self.ready.first_key_value()?;
        self.keys.get(*next).map(|state| state.separate.front().map_or(state.since, |change| change.since))
    }

    /// Returns the number of initial objects whose calls have not returned.
    pub fn initial_left(&self) -> usize {
        self.initial
    }

    /// Moves a slot to its state: ready, with a running call, or removed.
    fn settle(&mut self, slot: Slot) {
        let Some(state) = self.keys.get_mut(slot) else { return };
        // A running call keeps the slot. `done` settles the slot again.
        if state.running_call.is_some() {
            return;
        }
        let is_pending = state.pending.is_some() || !state.separate.is_empty();
        if !is_pending {
            if let Some(position) = state.position {
                self.ready.remove(&position);
            }
            self.keys.remove(slot);
        } else if state.position.is_none() {
            // A separate change keeps the position of its arrival; a merged event queues at the end.
            let position = state.separate.front().map_or(self.last_position + 1, |change| change.position);
            self.last_position = self.last_position.max(position);
            state.position = Some(position);
            self.ready.insert(position, slot);
        }
    }
}

/// Returns the size of the event's earlier state in bytes.
fn earlier_bytes<K>(event: &Event<K>) -> usize {
    match event {
        Event::Added { .. } | Event::Resynced { .. } => 0,
        Event::Updated { old, .. } => old.bytes(),
        Event::Deleted { last, .. } => last.bytes(),
    }
}

/// Returns the number of changes of an event; 0 for a resync.
fn change_count<K>(event: &Event<K>) -> u64 {
    u64::from(!matches!(event, Event::Resynced { .. }))
}

fn is_initial<K>(event: &Event<K>) -> bool {
    matches!(event, Event::Added { initial: true, .. })
}

impl<K> KeyState<K> {
    fn has_initial(&self) -> bool {
        matches!(
            self.pending,
            Some(
                Pending::Add(Stay { initial: true, .. }) | Pending::End { next: Some(Stay { initial: true, .. }), .. }
            )
        )
    }
}

impl<K> Pending<K> {
    /// Merges `event` into the pending event. Returns `None` if the handler never saw a stay that has ended again.
    fn merge(pending: Option<Self>, event: Event<K>, faults: FaultInjection) -> Option<Self> {
        let merged = match (pending, event) {
            // The pending event already delivers the current state.
            (Some(pending), Event::Resynced { .. }) => pending,
            (None, Event::Resynced { object }) => Self::Resync { object },

            (None, Event::Added { object, initial }) => Self::Add(Stay::started(object, initial)),
            (Some(Self::Add(stay)), Event::Added { object, initial }) => {
                Self::Add(Stay { initial, ..stay.changed(object) })
            }
            (Some(Self::Add(stay)), Event::Updated { new, .. }) => Self::Add(stay.changed(new)),
            (Some(Self::Add(_)), Event::Deleted { .. }) => return None,

            (None, Event::Updated { old, new }) => Self::Update { seen: old, object: new, changes: 1 },
            (Some(Self::Update { changes, .. }), Event::Updated { old, new }) if inject!(faults, StoreAsOld) => {
                Self::Update { seen: old, object: new, changes: changes + 1 }
            }
            (
                Some(Self::Update { seen, changes, .. }),
                Event::Updated { new: object, .. } | Event::Added { object, .. },
            ) => Self::Update { seen, object, changes: changes + 1 },
            (Some(Self::Resync { object: seen }), Event::Updated { new: object, .. } | Event::Added { object, .. }) => {
                Self::Update { seen, object, changes: 1 }
            }

            (Some(Self::End { end, next }), Event::Added { object, initial }) => {
                let changes = next.map_or(0, |stay| stay.changes) + 1;
                Self::End { end, next: Some(Stay { object, initial, changes }) }
            }
            (Some(Self::End { end, next }), Event::Updated { new, .. }) => {
                let next = next.map_or_else(|| Stay::started(new.clone(), false), |stay| stay.changed(new.clone()));
                Self::End { end, next: Some(next) }
            }
            // The handler never saw the stay between the two ends, so the first end remains.
            (Some(Self::End { mut end, next }), Event::Deleted { .. }) => {
                end.changes += next.map_or(0, |stay| stay.changes) + 1;
                Self::End { end, next: None }
            }
            (
                pending @ (None | Some(Self::Update { .. } | Self::Resync { .. })),
                Event::Deleted { last, version, certainty, reason },
            ) => {
                let changes = pending.as_ref().map_or(0, Self::changes) + 1;
                Self::End { end: Box::new(PendingEnd { last, version, certainty, reason, changes }), next: None }
            }
        };
        Some(merged)
    }

    /// Returns the number of changes that the next event covers.
    fn changes(&self) -> u64 {
        match self {
            Self::Add(stay) => stay.changes,
            Self::Update { changes, .. } => *changes,
            Self::End { end, .. } => end.changes,
            Self::Resync { .. } => 0,
        }
    }

    /// Returns the size of the earlier state in bytes.
    fn earlier_bytes(&self) -> usize {
        match self {
            Self::Add(_) | Self::Resync { .. } => 0,
            Self::Update { seen, .. } => seen.bytes(),
            Self::End { end, .. } => end.last.bytes(),
        }
    }

    /// Returns the number of events; a resync does not count.
    fn events(&self) -> u64 {
        match self {
            Self::Add(_) | Self::Update { .. } => 1,
            Self::Resync { .. } => 0,
            Self::End { next, .. } => 1 + u64::from(next.is_some()),
        }
    }

    /// Returns the next event and the remaining pending event.
    fn split(self) -> (Event<K>, Option<Self>) {
        match self {
            Self::Add(Stay { object, initial, .. }) => (Event::Added { object, initial }, None),
            Self::Update { seen, object, .. } => (Event::Updated { old: seen, new: object }, None),
            Self::Resync { object } => (Event::Resynced { object }, None),
            Self::End { end, next } => {
                let PendingEnd { last, version, certainty, reason, .. } = *end;
                (Event::Deleted { last, version, certainty, reason }, next.map(Self::Add))
            }
        }
    }
}

impl<K> Stay<K> {
    fn started(object: Object<K>, initial: bool) -> Self {
        Self { object, initial, changes: 1 }
    }

    fn changed(self, object: Object<K>) -> Self {
        Self { object, changes: self.changes + 1, ..self }
    }
}
