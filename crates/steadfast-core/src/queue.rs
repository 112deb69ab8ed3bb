//! A handler's own queue: what it has not been given yet, bounded by objects and not by events (C1, C3, C5, C7, C8).
//!
//! Changes of one object that the handler has not been given are merged: states between are skipped, the last never is.
//! A stay that was delivered and has ended is always delivered to its end, before the next one begins.
//!
//! A queue that delivers [each](DeliveryQueue::each) change merges none while no more wait than its bound allows. What
//! comes then is merged as everywhere else, and how many events that cost is counted and goes with the next delivery.

mod places;

use std::collections::{BTreeMap, VecDeque};

use crate::breach::{Breach, Breaches};
use crate::event::{Certainty, Change, DeleteReason, Event};
use crate::footprint::tree;
use crate::key::ObjectKey;
use crate::object::Object;
use crate::slots::Slot;
use crate::time::Instant;
use crate::version::ResourceVersion;
use places::Places;

/// The queue of one handler.
pub struct DeliveryQueue<K> {
    places: Places<Place<K>>,
    /// The places of keys that can be delivered, in the order in which they began to wait.
    ready: BTreeMap<u64, Slot>,
    turns: u64,
    /// Initial objects of the handler's first view that it has not returned from.
    initial: usize,
    /// How many changes may wait one by one; none where all are merged.
    bound: Option<usize>,
    /// How many do.
    singles: usize,
    /// Events that were merged into others though each was to be delivered, since the delivery before.
    missed: u64,
    /// What the states take up that handlers have seen, or are not to see as the newest: the store may have let go of them.
    earlier: usize,
    breaches: Breaches,
    /// Only where C8 is broken on purpose: every event, as it came.
    unbounded: VecDeque<Delivery<K>>,
}

/// A call to be made, taken from a queue; [`DeliveryQueue::done`] has to follow it.
pub struct Delivery<K> {
    /// Which key it is about.
    pub key: ObjectKey,
    /// What to tell.
    pub event: Event<K>,
    /// Since when it waited to be delivered: the first change that it covers.
    pub since: Instant,
    /// How many changes it covers: none where nothing changed, several where states between were skipped.
    pub changes: u64,
    /// How many events were merged into others since the delivery before, where each was to be delivered.
    pub missed: u64,
}

/// What waits for one key, and whether something of it is being delivered.
struct Place<K> {
    calling: Option<Calling>,
    /// Its place in `ready`.
    turn: Option<u64>,
    /// What is delivered one by one, before what is pending.
    singles: VecDeque<Single<K>>,
    pending: Option<Pending<K>>,
    /// When it began to be pending.
    since: Instant,
}

/// A change that is delivered as it came.
struct Single<K> {
    event: Event<K>,
    turn: u64,
    since: Instant,
}

/// A call that has not returned.
struct Calling {
    initial: bool,
}

/// The difference between what the handler saw of a key and what is.
enum Pending<K> {
    /// It saw nothing, and there is an object.
    Add(Stay<K>),
    /// It saw an older state.
    Update { seen: Object<K>, object: Object<K>, changes: u64 },
    /// It saw this state and is to look again.
    Resync { object: Object<K> },
    /// It saw a stay that has ended; another may have begun.
    // Apart: most of what waits is none.
    End { end: Box<End<K>>, next: Option<Stay<K>> },
}

/// A stay that the handler has seen nothing of.
struct Stay<K> {
    object: Object<K>,
    initial: bool,
    changes: u64,
}

struct End<K> {
    last: Object<K>,
    version: Option<ResourceVersion>,
    certainty: Certainty,
    reason: DeleteReason,
    changes: u64,
}

impl<K> DeliveryQueue<K> {
    /// An empty queue.
    pub fn new(breaches: Breaches) -> Self {
        Self::bounded(None, breaches)
    }

    /// An empty queue that delivers each change, in the order in which they came, while no more than `bound` wait.
    pub fn each(bound: usize, breaches: Breaches) -> Self {
        Self::bounded(Some(bound), breaches)
    }

    fn bounded(bound: Option<usize>, breaches: Breaches) -> Self {
        Self {
            places: Places::default(),
            ready: BTreeMap::new(),
            turns: 0,
            initial: 0,
            bound,
            singles: 0,
            missed: 0,
            earlier: 0,
            breaches,
            unbounded: VecDeque::new(),
        }
    }

