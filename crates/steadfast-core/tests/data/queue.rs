//! Queue of a handler, compared with the plain list of all events.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use steadfast_core::event::{Certainty, Change, DeleteReason, Event};
use steadfast_core::queue::{Delivery, DeliveryQueue};
use steadfast_core::record::Identity;
use steadfast_core::{Instant, Object, ObjectKey, ResourceVersion};

/// State of an object: its stay, and its number within the stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    stay: u32,
    version: u32,
}

/// Action on the store, or of the handler's threads.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// The key's object appears or changes.
    Write { key: usize, initial: bool },
    /// The key's object is removed.
    Remove { key: usize },
    /// Another object takes the name.
    Replace { key: usize },
    /// Resync of all objects.
    Resync,
    /// A thread takes the next call.
    Take,
    /// The oldest running call returns.
    Return,
}

const KEYS: usize = 5;

fn action() -> impl Strategy<Value = Action> {
    let key = 0..KEYS;
    prop_oneof![
        // Few keys and many writes, so that changes of one key often meet in the queue.
        6 => (key.clone(), any::<bool>()).prop_map(|(key, initial)| Action::Write { key, initial }),
        3 => key.clone().prop_map(|key| Action::Remove { key }),
        2 => key.prop_map(|key| Action::Replace { key }),
        1 => Just(Action::Resync),
        4 => Just(Action::Take),
        4 => Just(Action::Return),
    ]
}

/// Knowledge of the handler about a key.
#[derive(Clone, Copy, Debug, Default)]
struct Delivered {
    /// Last delivered state of the current stay.
    state: Option<State>,
    /// Set during a call, with a flag for an initial object.
    calling: Option<bool>,
}

#[derive(Default)]
struct QueueFixture {
    /// Current objects by key.
    objects: BTreeMap<usize, State>,
    /// Initial objects whose calls have not returned, with a flag for a started call.
    initial: BTreeMap<usize, bool>,
    delivered: BTreeMap<usize, Delivered>,
    running: Vec<ObjectKey>,
    stays: u32,
    versions: u32,
}

fn key_of(key: usize) -> ObjectKey {
    ObjectKey::cluster(key.to_string().as_str())
}

fn object_in_queue<K>(key: ObjectKey, object: K) -> Object<K> {
    Object::new(Identity { key, uid: "any".into(), version: "1".into() }, Arc::new(object))
}

fn number_of(key: &ObjectKey) -> usize {
    (0..KEYS).find(|number| key_of(*number) == *key).expect("one of the test's keys")
}

impl QueueFixture {
    fn state(&mut self, stay: Option<u32>) -> State {
        self.versions += 1;
        let stay = stay.unwrap_or_else(|| {
            self.stays += 1;
            self.stays
        });
        State { stay, version: self.versions }
    }

    fn push(queue: &mut DeliveryQueue<State>, event: Event<State>) {
        queue.push(Change::of_list(event), Instant::ZERO);
    }

    fn write(&mut self, queue: &mut DeliveryQueue<State>, key: usize, initial: bool) {
        let old = self.objects.get(&key).copied();
        let new = self.state(old.map(|old| old.stay));
        self.objects.insert(key, new);
        let object = object_in_queue(key_of(key), new);
        Self::push(
            queue,
            match old {
                Some(old) => Event::Updated { old: object_in_queue(key_of(key), old), new: object },
                None => Event::Added { object, initial },
            },
        );
        if old.is_none() {
            self.initial.insert(key, initial);
        }
    }

    fn remove(&mut self, queue: &mut DeliveryQueue<State>, key: usize) {
        let Some(last) = self.objects.remove(&key) else { return };
        let version = Some(ResourceVersion::from("7"));
        let (certainty, reason) = (Certainty::Observed, DeleteReason::Deleted);
        Self::push(queue, Event::Deleted { last: object_in_queue(key_of(key), last), version, certainty, reason });
        // The deletion replaces the pending addition, unless its call is already running.
        self.initial.remove(&key);
    }

