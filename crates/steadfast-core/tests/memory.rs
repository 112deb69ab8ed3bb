//! Footprint of a snapshot, compared with the allocator's counts.

use std::alloc::System;
use std::sync::Arc;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use steadfast_core::ObjectKey;
use steadfast_core::event::{Rules, StateSource};
use steadfast_core::record::Identity;
use steadfast_core::store::{Footprint, Store};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const COUNT: usize = 20_000;

/// Maximum relative difference between the footprint and the allocations.
const TOLERANCE: f64 = 0.1;

/// Maximum memory of the lookup structures per entry in bytes, without the entries and keys.
const MAX_LAYOUT_BYTES_PER_ENTRY: usize = 48;

fn identity(number: usize, version: usize) -> Identity {
    Identity {
        key: ObjectKey::namespaced(format!("team-{}", number % 50), format!("service-{number:05}-7b4cc67b5d-{number}")),
        uid: format!("00000000-0000-4000-8000-{number:012}").as_str().into(),
        version: (version + 1).to_string().as_str().into(),
    }
}

/// Returns the bytes that were allocated since the start of `region` and are still in use.
fn allocated(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated - change.bytes_deallocated
}

fn assert_close(reported: usize, allocated: usize, description: &str) {
    let share = reported as f64 / allocated as f64;
    assert!(
        (share - 1.0).abs() <= TOLERANCE,
        "{description}: {reported} bytes are reported, but {allocated} are allocated"
    );
}

fn sum(Footprint { objects: _, entries, layout, indexes }: Footprint) -> usize {
    entries + layout + indexes
}

// A single test, since the allocator counts the allocations of all threads.
#[test]
fn snapshot_footprint_matches_allocator() {
    let object = Arc::new(0_u64);
    let region = Region::new(ALLOCATOR);
    let mut store = Store::new(Rules::default());
    let mut staging = store.begin_relist();
    for number in 0..COUNT {
        staging.put(identity(number, 0), Ok(object.clone()));
    }
    let listed = StateSource::Listed { initial: true };
    store.commit(staging, Some("1".into()), &listed, false, drop).expect("the first list");
    store.publish();
    let footprint = |store: &Store<u64>| store.reader().snapshot().footprint();
    let after_list = footprint(&store);
    assert_close(sum(after_list), allocated(&region), "after a list");
    assert_eq!(after_list.indexes, 0);
    assert!(after_list.layout <= COUNT * MAX_LAYOUT_BYTES_PER_ENTRY, "{} bytes an entry", after_list.layout / COUNT);

    // Every object changes, and every third object is renamed.
    let watched = StateSource::Watched { deletion: None };
    for number in 0..COUNT {
        let changed = identity(number * 7_919 % COUNT, number + 1);
        if number.is_multiple_of(3) {
            store.remove(&changed.key, &changed.uid, &watched, drop);
            store.apply(identity(COUNT + number, number + 1), Ok(object.clone()), &watched, drop);
        } else {
            store.apply(changed, Ok(object.clone()), &watched, drop);
        }
        store.publish();
    }
    let after_events = footprint(&store);
    assert_close(sum(after_events), allocated(&region), "after events");
    assert!(
        after_events.layout <= COUNT * MAX_LAYOUT_BYTES_PER_ENTRY,
        "{} bytes an entry",
        after_events.layout / COUNT
    );

    let index = store.add_index(|_: &u64| [1_u64, 2, 3]);
    let with_an_index = footprint(&store);
    assert_close(sum(with_an_index), allocated(&region), "with an index");
    assert_close(sum(with_an_index) - sum(after_events), with_an_index.indexes, "the index alone");
    assert_eq!(store.reader().snapshot().index_snapshot(&index).count(&2), COUNT);
    println!("{COUNT} entries: {after_list:?}, {after_events:?}, {with_an_index:?}");
}
