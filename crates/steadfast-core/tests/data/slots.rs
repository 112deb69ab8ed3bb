//! Stores with colliding hashes behave like an ordered map, and their snapshots never change, including reused slots
//! and indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use steadfast_core::event::{Rules, StateSource};
use steadfast_core::record::Identity;
use steadfast_core::store::{IndexSnapshot, Lookup, OfferResult, Snapshot, Store, StoreIndex};
use steadfast_core::{Object, ObjectKey, ResourceVersion, Uid};

/// Object: its identity and version, and the group of its index.
struct TestObject {
    uid: String,
    version: u64,
    group: u8,
}

fn resource_version(version: u64) -> ResourceVersion {
    ResourceVersion::from(version.to_string().as_str())
}

const LIVE: StateSource = StateSource::Watched { deletion: None };

#[derive(Clone, Debug)]
enum Edit {
    Put(u16, u8),
    Remove(u16),
    /// Removes a range of keys, so that nodes become empty and slots vacant.
    Clear(u16, u16),
    /// Relists the range in full. All other cached objects are listed as unchanged, or dropped if `drops` is set.
    List {
        from: u16,
        to: u16,
        group: u8,
        drops: bool,
        new_epoch: bool,
    },
    Publish,
}

fn edit() -> impl Strategy<Value = Edit> {
    let number = 0..600_u16;
    prop_oneof![
        20 => (number.clone(), 0..9_u8).prop_map(|(number, group)| Edit::Put(number, group)),
        10 => number.clone().prop_map(Edit::Remove),
        1 => (number.clone(), 0..200_u16).prop_map(|(from, many)| Edit::Clear(from, from + many)),
        1 => (number, 0..300_u16, 0..9_u8, any::<bool>(), any::<bool>())
            .prop_map(|(from, many, group, drops, new_epoch)| Edit::List { from, to: from + many, group, drops, new_epoch }),
        2 => Just(Edit::Publish),
    ]
}

/// Generates hash masks: all bits; few bits, so that many keys collide fully or at the root; no bits.
fn masks() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![u32::MAX, 0x7000_0000, 0x7, 0xf0f0_f0f0, 0])
}

fn key(number: u16) -> ObjectKey {
    match number % 4 {
        3 => ObjectKey::cluster(format!("n{number}")),
        team => ObjectKey::namespaced(format!("team-{team}"), format!("n{number}")),
    }
}

/// Returns the values of an object in the multi-value index: none, one or two.
fn factors(group: u8) -> Vec<u8> {
    (2..=4).filter(|factor| group.is_multiple_of(*factor)).collect()
}

/// Expected content: group and version by key.
type Model = BTreeMap<ObjectKey, (u8, u64)>;

struct StoreFixture {
    store: Store<TestObject>,
    groups: StoreIndex<TestObject, u8>,
    factors: StoreIndex<TestObject, u8>,
    model: Model,
    version: u64,
    kept: Vec<(Arc<Snapshot<TestObject>>, Model)>,
}

impl StoreFixture {
    fn new(mask: u32) -> Self {
        let mut store = Store::with_hash_bits(Rules::default(), mask);
        let groups = store.add_index(|object: &TestObject| Some(object.group));
        let factors = store.add_index(|object: &TestObject| factors(object.group));
        Self { store, groups, factors, model: Model::new(), version: 0, kept: Vec::new() }
    }

    /// Creates the object at `key`. The UID contains the key, so that an object in a wrong slot is detected.
    fn state(key: &ObjectKey, group: u8, version: u64) -> (Identity, Arc<TestObject>) {
        let uid = format!("u-{key}");
        let identity = Identity { key: key.clone(), uid: Uid::from(uid.as_str()), version: resource_version(version) };
        (identity, Arc::new(TestObject { uid, version, group }))
    }

    fn remove(&mut self, number: u16) {
        let key = key(number);
        let existed = self.model.remove(&key).is_some();
        let removed = self.store.remove(&key, &Uid::from(format!("u-{key}").as_str()), &LIVE, drop);
        assert_eq!(removed, existed);
    }

    fn edit(&mut self, edit: &Edit) {
        self.version += 1;
        match *edit {
            Edit::Put(number, group) => {
                let key = key(number);
                let (identity, object) = Self::state(&key, group, self.version);
                assert!(self.store.apply(identity, Ok(object), &LIVE, drop));
                self.model.insert(key, (group, self.version));
            }
            Edit::Remove(number) => self.remove(number),
            Edit::Clear(from, to) => (from..to).for_each(|number| self.remove(number)),
            Edit::List { from, to, group, drops, new_epoch } => {
                if drops {
                    self.model.clear();
                }
                self.model.extend((from..to).map(|number| (key(number), (group, self.version))));
                let mut staging = if new_epoch { self.store.begin_new_epoch() } else { self.store.begin_relist() };
                for (key, (group, version)) in &self.model {
                    let (identity, object) = Self::state(key, *group, *version);
                    if staging.offer(&identity) == OfferResult::Requested {
                        staging.put(identity, Ok(object));
                    }
                }
                let source = StateSource::Listed { initial: false };
                self.store.commit(staging, Some(resource_version(self.version)), &source, new_epoch, drop).unwrap();
            }
            Edit::Publish => self.publish(),
        }
    }