    /// Checks that the delivery is allowed.
    fn take(&mut self, delivery: &Delivery<State>) {
        let key = number_of(&delivery.key);
        let delivered = self.delivered.entry(key).or_default();
        assert!(delivered.calling.is_none(), "two concurrent calls for one key");
        let mut initial = false;
        match &delivery.event {
            Event::Added { object, initial: first } => {
                assert!(delivered.state.is_none(), "added before the previous stay ended");
                delivered.state = Some(**object);
                initial = *first;
                assert_eq!(self.initial.remove(&key), Some(*first), "an initial object that has been removed");
            }
            Event::Updated { old, new } => {
                assert_eq!(delivered.state, Some(**old), "`old` is not the last delivered state");
                assert_eq!(old.stay, new.stay, "one update spans two stays");
                assert!(new.version > old.version, "the version of an update must increase");
                delivered.state = Some(**new);
            }
            Event::Deleted { last, .. } => {
                let state = delivered.state.take().expect("deleted, but never added");
                assert_eq!(state.stay, last.stay, "the end of another stay");
                assert!(last.version >= state.version, "the last state is older than the last delivered one");
            }
            Event::Resynced { object } => {
                assert_eq!(delivered.state, Some(**object), "a resync of an object that was never delivered");
            }
        }
        delivered.calling = Some(initial);
        self.running.push(delivery.key.clone());
    }

    fn finish(&mut self, queue: &mut DeliveryQueue<State>) {
        if self.running.is_empty() {
            return;
        }
        let key = self.running.remove(0);
        queue.done(&key);
        self.delivered.get_mut(&number_of(&key)).expect("the key has a running call").calling = None;
    }

