//! Store that follows a server through changes, disconnections, relists and restores, compared with a naive observer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::test_objects::{TestObject, describe, resource_version, test_object};
use proptest::collection::vec;
use proptest::prelude::*;
use steadfast_core::event::{Change, Rules, StateSource};
use steadfast_core::record::Identity;
use steadfast_core::store::{OfferResult, Snapshot, Store, StoreIndex, Tainted};
use steadfast_core::{Entry, Event, Object, ObjectKey, Uid};

const LIVE: StateSource = StateSource::Watched { deletion: None };
const RELIST: StateSource = StateSource::Listed { initial: false };
const FIRST_LIST: StateSource = StateSource::Listed { initial: true };

/// Action of the server, of the connection, or of the store's owner.
#[derive(Clone, Debug)]
enum Action {
    /// An object is created or changed; its state may be undecodable.
    Write {
        name: u8,
        group: u8,
        broken: bool,
    },
    /// An object is deleted and another takes its name, with or without a record of the deletion.
    Recreate {
        name: u8,
        group: u8,
        broken: bool,
        delivered: bool,
    },
    Delete {
        name: u8,
    },
    /// An old record arrives again.
    Replay {
        name: u8,
    },
    /// No record arrives until the next list.
    Cut,
    List {
        order: u64,
        repeats: bool,
    },
    /// The server returns to its state at the last list.
    Restore,
    Publish,
    AddIndex,
}

fn action() -> impl Strategy<Value = Action> {
    let name = 0..40_u8;
    let broken = || prop::bool::weighted(0.15);
    prop_oneof![
        10 => (name.clone(), 0..4_u8, broken()).prop_map(|(name, group, broken)| Action::Write { name, group, broken }),
        4 => (name.clone(), 0..4_u8, broken(), any::<bool>())
            .prop_map(|(name, group, broken, delivered)| Action::Recreate { name, group, broken, delivered }),
        5 => name.clone().prop_map(|name| Action::Delete { name }),
        1 => name.prop_map(|name| Action::Replay { name }),
        1 => Just(Action::Cut),
        2 => (any::<u64>(), any::<bool>()).prop_map(|(order, repeats)| Action::List { order, repeats }),
        1 => Just(Action::Restore),
        3 => Just(Action::Publish),
        1 => Just(Action::AddIndex),
    ]
}

/// Object on the server.
#[derive(Clone, Debug, PartialEq)]
struct ServerObject {
    uid: String,
    version: u64,
    group: u8,
    broken: bool,
}

type Server = BTreeMap<ObjectKey, ServerObject>;

/// Last delivered object and version of a name. The flag is set after an undecodable state; an equal version is then
/// delivered again.
type Belief = BTreeMap<ObjectKey, (String, u64, bool)>;

/// Server, a store that follows it, and an observer that computes the expected events.
struct StoreModel {
    server: Server,
    backup: Server,
    clock: u64,
    cut: bool,
    restored: bool,
    listed: bool,
    store: Store<TestObject>,
    index: Option<StoreIndex<TestObject, u8>>,
    delivered: Vec<Change<TestObject>>,
    belief: Belief,
    /// Snapshots with their content at the time of creation.
    kept: Vec<(Arc<Snapshot<TestObject>>, Vec<String>)>,
}

fn content(snapshot: &Snapshot<TestObject>) -> Vec<String> {
    let entry = |entry: &Entry<TestObject>| {
        format!("{} {} {} {}", entry.key(), entry.uid(), entry.version(), entry.is_tainted())
    };
    snapshot.iter().map(entry).collect()
}

impl StoreModel {
    fn new() -> Self {
        Self {
            server: Server::new(),
            backup: Server::new(),
            clock: 0,
            cut: true,
            restored: false,
            listed: false,
            store: Store::new(Rules::default()),
            index: None,
            delivered: Vec::new(),
            belief: Belief::new(),
            kept: Vec::new(),
        }
    }

    fn identity(key: &ObjectKey, object: &ServerObject) -> Identity {
        Identity { key: key.clone(), uid: object.uid.as_str().into(), version: resource_version(object.version) }
    }

