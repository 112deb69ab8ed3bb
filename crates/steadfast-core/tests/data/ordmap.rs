//! Ordered map: it behaves like a `BTreeMap`, and its clones never change.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use steadfast_core::ordmap::OrdMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Number(u16);

#[derive(Clone, Debug)]
enum Edit {
    Insert(Number, u32),
    /// Changes a value in place.
    Change(Number, u32),
    Remove(Number),
    /// Removes all keys of a range, so that nodes become empty.
    Clear(u16, u16),
    Snapshot,
    Rebuild,
}

fn edit() -> impl Strategy<Value = Edit> {
    let key = 0..700_u16;
    prop_oneof![
        12 => (key.clone(), any::<u32>()).prop_map(|(key, value)| Edit::Insert(Number(key), value)),
        4 => (key.clone(), any::<u32>()).prop_map(|(key, value)| Edit::Change(Number(key), value)),
        6 => key.clone().prop_map(|key| Edit::Remove(Number(key))),
        1 => (key.clone(), 0..200_u16).prop_map(|(from, many)| Edit::Clear(from, from + many)),
        1 => Just(Edit::Snapshot),
        1 => Just(Edit::Rebuild),
    ]
}

fn entries(map: &OrdMap<Number, u32>) -> Vec<(Number, u32)> {
    map.iter().map(|(key, value)| (*key, *value)).collect()
}

fn expected(map: &BTreeMap<Number, u32>) -> Vec<(Number, u32)> {
    map.iter().map(|(key, value)| (*key, *value)).collect()
}

proptest! {
    #[test]
    fn map_equals_btree_map_and_snapshots_never_change(edits in vec(edit(), 0..1500), probes in vec(0..720_u16, 8)) {
        let (mut map, mut model) = (OrdMap::default(), BTreeMap::new());
        let mut snapshots = Vec::new();
        for edit in edits {
            match edit {
                Edit::Insert(key, value) => prop_assert_eq!(map.insert(key, value), model.insert(key, value)),
                Edit::Change(key, value) => {
                    let (held, modelled) = (map.get_mut(&key), model.get_mut(&key));
                    prop_assert_eq!(&held, &modelled);
                    if let (Some(held), Some(modelled)) = (held, modelled) {
                        (*held, *modelled) = (value, value);
                    }
                }
                Edit::Remove(key) => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                Edit::Clear(from, to) => {
                    for key in (from..to).map(Number) {
                        prop_assert_eq!(map.remove(&key), model.remove(&key));
                    }
                }
                Edit::Snapshot => snapshots.push((map.clone(), expected(&model))),
                Edit::Rebuild => map = OrdMap::from_sorted(expected(&model)),
            }
            prop_assert_eq!(map.len(), model.len());
        }
        snapshots.push((map.clone(), expected(&model)));
        for (snapshot, expected) in &snapshots {
            prop_assert_eq!(&entries(snapshot), expected);
        }
        for probe in probes.into_iter().map(Number) {
            prop_assert_eq!(map.get(&probe), model.get_key_value(&probe));
            let from: Vec<_> = map.starting_at(|key| key.cmp(&probe)).map(|(key, value)| (*key, *value)).collect();
            let modelled: Vec<_> = model.range(probe..).map(|(key, value)| (*key, *value)).collect();
            prop_assert_eq!(from, modelled);
            let decade: Vec<_> = map.range_by(|key| (key.0 / 10).cmp(&(probe.0 / 10))).map(|(key, _)| *key).collect();
            let modelled: Vec<_> = model.keys().copied().filter(|key| key.0 / 10 == probe.0 / 10).collect();
            prop_assert_eq!(decade, modelled);
        }
    }
}

#[test]
fn map_grows_and_shrinks_in_any_order() {
    const COUNT: u32 = 20_000;
    // 7919 and the count are coprime, so each key occurs once.
    let scattered = |at: u32| at * 7919 % COUNT;
    for order in [|at| at, |at| COUNT - 1 - at, scattered] as [fn(u32) -> u32; 3] {
        let mut map = OrdMap::default();
        for at in 0..COUNT {
            map.insert(order(at), at);
        }
        assert!(map.iter().map(|(key, _)| *key).eq(0..COUNT));
        let full = map.clone();
        for at in 0..COUNT {
            assert_eq!(map.remove(&order(at)), Some(at));
        }
        assert!(map.is_empty());
        assert_eq!(map.iter().count(), 0);
        assert_eq!(full.len(), full.iter().count());
    }
}

#[test]
fn insert_keeps_existing_key() {
    let mut map = OrdMap::default();
    let first: std::sync::Arc<str> = "a".into();
    map.insert(first.clone(), 1);
    map.insert("a".into(), 2);
    let (held, value) = map.get(&first).unwrap();
    assert!(std::sync::Arc::ptr_eq(held, &first));
    assert_eq!(*value, 2);
}