    /// Checks the invariants that hold after every step.
    fn check(&self, queue: &DeliveryQueue<State>) {
        let waiting = self.initial.values().filter(|initial| **initial).count();
        let calling = self.delivered.values().filter(|delivered| delivered.calling == Some(true)).count();
        assert_eq!(queue.initial_left(), waiting + calling, "initial objects whose calls have not returned");

        let keys = (0..KEYS).filter(|key| {
            let delivered = self.delivered.get(key).copied().unwrap_or_default();
            delivered.calling.is_some() || delivered.state.is_some() || self.objects.contains_key(key)
        });
        assert!(queue.len() <= keys.count(), "more entries than existing objects and pending deletions");
        assert!(queue.undelivered() <= queue.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stays_stay_ordered_with_last_state_delivered(doings in prop::collection::vec(action(), 1..120)) {
        let mut queue = DeliveryQueue::new();
        let mut fixture = QueueFixture::default();
        for action in doings {
            match action {
                Action::Write { key, initial } => fixture.write(&mut queue, key, initial),
                Action::Remove { key } => fixture.remove(&mut queue, key),
                Action::Replace { key } => {
                    fixture.remove(&mut queue, key);
                    fixture.write(&mut queue, key, false);
                }
                Action::Resync => {
                    for (key, object) in &fixture.objects {
                        QueueFixture::push(&mut queue, Event::Resynced { object: object_in_queue(key_of(*key), *object) });
                    }
                }
                Action::Take => {
                    if let Some(delivery) = queue.pop() {
                        fixture.take(&delivery);
                    }
                }
                Action::Return => fixture.finish(&mut queue),
            }
            fixture.check(&queue);
        }
        while !queue.is_empty() {
            match queue.pop() {
                Some(delivery) => fixture.take(&delivery),
                None => fixture.finish(&mut queue),
            }
            fixture.check(&queue);
        }
        prop_assert_eq!(queue.initial_left(), 0);
        let delivered = fixture.delivered.iter().filter_map(|(key, delivered)| Some((*key, delivered.state?))).collect::<BTreeMap<_, _>>();
        prop_assert_eq!(delivered, fixture.objects);
    }
}

fn added(key: &str, object: &'static str) -> Change<&'static str> {
    let event = Event::Added { object: object_in_queue(ObjectKey::cluster(key), object), initial: false };
    Change::of_list(event)
}

fn updated(key: &str, old: &'static str, new: &'static str) -> Change<&'static str> {
    let event = Event::Updated {
        old: object_in_queue(ObjectKey::cluster(key), old),
        new: object_in_queue(ObjectKey::cluster(key), new),
    };
    Change::of_list(event)
}

fn deleted(key: &str, last: &'static str) -> Change<&'static str> {
    let (certainty, reason) = (Certainty::Inferred, DeleteReason::Deleted);
    let event =
        Event::Deleted { last: object_in_queue(ObjectKey::cluster(key), last), version: None, certainty, reason };
    Change::of_list(event)
}

fn resynced(key: &str, object: &'static str) -> Change<&'static str> {
    let event = Event::Resynced { object: object_in_queue(ObjectKey::cluster(key), object) };
    Change::of_list(event)
}

/// Drains the queue, one call after the other.
fn delivered(queue: &mut DeliveryQueue<&'static str>) -> Vec<String> {
    let mut delivered = Vec::new();
    while let Some(Delivery { key, event, .. }) = queue.pop() {
        delivered.push(match &event {
            Event::Added { object, .. } => format!("{key} added {object}"),
            Event::Updated { old, new } => format!("{key} updated {old} to {new}"),
            Event::Deleted { last, .. } => format!("{key} deleted {last}"),
            Event::Resynced { object } => format!("{key} resynced {object}"),
        });
        queue.done(&key);
    }
    delivered
}

fn queue(changes: impl IntoIterator<Item = Change<&'static str>>) -> DeliveryQueue<&'static str> {
    let mut queue = DeliveryQueue::new();
    changes.into_iter().for_each(|change| drop(queue.push(change, Instant::ZERO)));
    queue
}

#[test]
fn unseen_deleted_object_is_not_delivered() {
    let mut queue = queue([added("a", "1"), updated("a", "1", "2"), deleted("a", "2")]);
    assert!(queue.is_empty());
    assert_eq!(delivered(&mut queue), Vec::<String>::new());
}

#[test]
fn intermediate_states_are_skipped_last_is_delivered() {
    let mut queue = queue([added("a", "1"), updated("a", "1", "2"), updated("a", "2", "3")]);
    assert_eq!(delivered(&mut queue), ["a added 3"]);
    queue.push(updated("a", "3", "4"), Instant::ZERO);
    queue.push(updated("a", "4", "5"), Instant::ZERO);
    assert_eq!(delivered(&mut queue), ["a updated 3 to 5"]);
}

#[test]
fn push_returns_seen_state_to_be_dropped() {
    let mut queue = queue([added("a", "1")]);
    assert_eq!(delivered(&mut queue), ["a added 1"]);
    assert!(queue.push(updated("a", "1", "2"), Instant::ZERO).is_none());
    assert!(
        queue.push(updated("a", "2", "3"), Instant::ZERO).is_none(),
        "the replaced state is still needed as the old state"
    );
    // The queue returns the replaced state instead of dropping it, because its `Drop` is user code.
    assert_eq!(queue.push(deleted("a", "3"), Instant::ZERO).as_deref(), Some(&"1"));
    assert_eq!(delivered(&mut queue), ["a deleted 3"]);
}

#[test]
fn pending_end_precedes_next_stay() {
    let mut queue = queue([added("a", "1")]);
    assert_eq!(delivered(&mut queue), ["a added 1"]);
    for change in [updated("a", "1", "2"), deleted("a", "2"), added("a", "new"), updated("a", "new", "newer")] {
        queue.push(change, Instant::ZERO);
    }
    assert_eq!(delivered(&mut queue), ["a deleted 2", "a added newer"]);
}

#[test]
fn unseen_stay_between_two_is_skipped() {
    let mut queue = queue([added("a", "1")]);
    assert_eq!(delivered(&mut queue), ["a added 1"]);
    for change in [deleted("a", "1"), added("a", "2"), deleted("a", "2"), added("a", "3")] {
        queue.push(change, Instant::ZERO);
    }
    // The handler must see the end of its stay, but not the stay that it never saw.
    assert_eq!(delivered(&mut queue), ["a deleted 1", "a added 3"]);
}

/// Drains the queue, and returns each event's name with its number of changes.
fn covered(queue: &mut DeliveryQueue<&'static str>) -> Vec<(&'static str, u64)> {
    let mut covered = Vec::new();
    while let Some(Delivery { key, event, changes, .. }) = queue.pop() {
        covered.push((event.name(), changes));
        queue.done(&key);
    }
    covered
}

#[test]
fn delivery_counts_covered_changes() {
    let mut queue = queue([added("a", "1"), updated("a", "1", "2"), added("b", "1")]);
    assert_eq!(covered(&mut queue), [("Added", 2), ("Added", 1)]);
    for change in [updated("a", "2", "3"), updated("a", "3", "4"), updated("a", "4", "5"), resynced("b", "1")] {
        queue.push(change, Instant::ZERO);
    }
    assert_eq!(covered(&mut queue), [("Updated", 3), ("Resynced", 0)]);
    queue.push(resynced("b", "1"), Instant::ZERO);
    for change in [updated("a", "5", "6"), deleted("a", "6"), added("a", "7"), updated("a", "7", "8")] {
        queue.push(change, Instant::ZERO);
    }
    queue.push(updated("b", "1", "2"), Instant::ZERO);
    assert_eq!(
        covered(&mut queue),
        [("Updated", 1), ("Deleted", 2), ("Added", 2)],
        "b is first in the queue since its resync"
    );
    for change in [deleted("a", "8"), added("a", "9"), updated("a", "9", "10"), deleted("a", "10")] {
        queue.push(change, Instant::ZERO);
    }
    assert_eq!(covered(&mut queue), [("Deleted", 4)], "an undelivered stay is merged into the pending deletion");
}

#[test]
fn running_delivery_counts_as_seen() {
    let mut queue = queue([added("a", "1")]);
    let Some(call) = queue.pop() else { panic!("no pending delivery") };
    queue.push(updated("a", "1", "2"), Instant::ZERO);
    queue.push(deleted("a", "2"), Instant::ZERO);
    assert!(queue.pop().is_none(), "a second call for the key while the first runs");
    queue.done(&call.key);
    assert_eq!(delivered(&mut queue), ["a deleted 2"]);
}

#[test]
fn keys_take_turns_despite_a_busy_key() {
    let mut queue = queue([added("busy", "1"), added("a", "1"), updated("busy", "1", "2"), added("b", "1")]);
    assert_eq!(delivered(&mut queue), ["busy added 2", "a added 1", "b added 1"]);
}

#[test]
fn resync_is_delivered_once_and_replaced_by_change() {
    let mut queue = queue([added("a", "1"), added("b", "1")]);
    delivered(&mut queue);
    for change in [resynced("a", "1"), resynced("a", "1"), resynced("b", "1"), updated("b", "1", "2")] {
        queue.push(change, Instant::ZERO);
    }
    assert_eq!(delivered(&mut queue), ["a resynced 1", "b updated 1 to 2"]);
}

#[test]
fn undelivered_entries_are_counted() {
    let mut queue = queue([added("a", "1"), added("b", "1")]);
    let call = queue.pop().map(|call| call.key);
    assert_eq!((queue.len(), queue.undelivered()), (2, 1));
    queue.done(&call.expect("a call"));
    assert_eq!((queue.len(), queue.undelivered()), (1, 1));
}

#[test]
fn keys_are_delivered_oldest_first() {
    let at = |seconds| Instant::from_zero(std::time::Duration::from_secs(seconds));
    let mut queue = queue([]);
    queue.push(added("a", "1"), at(1));
    queue.push(added("b", "1"), at(2));
    queue.push(updated("a", "1", "2"), at(3));
    assert_eq!(queue.waiting_since(), Some(at(1)));
    let Some(call) = queue.pop() else { panic!("no pending delivery") };
    assert_eq!((call.since, queue.waiting_since()), (at(1), Some(at(2))));
    queue.push(updated("a", "2", "3"), at(4));
    queue.push(updated("a", "3", "4"), at(5));
    queue.done(&call.key);
    let second = queue.pop().map(|call| (call.key.to_string(), call.since));
    let third = queue.pop().map(|call| (call.key.to_string(), call.since));
    assert_eq!((second, third), (Some(("b".to_owned(), at(2))), Some(("a".to_owned(), at(4)))));
    assert_eq!(queue.waiting_since(), None);
}