    fn decoded(object: &ServerObject) -> Result<Arc<TestObject>, Tainted> {
        if object.broken { Err(Tainted) } else { test_object(&object.uid, object.version, object.group) }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Returns the observer's expected events for `key`, by its belief and the current state.
    fn expected(&mut self, key: &ObjectKey, deletion: Option<u64>, initial: bool) -> Vec<String> {
        let mut expected = Vec::new();
        let now = self.server.get(key).cloned();
        if let Some((uid, version, _)) = self.belief.get(key).cloned()
            && now.as_ref().is_none_or(|object| object.uid != uid)
        {
            let how = deletion.map_or(", inferred".to_owned(), |version| format!(" at {version}, observed"));
            let reason = if now.is_some() { "replaced" } else { "deleted" };
            expected.push(format!("{key}: Deleted {uid}@{version}{how}, {reason}"));
            self.belief.remove(key);
        }
        match now {
            Some(ServerObject { broken: true, .. }) => {
                if let Some((_, _, doubted)) = self.belief.get_mut(key) {
                    *doubted = true;
                }
            }
            Some(ServerObject { uid, version, .. }) => {
                match self.belief.insert(key.clone(), (uid.clone(), version, false)) {
                    Some((_, before, false)) if before == version => {}
                    Some((_, before, _)) => expected.push(format!("{key}: Updated {uid}@{before} to {uid}@{version}")),
                    None => {
                        let initial = if initial { " initial" } else { "" };
                        expected.push(format!("{key}: Added {uid}@{version}{initial}"));
                    }
                }
            }
            None => {}
        }
        expected
    }

    /// Delivers the state of `key` and compares the events with the expected ones.
    fn send(&mut self, key: &ObjectKey) {
        if self.cut {
            return;
        }
        let object = self.server[key].clone();
        let expected = self.expected(key, None, false);
        let delivered = &mut self.delivered;
        let from = delivered.len();
        let changed = self
            .store
            .apply(Self::identity(key, &object), Self::decoded(&object), &LIVE, |change| delivered.push(change));
        assert!(changed);
        assert_eq!(self.delivered[from..].iter().map(describe).collect::<Vec<_>>(), expected);
        self.store.advance(resource_version(self.clock));
    }

    fn delete(&mut self, key: &ObjectKey, delivered: bool) {
        let Some(object) = self.server.remove(key) else { return };
        let version = self.tick();
        if self.cut || !delivered {
            return;
        }
        let expected = self.expected(key, Some(version), false);
        let source = StateSource::Watched { deletion: Some(resource_version(version)) };
        let from = self.delivered.len();
        self.store.remove(key, &Uid::from(&*object.uid), &source, |change| self.delivered.push(change));
        assert_eq!(self.delivered[from..].iter().map(describe).collect::<Vec<_>>(), expected);
        assert!(
            !self.store.remove(key, &Uid::from(&*object.uid), &source, |_| panic!("the object was already removed"))
        );
        self.store.advance(resource_version(version));
    }

    fn list(&mut self, order: u64, repeats: bool) {
        let mut items: Vec<_> = self.server.clone().into_iter().collect();
        if repeats && let Some((key, object)) = items.first().cloned() {
            // The list contains an earlier state of the first object before its current state.
            items.insert(0, (key, ServerObject { version: object.version.saturating_sub(1), ..object }));
        }
        if order.is_multiple_of(2) && !repeats {
            items.sort_by_key(|(_, object)| (object.version ^ order) % 97);
        }
        let mut staging = self.store.begin_relist();
        for (key, object) in &items {
            let identity = Self::identity(key, object);
            let held = self.store.working().entry(key.namespace(), key.name());
            let same = held.is_some_and(|held| {
                **held.uid() == *object.uid && *held.version() == identity.version && !held.is_tainted()
            });
            assert_eq!(staging.offer(&identity) == OfferResult::Unchanged, same);
            if !same {
                staging.put(identity, Self::decoded(object));
            }
        }
        let (initial, restored) = (!self.listed, std::mem::take(&mut self.restored));
        let mut keys: Vec<_> = self.server.keys().chain(self.belief.keys()).cloned().collect();
        keys.sort();
        keys.dedup();
        let mut expected: Vec<_> = keys.iter().flat_map(|key| self.expected(key, None, initial)).collect();
        expected.sort_by_key(|line| !line.contains(": Deleted "));
        let from = self.delivered.len();
        let source = if initial { FIRST_LIST } else { RELIST };
        let version = Some(resource_version(self.clock.max(1)));
        self.store.commit(staging, version, &source, restored, |change| self.delivered.push(change)).unwrap();
        assert_eq!(self.delivered[from..].iter().map(describe).collect::<Vec<_>>(), expected);
        (self.cut, self.listed) = (false, true);
        self.backup = self.server.clone();
    }

    fn apply(&mut self, action: &Action) {
        let key_of = |name: u8| ObjectKey::namespaced(format!("ns{}", name % 3), format!("n{name}"));
        match *action {
            Action::Write { name, group, broken } => {
                let (key, version) = (key_of(name), self.tick());
                let uid = self.server.get(&key).map_or_else(|| format!("u{version}"), |object| object.uid.clone());
                self.server.insert(key.clone(), ServerObject { uid, version, group, broken });
                self.send(&key);
            }
            Action::Recreate { name, group, broken, delivered } => {
                let key = key_of(name);
                self.delete(&key, delivered);
                let version = self.tick();
                self.server.insert(key.clone(), ServerObject { uid: format!("u{version}"), version, group, broken });
                self.send(&key);
            }
            Action::Delete { name } => self.delete(&key_of(name), true),
            Action::Replay { name } => {
                let key = key_of(name);
                if let Some(held) = self.store.working().entry(key.namespace(), key.name()).cloned() {
                    let version: u64 = held.version().as_str().parse().unwrap();
                    let older = Identity {
                        key,
                        uid: held.uid().clone(),
                        version: resource_version(version.saturating_sub(1).max(1)),
                    };
                    let changed = self.store.apply(older, Err::<Arc<TestObject>, _>(Tainted), &LIVE, |_| {
                        panic!("an old record must not be reported")
                    });
                    assert!(!changed || version == 1);
                }
            }
            Action::Cut => self.cut = true,
            Action::List { order, repeats } => self.list(order, repeats),
            Action::Restore => {
                self.server = self.backup.clone();
                (self.cut, self.restored) = (true, true);
            }
            Action::Publish => {
                self.store.publish();
                let snapshot = self.store.reader().snapshot();
                let content = content(&snapshot);
                self.kept.push((snapshot, content));
            }
            Action::AddIndex => {
                self.index.get_or_insert_with(|| self.store.add_index(|object: &TestObject| Some(object.group)));
            }
        }
    }

    /// Checks the invariants that hold after every step.
    fn check(&mut self) {
        let working = self.store.working();
        if !self.cut {
            let object = self.server.iter().map(|(key, l)| format!("{key} {} {} {}", l.uid, l.version, l.broken));
            assert_eq!(content(working), object.collect::<Vec<_>>());
        }
        let tainted = working.iter().filter(|entry| entry.is_tainted()).map(Entry::key);
        assert!(working.tainted().iter().eq(tainted));

        self.store.publish();
        let snapshot = self.store.reader().snapshot();
        for group in 0..4 {
            let Some(index) = &self.index else { break };
            let found = snapshot.by_index(index, &group);
            let all = snapshot.iter().filter_map(Entry::last);
            assert!(found.eq(all.filter(|object| object.group == group)), "the index equals a scan");
        }
    }

    /// Checks the invariants that hold at the end.
    fn conclude(self) {
        for (snapshot, content_then) in &self.kept {
            assert_eq!(&content(snapshot), content_then, "a snapshot never changes");
        }
        // C1 and C5: per stay Added, Updated*, Deleted, each with the previously delivered state.
        let mut delivered: BTreeMap<ObjectKey, Object<TestObject>> = BTreeMap::new();
        for change in self.delivered {
            let (key, event) = (change.key().clone(), change.event);
            assert_eq!(event.object().uid, *event.object().identity().uid);
            match event {
                Event::Added { object, .. } => assert!(delivered.insert(key, object).is_none()),
                Event::Updated { old, new } => {
                    assert_eq!(old.uid, new.uid);
                    assert!(delivered.insert(key, new).unwrap().is(&old));
                }
                Event::Deleted { last, .. } => assert!(delivered.remove(&key).unwrap().is(&last)),
                Event::Resynced { .. } => panic!("a resync that was not requested"),
            }
        }
        let working = self.store.working();
        let held = working.iter().filter_map(|entry| Some((entry.key(), entry.last()?)));
        assert!(delivered.iter().eq(held), "the replayed events must yield the content of the store");
    }
}

proptest! {
    #[test]
    fn store_follows_server_like_naive_observer(
        actions in vec(action(), 0..250)
    ) {
        let mut model = StoreModel::new();
        for (number, action) in actions.iter().enumerate() {
            model.apply(action);
            // Not after every step, so that several edits share a publication.
            if number % 7 == 0 {
                model.check();
            }
        }
        model.list(1, false);
        model.check();
        model.conclude();
    }
}
