//! The store, with the entries of a cluster of realistic size.

use std::sync::Arc;

use steadfast_core::ObjectKey;
use steadfast_core::event::{Rules, StateSource};
use steadfast_core::record::Identity;
use steadfast_core::store::{Lookup, OfferResult, Staging, Store};

use crate::meter::Meter;
use crate::sample;

/// Number of entries in the store.
pub(super) const ENTRIES: usize = 10_000;

/// Number of namespaces with entries, equal to the bench's.
const NAMESPACES: usize = 50;

pub(super) const WATCHED: StateSource = StateSource::Watched { deletion: None };

const LISTED: StateSource = StateSource::Listed { initial: true };

/// Cached object. Its content is irrelevant to the store.
type Object = Arc<u64>;

fn namespace(number: usize) -> String {
    format!("team-{}", number % NAMESPACES)
}

/// Returns a name in the pattern of the bench: twenty pods per deployment.
fn name(number: usize) -> String {
    format!(
        "service-{}-{:010x}-{number:05}",
        number / 20,
        (number as u64 / 20).wrapping_mul(0x9e37_79b9) & 0xff_ffff_ffff
    )
}

/// Returns the identity of entry number `number` at a version.
pub(super) fn identity(number: usize, version: usize) -> Identity {
    Identity {
        key: ObjectKey::namespaced(namespace(number), name(number)),
        uid: format!("00000000-0000-4000-8000-{number:012x}").as_str().into(),
        version: sample::version(version).as_str().into(),
    }
}

/// Returns a different number for each `turn`, scattered so that consecutive entries are not neighbours.
fn scattered(turn: usize) -> usize {
    // 7919 is a prime and has no common factor with the number of entries.
    turn.wrapping_mul(7_919) % ENTRIES
}

fn stage(staging: &mut Staging<u64>, listed: Vec<Identity>, object: &Object) -> usize {
    let mut wanted = 0;
    for identity in listed {
        if staging.offer(&identity) == OfferResult::Requested {
            wanted += 1;
            staging.put(identity, Ok(object.clone()));
        }
    }
    wanted
}

/// Returns a store with published entries.
pub(super) fn filled<K: Send + Sync + 'static>(object: &Arc<K>) -> Store<K> {
    let mut store = Store::new(Rules::default());
    let mut staging = store.begin_relist();
    for number in 0..ENTRIES {
        staging.put(identity(number, 0), Ok(object.clone()));
    }
    // `drop` discards the changes, which no handler receives here.
    store.commit(staging, Some(sample::version(0).as_str().into()), &LISTED, false, drop).expect("a newer list");
    store.publish();
    store
}

pub(super) fn first_list(meter: &mut Meter, count: usize) {
    let object = Object::default();
    let mut store = Store::new(Rules::default());
    let listed: Vec<_> = (0..count).map(|number| identity(number, 0)).collect();
    let changes = meter.count(|| {
        let mut staging = store.begin_relist();
        stage(&mut staging, listed, &object);
        let mut changes = 0;
        let committed =
            store.commit(staging, Some(sample::version(0).as_str().into()), &LISTED, false, |_| changes += 1);
        committed.map(|()| changes)
    });
    assert_eq!(changes, Ok(count));
}

pub(super) fn same_list(meter: &mut Meter, count: usize) {
    let object = Object::default();
    let mut store = Store::new(Rules::default());
    for round in 0..2 {
        // Identities are built outside of the measured part, as the framing would have done.
        let listed: Vec<_> = (0..count).map(|number| identity(number, 0)).collect();
        let relist = || {
            let mut staging = store.begin_relist();
            let wanted = stage(&mut staging, listed, &object);
            let version = sample::version(round).as_str().into();
            store.commit(staging, Some(version), &LISTED, false, drop).map(|()| wanted)
        };
        let wanted = if round == 0 { relist() } else { meter.count(relist) };
        assert_eq!(wanted, Ok(if round == 0 { count } else { 0 }));
    }
}

pub(super) fn edit(meter: &mut Meter, count: usize) {
    let object = Object::default();
    let mut store = filled(&object);
    for turn in 1..=count {
        let (identity, mut changes) = (identity(scattered(turn), turn), 0);
        meter.count(|| store.apply(identity, Ok(object.clone()), &WATCHED, |_| changes += 1));
        assert_eq!(changes, 1);
        // Published after each edit: an unpublished tree could be changed in place, which costs less.
        store.publish();
    }
}

pub(super) fn publish(meter: &mut Meter, count: usize) {
    let object = Object::default();
    let mut store = filled(&object);
    let reader = store.reader();
    for turn in 1..=count {
        let identity = identity(scattered(turn), turn);
        let version = identity.version.clone();
        store.apply(identity, Ok(object.clone()), &WATCHED, drop);
        store.advance(version.clone());
        meter.count(|| store.publish());
        assert_eq!(reader.snapshot().version(), Some(&version));
    }
}

pub(super) fn get(meter: &mut Meter, count: usize) {
    let reader = filled(&Object::default()).reader();
    for turn in 0..count {
        let (namespace, name) = (namespace(scattered(turn)), name(scattered(turn)));
        let found = meter.count(|| reader.get(Some(&namespace), &name));
        assert!(matches!(found, Lookup::Found(_)));
    }
}

pub(super) fn namespace_listed(meter: &mut Meter, count: usize) {
    let reader = filled(&Object::default()).reader();
    let each = ENTRIES / NAMESPACES;
    // Each call lists one namespace, so that fewer calls reach the number of objects.
    for turn in 0..count.div_ceil(each) {
        let namespace = namespace(turn);
        let snapshot = reader.snapshot();
        let seen = meter.count(|| snapshot.namespace(&namespace).filter(|entry| entry.last().is_some()).count());
        assert_eq!(seen, each);
    }
}