    fn publish(&mut self) {
        self.store.advance(resource_version(self.version));
        self.store.publish();
        self.kept.push((self.store.reader().snapshot(), self.model.clone()));
    }

    fn check(&self, snapshot: &Snapshot<TestObject>, model: &Model, probes: &[u16]) {
        assert_eq!(snapshot.len(), model.len());
        let held = snapshot.iter().map(|entry| (entry.key().clone(), seen(entry.object().unwrap())));
        assert!(held.eq(model.iter().map(|(key, state)| (key.clone(), *state))));
        for team in 0..3 {
            let team = format!("team-{team}");
            let names = snapshot.namespace(&team).map(|entry| entry.key().clone());
            assert!(names.eq(model.keys().filter(|key| key.namespace() == Some(&team)).cloned()));
        }
        for key in probes.iter().map(|number| key(*number)) {
            let found = [snapshot.get(key.namespace(), key.name()), snapshot.get_by_key(&key)].map(Lookup::found);
            for found in found {
                assert_eq!(found.as_ref().map(seen), model.get(&key).copied());
                assert!(found.is_none_or(|found| *found.key() == key));
            }
        }
        for value in 0..9 {
            let of = |is: &dyn Fn(u8) -> bool| -> Vec<ObjectKey> {
                model.iter().filter(|(_, (group, _))| is(*group)).map(|(key, _)| key.clone()).collect()
            };
            assert_eq!(indexed(snapshot, &self.groups, value), of(&|group| group == value));
            assert_eq!(indexed(snapshot, &self.factors, value), of(&|group| factors(group).contains(&value)));
        }
        let groups: BTreeSet<u8> = model.values().map(|(group, _)| *group).collect();
        let counts: Arc<IndexSnapshot<TestObject, u8>> = snapshot.index_snapshot(&self.groups);
        assert!(counts.counts().map(|(group, _)| *group).eq(groups));
        assert_eq!(counts.counts().map(|(_, count)| count).sum::<usize>(), model.len());
    }
}

fn seen(object: &Object<TestObject>) -> (u8, u64) {
    assert_eq!(object.uid, format!("u-{}", object.key()), "the slot contains an object of another name");
    (object.group, object.version)
}

fn indexed(snapshot: &Snapshot<TestObject>, index: &StoreIndex<TestObject, u8>, value: u8) -> Vec<ObjectKey> {
    let found: Vec<ObjectKey> = snapshot.by_index(index, &value).map(|object| object.key().clone()).collect();
    assert_eq!(snapshot.index_snapshot(index).count(&value), found.len());
    found
}

proptest! {
    #[test]
    fn edits_match_btree_map_and_snapshots_persist(
        mask in masks(), edits in vec(edit(), 0..300), probes in vec(0..620_u16, 30)
    ) {
        let mut fixture = StoreFixture::new(mask);
        for edit in &edits {
            fixture.edit(edit);
        }
        fixture.publish();
        // The snapshots are checked last, after all edits that could modify them.
        for (snapshot, model) in &fixture.kept {
            fixture.check(snapshot, model, &probes);
        }
    }
}

#[test]
fn reused_slot_stays_hidden_from_older_snapshots() {
    let mut fixture = StoreFixture::new(u32::MAX);
    fixture.edit(&Edit::Put(1, 5));
    fixture.edit(&Edit::Publish);
    fixture.edit(&Edit::Remove(1));
    // No other slot is vacant, so this object reuses the slot of the removed one. Group and position in the order are
    // equal.
    fixture.edit(&Edit::Put(0, 5));
    fixture.edit(&Edit::Publish);
    for (snapshot, model) in &fixture.kept {
        fixture.check(snapshot, model, &[0, 1]);
    }
}

#[test]
fn keys_with_equal_hashes_are_found_and_removed() {
    const OBJECTS: u16 = 3_000;
    let mut fixture = StoreFixture::new(0);
    for number in 0..OBJECTS {
        fixture.edit(&Edit::Put(number * 7 % OBJECTS, 1));
    }
    fixture.edit(&Edit::Publish);
    for number in 0..OBJECTS {
        fixture.edit(&Edit::Remove(number * 11 % OBJECTS));
    }
    fixture.edit(&Edit::Publish);
    let all: Vec<u16> = (0..OBJECTS + 10).collect();
    for (snapshot, model) in &fixture.kept {
        fixture.check(snapshot, model, &all);
    }
    assert_eq!(fixture.kept.iter().map(|(_, model)| model.len()).collect::<Vec<_>>(), [usize::from(OBJECTS), 0]);
}
