//! Handlers with a filter, and handlers that receive each event, against a model. Random steps write objects, cut the
//! watch and list again. An observer compares the store before and after each step.

use std::collections::BTreeMap;

use crate::test_objects::{TestObject, describe, resource_version, test_object};
use proptest::collection::vec;
use proptest::prelude::*;
use steadfast_core::event::{Change, Rules, StateSource};
use steadfast_core::filter::Filter;
use steadfast_core::queue::{Delivery, DeliveryQueue};
use steadfast_core::record::Identity;
use steadfast_core::store::{OfferResult, Store};
use steadfast_core::{Event, Instant, Object, ObjectKey};

const NAMES: u8 = 6;
/// Group that passes the filter.
const ACCEPTED_GROUP: u8 = 0;

#[derive(Clone, Debug)]
enum Action {
    /// An object is created or changed, and may change its group.
    Write {
        name: u8,
        group: u8,
    },
    /// An object is deleted and another takes its name, with or without a record of the deletion.
    Recreate {
        name: u8,
        group: u8,
        shown: bool,
    },
    Delete {
        name: u8,
    },
    /// No record arrives until the next list.
    Cut,
    List,
    /// Resync of all cached objects.
    Resync,
    /// The handler takes its next call.
    Take,
    /// The oldest running call returns.
    Return,
}

fn action() -> impl Strategy<Value = Action> {
    let (name, group) = (0..NAMES, 0..2_u8);
    prop_oneof![
        8 => (name.clone(), group.clone()).prop_map(|(name, group)| Action::Write { name, group }),
        2 => (name.clone(), group, any::<bool>())
            .prop_map(|(name, group, shown)| Action::Recreate { name, group, shown }),
        3 => name.prop_map(|name| Action::Delete { name }),
        1 => Just(Action::Cut),
        1 => Just(Action::List),
        1 => Just(Action::Resync),
        4 => Just(Action::Take),
        4 => Just(Action::Return),
    ]
}

/// Object on the server: UID, version and group.
type ServerObject = (u32, u64, u8);

/// Source of a change.
#[derive(Clone, Copy)]
enum ChangeSource {
    Watched,
    Deleted(u64),
    Listed { initial: bool },
}

struct HandlerFixture {
    server: BTreeMap<u8, ServerObject>,
    uids: u32,
    clock: u64,
    cut: bool,
    listed: bool,
    store: Store<TestObject>,
    filter: Option<Filter>,
    queue: DeliveryQueue<TestObject>,
    /// Events that entered the queue, and events that were delivered.
    pushed: Vec<String>,
    delivered: Vec<String>,
    missed: u64,
    /// State of each object that the handler has seen in its current stay.
    shown: BTreeMap<ObjectKey, Object<TestObject>>,
    running: Vec<ObjectKey>,
}

fn key(name: u8) -> ObjectKey {
    ObjectKey::namespaced("shop", format!("n{name}").as_str())
}

impl HandlerFixture {
    fn new(filter: Option<Filter>, queue: DeliveryQueue<TestObject>) -> Self {
        Self {
            server: BTreeMap::new(),
            uids: 0,
            clock: 0,
            cut: true,
            listed: false,
            store: Store::new(Rules::default()),
            filter,
            queue,
            pushed: Vec::new(),
            delivered: Vec::new(),
            missed: 0,
            shown: BTreeMap::new(),
            running: Vec::new(),
        }
    }

    fn accepts(&self, object: &TestObject) -> bool {
        self.filter.is_none() || object.group == ACCEPTED_GROUP
    }

    /// Returns the content of the store.
    fn stored(&self) -> BTreeMap<ObjectKey, Object<TestObject>> {
        let held = self.store.working().iter();
        held.filter_map(|entry| Some((entry.key().clone(), entry.last()?.clone()))).collect()
    }