    /// Takes in a change of the store, made known at `now`.
    ///
    /// Returns the state that the handler saw, where it is given neither that nor another: this may have been its last
    /// holder, and its `Drop` is the user's. All else that is let go of is in the change too.
    pub fn push(&mut self, change: Change<K>, now: Instant) -> Option<Object<K>> {
        if self.breaches.commit(Breach::UnboundedQueue) {
            let key = change.key().clone();
            self.unbounded.push_back(Delivery { key, event: change.event, since: now, changes: 1, missed: 0 });
            return None;
        }
        let slot = self.places.find_or_make(change.key(), || Place {
            calling: None,
            turn: None,
            singles: VecDeque::new(),
            pending: None,
            since: now,
        });
        let event = change.event;
        let place = self.places.get_mut(slot)?;
        if self.bound.is_some_and(|bound| self.singles < bound) && place.pending.is_none() {
            self.turns += 1;
            self.singles += 1;
            self.initial += usize::from(is_initial(&event));
            self.earlier += earlier(&event);
            place.singles.push_back(Single { event, turn: self.turns, since: now });
            self.settle(slot);
            return None;
        }
        if place.pending.is_none() {
            place.since = now;
        }
        self.initial -= usize::from(place.tells_initial());
        let unwanted = match (&place.pending, &event) {
            (Some(Pending::Update { seen, .. }), Event::Deleted { .. }) => Some(seen.clone()),
            _ => None,
        };
        let news = news(&event);
        let before = place.pending.as_ref().map_or(0, Pending::events);
        self.earlier -= place.pending.as_ref().map_or(0, Pending::earlier);
        place.pending = Pending::merge(place.pending.take(), event, self.breaches);
        let after = place.pending.as_ref().map_or(0, Pending::events);
        self.earlier += place.pending.as_ref().map_or(0, Pending::earlier);
        if self.bound.is_some() {
            // A resync that gives way to a change is no loss.
            self.missed += (before + news).saturating_sub(after);
        }
        self.initial += usize::from(place.tells_initial());
        self.settle(slot);
        unwanted
    }

    /// The next call to make; none while all that waits is for keys with a call running.
    pub fn pop(&mut self) -> Option<Delivery<K>> {
        if let Some(delivery) = self.unbounded.pop_front() {
            return Some(delivery);
        }
        loop {
            let (_, slot) = self.ready.pop_first()?;
            let Some(key) = self.places.key(slot).cloned() else { continue };
            let Some(place) = self.places.get_mut(slot) else { continue };
            place.turn = None;
            let (event, changes, since) = if let Some(Single { event, since, .. }) = place.singles.pop_front() {
                self.singles -= 1;
                let changes = news(&event);
                (event, changes, since)
            } else {
                let Some(pending) = place.pending.take() else { continue };
                let changes = pending.changes();
                let (event, rest) = pending.split();
                place.pending = rest;
                (event, changes, place.since)
            };
            self.earlier -= earlier(&event);
            let initial = is_initial(&event);
            place.calling = Some(Calling { initial });
            if self.breaches.commit(Breach::OverlappingCalls) {
                place.calling = None;
                self.initial -= usize::from(initial);
                self.settle(slot);
            }
            let missed = std::mem::take(&mut self.missed);
            return Some(Delivery { key, event, since, changes, missed });
        }
    }

    /// The call for `key` has returned, or was given up after its retries.
    pub fn done(&mut self, key: &ObjectKey) {
        let Some(slot) = self.places.find(key) else { return };
        if let Some(call) = self.places.get_mut(slot).and_then(|place| place.calling.take()) {
            self.initial -= usize::from(call.initial);
        }
        self.settle(slot);
    }

    /// The entries held: the keys that wait or are being delivered, and what waits one by one.
    pub fn len(&self) -> usize {
        let keys = if self.singles == 0 {
            self.places.len()
        } else {
            self.places.values().filter(|place| place.calling.is_some() || place.pending.is_some()).count()
        };
        keys + self.singles + self.unbounded.len()
    }

    /// Whether nothing waits and no call is running.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.unbounded.is_empty()
    }

    /// How many events were merged into others since the last delivery, where each was to be delivered.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The entries that wait to be delivered.
    pub fn undelivered(&self) -> usize {
        let pending = self.places.values().filter(|place| place.pending.is_some()).count();
        pending + self.singles + self.unbounded.len()
    }

    /// What waits takes up, in bytes: what there is for each key, and the states that the store may have let go of.
    pub fn footprint(&self) -> usize {
        let ready = tree(self.ready.len(), size_of::<(u64, Slot)>());
        self.places.footprint() + ready + self.singles * size_of::<Single<K>>() + self.earlier
    }

    /// Since when the change waits that is delivered next; those whose key has a call running come after that call.
    pub fn waiting_since(&self) -> Option<Instant> {
        let (_, next) = self.ready.first_key_value()?;
        self.places.get(*next).map(|place| place.singles.front().map_or(place.since, |single| single.since))
    }

    /// The initial objects that the handler has not returned from.
    pub fn initial_left(&self) -> usize {
        self.initial
    }

    /// Puts what has a slot where it belongs: among the ready, with a call running, or forgotten.
    fn settle(&mut self, slot: Slot) {
        let Some(place) = self.places.get_mut(slot) else { return };
        if place.calling.is_some() {
            return;
        }
        let waits = place.pending.is_some() || !place.singles.is_empty();
        if !waits {
            if let Some(turn) = place.turn {
                self.ready.remove(&turn);
            }
            self.places.remove(slot);
        } else if place.turn.is_none() {
            let turn = place.singles.front().map_or(self.turns + 1, |single| single.turn);
            self.turns = self.turns.max(turn);
            place.turn = Some(turn);
            self.ready.insert(turn, slot);
        }
    }
}