    /// Returns the expected events of the handler for the step from `before` to the current state.
    fn expected(&self, before: &BTreeMap<ObjectKey, Object<TestObject>>, source: ChangeSource) -> Vec<String> {
        let after = self.stored();
        let state = |object: &TestObject| format!("{}@{}", object.uid, object.version);
        let mut expected = Vec::new();
        for key in (0..NAMES).map(key) {
            let (old, new) = (before.get(&key), after.get(&key));
            let (last_seen, visible) =
                (old.filter(|object| self.accepts(object)), new.filter(|object| self.accepts(object)));
            let same = matches!((old, new), (Some(old), Some(new)) if old.uid == new.uid);
            if let Some(last_seen) = last_seen
                && (visible.is_none() || !same)
            {
                let how = match (source, new) {
                    (ChangeSource::Deleted(version), _) => format!(" at {version}, observed"),
                    (ChangeSource::Watched, Some(new)) if same => format!(" at {}, observed", new.version),
                    _ => ", inferred".to_owned(),
                };
                let reason = match new {
                    None => "deleted",
                    Some(_) if same => "left the handler's filter",
                    Some(_) => "replaced",
                };
                expected.push(format!("{key}: Deleted {}{how}, {reason}", state(last_seen)));
            }
            match (last_seen, visible) {
                (Some(last_seen), Some(visible)) if same => {
                    if last_seen.version != visible.version {
                        expected.push(format!("{key}: Updated {} to {}", state(last_seen), state(visible)));
                    }
                }
                (_, Some(visible)) => {
                    let first = matches!(source, ChangeSource::Listed { initial: true });
                    expected.push(format!("{key}: Added {}{}", state(visible), if first { " initial" } else { "" }));
                }
                (_, None) => {}
            }
        }
        if let ChangeSource::Listed { .. } = source {
            // A list delivers its deletions before its other changes.
            expected.sort_by_key(|line| {
                if line.contains(": Deleted ") { usize::from(line.ends_with("left the handler's filter")) } else { 2 }
            });
        }
        expected
    }

    /// Applies `edit` to the store, passes the changes through the handler's filter and queue, and checks them.
    fn edit(&mut self, source: ChangeSource, edit: impl FnOnce(&mut Store<TestObject>, &mut Vec<Change<TestObject>>)) {
        let before = self.stored();
        let mut changes = Vec::new();
        edit(&mut self.store, &mut changes);
        if let Some(filter) = &mut self.filter {
            changes = changes
                .iter()
                .filter_map(|change| filter.pass(change, |object| object.group == ACCEPTED_GROUP))
                .collect();
            Filter::deletions_first(&mut changes);
        }
        let seen: Vec<String> = changes.iter().map(describe).collect();
        assert_eq!(seen, self.expected(&before, source));
        self.push(changes);
    }

    fn push(&mut self, changes: Vec<Change<TestObject>>) {
        self.pushed.extend(changes.iter().map(describe));
        for change in changes {
            self.queue.push(change, Instant::ZERO);
        }
    }

    fn apply(&mut self, action: &Action) {
        match *action {
            Action::Write { name, group } => {
                let uid = self.server.get(&name).map(|(uid, ..)| *uid);
                self.write(name, uid, group, true);
            }
            Action::Recreate { name, group, shown } => {
                if shown {
                    self.delete(name);
                } else {
                    self.server.remove(&name);
                }
                self.write(name, None, group, true);
            }
            Action::Delete { name } => self.delete(name),
            Action::Cut => self.cut = true,
            Action::List => self.list(),
            Action::Resync => self.resync(),
            Action::Take => self.take(),
            Action::Return => self.finish(),
        }
    }

    fn write(&mut self, name: u8, uid: Option<u32>, group: u8, shown: bool) {
        self.clock += 1;
        let uid = uid.unwrap_or_else(|| {
            self.uids += 1;
            self.uids
        });
        let version = self.clock;
        self.server.insert(name, (uid, version, group));
        if !self.cut && shown {
            let uid = uid.to_string();
            self.edit(ChangeSource::Watched, |store, changes| {
                let identity =
                    Identity { key: key(name), uid: uid.as_str().into(), version: resource_version(version) };
                let source = StateSource::Watched { deletion: None };
                store.apply(identity, test_object(&uid, version, group), &source, |change| changes.push(change));
            });
        }
    }

    fn delete(&mut self, name: u8) {
        let Some((uid, ..)) = self.server.remove(&name) else { return };
        self.clock += 1;
        let version = self.clock;
        if !self.cut {
            self.edit(ChangeSource::Deleted(version), |store, changes| {
                let source = StateSource::Watched { deletion: Some(resource_version(version)) };
                store.remove(&key(name), &uid.to_string().as_str().into(), &source, |change| changes.push(change));
            });
        }
    }

    fn list(&mut self) {
        let initial = !std::mem::replace(&mut self.listed, true);
        (self.cut, self.clock) = (false, self.clock + 1);
        let (server, version) = (self.server.clone(), self.clock);
        self.edit(ChangeSource::Listed { initial }, |store, changes| {
            let mut staging = store.begin_relist();
            for (name, (uid, version, group)) in server {
                let uid = uid.to_string();
                let identity =
                    Identity { key: key(name), uid: uid.as_str().into(), version: resource_version(version) };
                if staging.offer(&identity) == OfferResult::Requested {
                    staging.put(identity, test_object(&uid, version, group));
                }
            }
            let source = StateSource::Listed { initial };
            store
                .commit(staging, Some(resource_version(version)), &source, false, |change| changes.push(change))
                .expect("the list is newer");
        });
    }

    fn resync(&mut self) {
        let mut resyncs = Vec::new();
        for (key, object) in self.stored() {
            if self.filter.as_ref().is_none_or(|filter| filter.has(&key)) {
                assert!(self.accepts(&object));
                resyncs.push(Change::of_list(Event::Resynced { object }));
            }
        }
        self.push(resyncs);
    }

    fn take(&mut self) {
        let Some(Delivery { key, event, missed, .. }) = self.queue.pop() else { return };
        assert!(!self.running.contains(&key), "two concurrent calls for one key");
        self.missed += missed;
        assert!(
            self.accepts(event.object()),
            "an object outside the filter must not be delivered, not even as the last state"
        );
        match &event {
            Event::Added { object, .. } => {
                assert!(self.shown.insert(key.clone(), object.clone()).is_none(), "the previous stay has not ended");
            }
            Event::Updated { old, new } => {
                let last_seen = self.shown.insert(key.clone(), new.clone()).expect("the object was added before");
                assert!(last_seen.is(old) && old.uid == new.uid, "`old` must be the last delivered state");
                assert!(new.version > old.version);
            }
            Event::Deleted { last, .. } => {
                let last_seen = self.shown.remove(&key).expect("the object was added before");
                assert!(last_seen.uid == last.uid && last_seen.version <= last.version);
            }
            Event::Resynced { object } => assert!(self.shown[&key].is(object)),
        }
        self.delivered.push(describe(&Change::of_list(event)));
        self.running.push(key);
    }

    fn finish(&mut self) {
        if !self.running.is_empty() {
            let key = self.running.remove(0);
            self.queue.done(&key);
        }
    }

    /// Relists and drains the handler's queue; the handler has then seen the final state.
    fn conclude(&mut self) {
        self.list();
        while !self.queue.is_empty() {
            self.take();
            self.finish();
        }
        let held: BTreeMap<_, _> = self.stored().into_iter().filter(|(_, object)| self.accepts(object)).collect();
        assert_eq!(self.shown, held);
        assert_eq!(self.queue.initial_left(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn filtered_handler_sees_stays_within_filter(
        actions in vec(action(), 0..200)
    ) {
        let mut fixture = HandlerFixture::new(Some(Filter::default()), DeliveryQueue::new());
        for action in &actions {
            fixture.apply(action);
        }
        fixture.conclude();
        prop_assert_eq!(fixture.missed, 0, "a handler of latest states must not report missed events");
    }

    #[test]
    fn each_event_is_delivered_in_order_or_counted(
        actions in vec(action(), 0..200),
        bound in prop_oneof![Just(0_usize), 1..8_usize, Just(10_000)],
        filtered in any::<bool>(),
    ) {
        let queue = DeliveryQueue::each(bound);
        let mut fixture = HandlerFixture::new(filtered.then(Filter::default), queue);
        for action in &actions {
            fixture.apply(action);
            let undelivered = fixture.queue.undelivered();
            prop_assert!(undelivered <= bound + usize::from(NAMES), "{undelivered} events are pending, above the bound of {bound}");
        }
        fixture.conclude();
        let changes = |all: &[String]| all.iter().filter(|event| !event.contains("Resynced")).count() as u64;
        // The queue still contains the count of merged events since the last delivery.
        let missed = fixture.missed + fixture.queue.missed();
        prop_assert_eq!(changes(&fixture.delivered) + missed, changes(&fixture.pushed), "each event is delivered or counted");
        if bound == 10_000 {
            // Only the order per name is compared: a running call for one name delays further calls for this name, but
            // not for others.
            prop_assert_eq!(&fixture.delivered.len(), &fixture.pushed.len());
            let of = |all: &[String], name: &str| -> Vec<String> {
                all.iter().filter(|event| event.starts_with(name)).cloned().collect()
            };
            for name in 0..NAMES {
                let name = format!("{}:", key(name));
                prop_assert_eq!(of(&fixture.delivered, &name), of(&fixture.pushed, &name));
            }
        }
    }
}

#[test]
fn sequential_calls_keep_order_across_names() {
    let mut fixture = HandlerFixture::new(None, DeliveryQueue::each(100));
    fixture.list();
    for (name, group) in [(1, 0), (2, 0), (1, 1), (3, 0), (2, 1), (1, 0)] {
        fixture.apply(&Action::Write { name, group });
    }
    fixture.apply(&Action::Delete { name: 1 });
    fixture.conclude();
    assert_eq!(fixture.delivered, fixture.pushed);
    assert_eq!(fixture.delivered.len(), 7);
}