/// What an event's earlier state takes up.
fn earlier<K>(event: &Event<K>) -> usize {
    match event {
        Event::Added { .. } | Event::Resynced { .. } => 0,
        Event::Updated { old, .. } => old.bytes(),
        Event::Deleted { last, .. } => last.bytes(),
    }
}

/// How many changes an event is by itself: a resync is none.
fn news<K>(event: &Event<K>) -> u64 {
    u64::from(!matches!(event, Event::Resynced { .. }))
}

fn is_initial<K>(event: &Event<K>) -> bool {
    matches!(event, Event::Added { initial: true, .. })
}

impl<K> Place<K> {
    fn tells_initial(&self) -> bool {
        matches!(
            self.pending,
            Some(
                Pending::Add(Stay { initial: true, .. }) | Pending::End { next: Some(Stay { initial: true, .. }), .. }
            )
        )
    }
}

impl<K> Pending<K> {
    /// What waits once `event` has happened too; nothing, if the handler never saw what has gone again.
    fn merge(pending: Option<Self>, event: Event<K>, breaches: Breaches) -> Option<Self> {
        let merged = match (pending, event) {
            (Some(pending), Event::Resynced { .. }) => pending,
            (None, Event::Resynced { object }) => Self::Resync { object },

            (None, Event::Added { object, initial }) => Self::Add(Stay::begun(object, initial)),
            (Some(Self::Add(stay)), Event::Added { object, initial }) => {
                Self::Add(Stay { initial, ..stay.changed(object) })
            }
            (Some(Self::Add(stay)), Event::Updated { new, .. }) => Self::Add(stay.changed(new)),
            (Some(Self::Add(_)), Event::Deleted { .. }) => return None,

            (None, Event::Updated { old, new }) => Self::Update { seen: old, object: new, changes: 1 },
            (Some(Self::Update { changes, .. }), Event::Updated { old, new })
                if breaches.commit(Breach::StoreAsOld) =>
            {
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
                let next = next.map_or_else(|| Stay::begun(new.clone(), false), |stay| stay.changed(new.clone()));
                Self::End { end, next: Some(next) }
            }
            (Some(Self::End { mut end, next }), Event::Deleted { .. }) => {
                end.changes += next.map_or(0, |stay| stay.changes) + 1;
                Self::End { end, next: None }
            }
            (
                pending @ (None | Some(Self::Update { .. } | Self::Resync { .. })),
                Event::Deleted { last, version, certainty, reason },
            ) => {
                let changes = pending.as_ref().map_or(0, Self::changes) + 1;
                Self::End { end: Box::new(End { last, version, certainty, reason, changes }), next: None }
            }
        };
        Some(merged)
    }

    /// How many changes the next event covers.
    fn changes(&self) -> u64 {
        match self {
            Self::Add(stay) => stay.changes,
            Self::Update { changes, .. } => *changes,
            Self::End { end, .. } => end.changes,
            Self::Resync { .. } => 0,
        }
    }

    /// What its earlier state takes up.
    fn earlier(&self) -> usize {
        match self {
            Self::Add(_) | Self::Resync { .. } => 0,
            Self::Update { seen, .. } => seen.bytes(),
            Self::End { end, .. } => end.last.bytes(),
        }
    }

    /// How many events it is; a resync is no news.
    fn events(&self) -> u64 {
        match self {
            Self::Add(_) | Self::Update { .. } => 1,
            Self::Resync { .. } => 0,
            Self::End { next, .. } => 1 + u64::from(next.is_some()),
        }
    }

    /// The next event to tell, and what remains to be delivered after it.
    fn split(self) -> (Event<K>, Option<Self>) {
        match self {
            Self::Add(Stay { object, initial, .. }) => (Event::Added { object, initial }, None),
            Self::Update { seen, object, .. } => (Event::Updated { old: seen, new: object }, None),
            Self::Resync { object } => (Event::Resynced { object }, None),
            Self::End { end, next } => {
                let End { last, version, certainty, reason, .. } = *end;
                (Event::Deleted { last, version, certainty, reason }, next.map(Self::Add))
            }
        }
    }
}

impl<K> Stay<K> {
    fn begun(object: Object<K>, initial: bool) -> Self {
        Self { object, initial, changes: 1 }
    }

    fn changed(self, object: Object<K>) -> Self {
        Self { object, changes: self.changes + 1, ..self }
    }
}
