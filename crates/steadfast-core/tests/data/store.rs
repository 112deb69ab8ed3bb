//! Store, case by case.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::test_objects::{TestObject, describe, resource_version, test_object};
use steadfast_core::event::{Rules, StateSource};
use steadfast_core::record::Identity;
use steadfast_core::store::{Lookup, OfferResult, Store, StoreReader, Tainted};
use steadfast_core::{ObjectKey, ResourceVersion, Uid};

const LIVE: StateSource = StateSource::Watched { deletion: None };
const RELIST: StateSource = StateSource::Listed { initial: false };

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("shop", name)
}

fn identity(name: &str, uid: &str, version: u64) -> Identity {
    Identity { key: key(name), uid: uid.into(), version: resource_version(version) }
}

/// Store with the reported changes.
struct Delivered {
    store: Store<TestObject>,
    delivered: Vec<String>,
}

impl Delivered {
    fn new() -> Self {
        Self { store: Store::new(Rules::default()), delivered: Vec::new() }
    }

    fn apply(&mut self, name: &str, uid: &str, version: u64, object: Result<Arc<TestObject>, Tainted>) -> bool {
        self.store.apply(identity(name, uid, version), object, &LIVE, |change| self.delivered.push(describe(&change)))
    }

    fn apply_object(&mut self, name: &str, uid: &str, version: u64) -> bool {
        self.apply(name, uid, version, test_object(uid, version, 0))
    }

    fn remove(&mut self, name: &str, uid: &str, version: u64) -> bool {
        let source = StateSource::Watched { deletion: Some(resource_version(version)) };
        self.store.remove(&key(name), &uid.into(), &source, |change| self.delivered.push(describe(&change)))
    }

    fn list(&mut self, objects: &[(&str, &str, u64)], version: u64) {
        let mut staging = self.store.begin_relist();
        for (name, uid, version) in objects {
            let identity = identity(name, uid, *version);
            if staging.offer(&identity) == OfferResult::Requested {
                staging.put(identity, test_object(uid, *version, 0));
            }
        }
        let on_change = |change| self.delivered.push(describe(&change));
        self.store.commit(staging, Some(resource_version(version)), &RELIST, false, on_change).unwrap();
        self.store.publish();
    }

    fn delivered(&mut self) -> Vec<String> {
        std::mem::take(&mut self.delivered)
    }
}

#[test]
fn edits_are_invisible_until_published() {
    let mut a = Delivered::new();
    let reader = a.store.reader();
    a.apply_object("a", "u", 1);
    a.apply_object("b", "v", 2);
    a.store.advance(resource_version(2));
    assert!(matches!(reader.get(Some("shop"), "a"), Lookup::Absent));
    assert_eq!(reader.snapshot().version(), None);

    a.store.publish();
    assert!(matches!(reader.get(Some("shop"), "a"), Lookup::Found(object) if object.version == 1));
    assert_eq!((reader.snapshot().len(), reader.snapshot().version()), (2, Some(&resource_version(2))));
    assert!(matches!(reader.get(None, "a"), Lookup::Absent));
    assert!(matches!(reader.get(Some("sho"), "a"), Lookup::Absent));
}

#[test]
fn namespace_read_excludes_neighbours() {
    let mut store = Store::new(Rules::default());
    let places = [None, Some("a"), Some("a"), Some("a-b"), Some("b")];
    for (number, namespace) in places.iter().enumerate() {
        let name = format!("n{number}");
        let key =
            namespace.map_or_else(|| ObjectKey::cluster(name.as_str()), |ns| ObjectKey::namespaced(ns, name.as_str()));
        let identity = Identity { key, uid: name.as_str().into(), version: resource_version(1) };
        store.apply(identity, Ok(Arc::new(())), &LIVE, |_| ());
    }
    let of = |namespace| store.working().namespace(namespace).map(|entry| entry.key().to_string()).collect::<Vec<_>>();
    assert_eq!(of("a"), ["a/n1", "a/n2"]);
    assert_eq!(of("a-b"), ["a-b/n3"]);
    assert!(of("c").is_empty());
    assert_eq!(store.working().iter().next().unwrap().key().to_string(), "n0", "cluster-scoped objects come first");
}

#[test]
fn watch_state_not_newer_is_rejected() {
    let mut a = Delivered::new();
    assert!(a.apply_object("a", "u", 5));
    assert!(!a.apply_object("a", "u", 5));
    assert!(!a.apply_object("a", "u", 4));
    // An unknown UID with a lower version belongs to a predecessor.
    assert!(!a.apply_object("a", "an earlier object", 3));
    assert_eq!(a.delivered(), ["shop/a: Added u@5"]);
}

#[test]
fn deletion_of_predecessor_keeps_current_object() {
    let mut a = Delivered::new();
    a.apply_object("a", "u", 1);
    a.apply_object("a", "v", 5);
    // The deletion of the predecessor `u` arrives late, and must not remove its successor `v`.
    assert!(!a.remove("a", "u", 4));
    assert!(!a.remove("a", "v", 3), "the object has re-entered the scope since that deletion");
    assert!(a.remove("a", "v", 6));
    assert_eq!(
        a.delivered(),
        [
            "shop/a: Added u@1",
            "shop/a: Deleted u@1, inferred, replaced",
            "shop/a: Added v@5",
            "shop/a: Deleted v@5 at 6, observed, deleted",
        ]
    );
}

#[test]
fn tainted_object_is_unknown_until_decodable() {
    let mut a = Delivered::new();
    a.apply_object("a", "u", 1);
    a.apply("a", "u", 2, Err(Tainted));
    let unknown = a.store.working().get(Some("shop"), "a");
    assert!(matches!(unknown, Lookup::Undecodable { version } if version == resource_version(2)));
    assert_eq!(a.store.working().tainted().iter().collect::<Vec<_>>(), [&key("a")]);
    assert_eq!(a.store.working().decodable().count(), 0);
    assert_eq!(a.store.working().entry(Some("shop"), "a").unwrap().last().unwrap().version, 1);

    a.apply_object("a", "u", 3);
    assert_eq!(a.store.working().tainted().len(), 0);
    assert_eq!(a.delivered(), ["shop/a: Added u@1", "shop/a: Updated u@1 to u@3"]);
}

#[test]
fn unfit_object_stays_unknown_until_it_changes() {
    let mut a = Delivered::new();
    a.list(&[("a", "u", 5), ("b", "v", 2)], 5);
    a.delivered();
    assert!(a.store.taint(&key("a"), &resource_version(5)));
    assert!(
        !a.store.taint(&key("a"), &resource_version(5))
            && !a.store.taint(&key("b"), &resource_version(1))
            && !a.store.taint(&key("c"), &resource_version(1))
    );
    a.store.publish();
    let unknown = |a: &Delivered| matches!(a.store.working().get(Some("shop"), "a"), Lookup::Undecodable { .. });
    assert!(unknown(&a));
    assert_eq!(
        a.store.working().entry(Some("shop"), "a").unwrap().last().unwrap().version,
        5,
        "the deletion is reported with the last known state"
    );

    assert!(!a.apply_object("a", "u", 5), "a repeated event changes nothing");

    let mut a = Delivered::new();
    a.list(&[("a", "u", 5)], 5);
    a.delivered();
    let mut early = a.store.begin_relist();
    assert_eq!(early.offer(&identity("a", "u", 5)), OfferResult::Unchanged);
    assert!(a.store.taint(&key("a"), &resource_version(5)));
    a.store
        .commit(early, Some(resource_version(6)), &RELIST, false, |_| {
            panic!("an unchanged object must not be reported")
        })
        .unwrap();
    assert!(unknown(&a));
    a.list(&[("a", "u", 5)], 7);
    assert!(unknown(&a));
    assert_eq!(a.delivered(), [""; 0]);

    a.list(&[("a", "u", 8)], 8);
    assert!(!unknown(&a));
    assert_eq!(a.delivered(), ["shop/a: Updated u@5 to u@8"]);
    assert!(a.store.taint(&key("a"), &resource_version(8)));
    a.remove("a", "u", 9);
    assert_eq!(a.delivered(), ["shop/a: Deleted u@8 at 9, observed, deleted"]);
}

#[test]
fn tainted_object_ends_stay_of_predecessor() {
    let mut a = Delivered::new();
    a.apply_object("a", "u", 1);
    a.apply("a", "v", 2, Err(Tainted));
    assert!(a.store.working().entry(Some("shop"), "a").unwrap().last().is_none());
    a.remove("a", "v", 3);
    assert_eq!(a.delivered(), ["shop/a: Added u@1", "shop/a: Deleted u@1, inferred, replaced"]);
}

#[test]
fn unchanged_list_reports_nothing_and_keeps_objects() {
    let mut a = Delivered::new();
    let test_objects = [("a", "u", 1), ("b", "v", 2), ("c", "w", 3)];
    a.list(&test_objects, 3);
    a.delivered();
    let before = a.store.reader().snapshot();

    let mut staging = a.store.begin_relist();
    for (name, uid, version) in test_objects.iter().rev() {
        // A list has no guaranteed order.
        assert_eq!(staging.offer(&identity(name, uid, *version)), OfferResult::Unchanged);
    }
    a.store
        .commit(staging, Some(resource_version(9)), &RELIST, false, |_| {
            panic!("an unchanged object must not be reported")
        })
        .unwrap();
    a.store.publish();
    let after = a.store.reader().snapshot();
    assert_eq!(after.version(), Some(&resource_version(9)));
    assert!(before.iter().zip(after.iter()).all(|(before, after)| before.last().unwrap().is(after.last().unwrap())));
    // The checksum covers the objects, not the version of the store.
    assert_eq!(before.checksum(), after.checksum());
}

#[test]
fn relist_delivers_deletions_first_then_changes_by_key() {
    let mut a = Delivered::new();
    a.list(&[("d", "w", 4), ("a", "u", 1), ("b", "v", 2), ("a", "u", 3)], 4);
    assert_eq!(a.delivered(), ["shop/a: Added u@3", "shop/b: Added v@2", "shop/d: Added w@4"]);
    a.list(&[("d", "x", 8), ("c", "y", 7), ("a", "u", 6), ("b", "v", 2)], 8);
    assert_eq!(
        a.delivered(),
        [
            "shop/d: Deleted w@4, inferred, replaced",
            "shop/a: Updated u@3 to u@6",
            "shop/c: Added y@7",
            "shop/d: Added x@8",
        ]
    );
    a.list(&[("b", "v", 2)], 9);
    assert_eq!(
        a.delivered(),
        [
            "shop/a: Deleted u@6, inferred, deleted",
            "shop/c: Deleted y@7, inferred, deleted",
            "shop/d: Deleted x@8, inferred, deleted",
        ]
    );
}

#[test]
fn equal_version_in_new_epoch_is_updated() {
    let mut a = Delivered::new();
    a.list(&[("a", "u", 1), ("b", "v", 2)], 2);
    a.delivered();
    let mut staging = a.store.begin_new_epoch();
    for (name, uid, version) in [("a", "u", 1), ("b", "v", 2)] {
        let identity = identity(name, uid, version);
        assert_eq!(staging.offer(&identity), OfferResult::Requested);
        staging.put(identity, test_object(uid, version, 1));
    }
    a.store
        .commit(staging, Some(resource_version(2)), &StateSource::NewEpoch, true, |change| {
            a.delivered.push(describe(&change));
        })
        .unwrap();
    assert_eq!(a.delivered(), ["shop/a: Updated u@1 to u@1", "shop/b: Updated v@2 to v@2"]);
}

/// Creates the identity of an object without a UID.
fn by_name(name: &str, version: u64) -> Identity {
    Identity { uid: Uid::by_name(&key(name)), ..identity(name, "", version) }
}

impl Delivered {
    fn list_by_name(&mut self, objects: &[(&str, u64)]) {
        let mut staging = self.store.begin_relist();
        for (name, content) in objects {
            let version = ResourceVersion::substitute_for(&content.to_be_bytes());
            let identity = Identity { version, ..by_name(name, 0) };
            if staging.offer(&identity) == OfferResult::Requested {
                staging.put(identity, test_object("none", *content, 0));
            }
        }
        self.store.commit(staging, None, &RELIST, false, |change| self.delivered.push(describe(&change))).unwrap();
    }
}

#[test]
fn objects_without_uid_follow_content_and_name() {
    let mut a = Delivered::new();
    a.list_by_name(&[("a", 7), ("b", 7)]);
    a.delivered();
    a.list_by_name(&[("a", 5), ("b", 7)]);
    assert_eq!(a.delivered(), ["shop/a: Updated none@7 to none@5"]);
    a.list_by_name(&[("a", 5), ("b", 7)]);
    assert!(a.delivered().is_empty(), "an unchanged list must not be reported");
    a.list_by_name(&[("b", 7)]);
    assert_eq!(a.delivered(), ["shop/a: Deleted none@5, inferred, deleted"]);
}

#[test]
fn watch_deletes_and_adds_without_uid() {
    let mut a = Delivered::new();
    let on_change = |store: &mut Store<TestObject>, delivered: &mut Vec<String>, version| {
        store.apply(by_name("a", version), test_object("none", version, 0), &LIVE, |change| {
            delivered.push(describe(&change));
        });
    };
    on_change(&mut a.store, &mut a.delivered, 1);
    let source = StateSource::Watched { deletion: Some(resource_version(2)) };
    a.store.remove(&key("a"), &by_name("a", 2).uid, &source, |change| a.delivered.push(describe(&change)));
    on_change(&mut a.store, &mut a.delivered, 3);
    assert_eq!(
        a.delivered(),
        ["shop/a: Added none@1", "shop/a: Deleted none@1 at 2, observed, deleted", "shop/a: Added none@3"]
    );
}

#[test]
fn state_without_uid_belongs_to_cached_object() {
    let mut a = Delivered::new();
    a.apply_object("a", "u", 1);
    a.delivered();
    a.store.apply(by_name("a", 2), test_object("none", 2, 0), &LIVE, |change| a.delivered.push(describe(&change)));
    assert_eq!(a.delivered(), ["shop/a: Updated u@1 to none@2"]);
    assert!(a.apply_object("a", "u", 3), "the stay must continue with the earlier UID");
    assert_eq!(a.delivered(), ["shop/a: Updated none@2 to u@3"]);
    assert!(
        !a.store.apply(by_name("a", 2), test_object("none", 2, 0), &LIVE, |_| panic!(
            "an older version must not be reported"
        ))
    );
    // The next object of that name is visible.
    assert!(a.apply_object("a", "v", 4));
    assert_eq!(a.delivered(), ["shop/a: Deleted u@3, inferred, replaced", "shop/a: Added v@4"]);
}

#[test]
fn object_that_gains_uid_keeps_its_stay() {
    let mut a = Delivered::new();
    a.store.apply(by_name("a", 1), test_object("none", 1, 0), &LIVE, |change| a.delivered.push(describe(&change)));
    a.delivered();
    // The version is unchanged, but the UID is now known.
    a.list(&[("a", "u", 1)], 1);
    assert!(a.delivered().is_empty());
    a.list(&[("a", "v", 2)], 2);
    assert_eq!(a.delivered(), ["shop/a: Deleted u@1, inferred, replaced", "shop/a: Added v@2"]);
}

#[test]
fn object_deleted_during_list_is_not_listed() {
    let mut a = Delivered::new();
    a.list(&[("a", "u", 1), ("b", "v", 2)], 2);
    a.delivered();
    let mut staging = a.store.begin_relist();
    for (name, uid, version) in [("a", "u", 1), ("b", "v", 2)] {
        assert_eq!(staging.offer(&identity(name, uid, version)), OfferResult::Unchanged);
    }
    // The watch continues during the list, and its deletions are newer than the listed states.
    staging.remove(&identity("a", "u", 3));
    staging.remove(&identity("b", "v", 4));
    staging.put(identity("b", "w", 5), test_object("w", 5, 0));
    a.store
        .commit(staging, Some(resource_version(5)), &RELIST, false, |change| a.delivered.push(describe(&change)))
        .unwrap();
    let expected =
        ["shop/a: Deleted u@1, inferred, deleted", "shop/b: Deleted v@2, inferred, replaced", "shop/b: Added w@5"];
    assert_eq!(a.delivered(), expected);
}

#[test]
fn staged_list_is_invisible_to_readers() {
    let mut a = Delivered::new();
    a.list(&[("a", "u", 1)], 1);
    let mut staging = a.store.begin_relist();
    staging.put(identity("b", "v", 2), test_object("v", 2, 0));
    a.store.publish();
    assert_eq!(a.store.reader().snapshot().len(), 1);
}

#[test]
fn list_never_reverts_object_within_epoch() {
    let mut a = Delivered::new();
    a.apply_object("a", "u", 5);
    a.apply_object("b", "v", 6);
    a.delivered();
    a.list(&[("a", "u", 4), ("b", "before v", 3)], 7);
    assert!(a.delivered().is_empty());
    assert_eq!(a.store.working().entry(Some("shop"), "a").unwrap().version(), &resource_version(5));
}

#[test]
fn older_list_needs_a_new_epoch() {
    let mut a = Delivered::new();
    a.list(&[("a", "u", 5), ("b", "v", 6)], 10);
    a.delivered();
    let listed = |store: &Store<TestObject>| {
        let mut staging = store.begin_relist();
        staging.put(identity("a", "u", 4), test_object("u", 4, 0));
        staging
    };
    let staging = listed(&a.store);
    let refused = a
        .store
        .commit(staging, Some(resource_version(9)), &RELIST, false, |_| panic!("a rejected list must not be reported"));
    assert_eq!(refused.unwrap_err().to_string(), "the list has version 9, but the store is already at 10");
    assert_eq!(a.store.working().len(), 2);

    let staging = listed(&a.store);
    a.store
        .commit(staging, Some(resource_version(4)), &RELIST, true, |change| a.delivered.push(describe(&change)))
        .unwrap();
    assert_eq!(a.delivered(), ["shop/b: Deleted v@6, inferred, deleted", "shop/a: Updated u@5 to u@4"]);
    a.store.publish();
    let snapshot = a.store.reader().snapshot();
    assert_eq!((snapshot.version(), snapshot.epoch()), (Some(&resource_version(4)), 1));
}

#[test]
fn opaque_versions_follow_delivery_order() {
    let mut a = Delivered::new();
    let opaque = |version: &str| Identity { version: version.into(), ..identity("a", "u", 0) };
    for (version, number, changes) in [("x", 1, true), ("x", 1, false), ("b", 2, true), ("x", 3, true)] {
        let changed = a.store.apply(opaque(version), test_object("u", number, 0), &LIVE, |_| ());
        assert_eq!(changed, changes);
        a.store.advance(version.into());
    }
    assert_eq!(a.store.working().version(), Some(&"x".into()));
}

#[test]
fn store_version_only_advances() {
    let mut store = Store::<TestObject>::new(Rules::default());
    for (given, reached) in [(5, 5), (3, 5), (5, 5), (10, 10)] {
        store.advance(resource_version(given));
        assert_eq!(store.working().version(), Some(&resource_version(reached)));
    }
}

#[test]
fn index_follows_objects_with_any_value_count() {
    let mut a = Delivered::new();
    a.apply("early", "u", 1, test_object("u", 1, 6));
    let before = a.store.reader().snapshot();
    let factors = a.store.add_index(|object: &TestObject| {
        (2..=object.group).filter(|f| object.group.is_multiple_of(*f)).collect::<Vec<_>>()
    });
    let found = |store: &Store<TestObject>, value: u8| -> Vec<String> {
        store.reader().snapshot().by_index(&factors, &value).map(|object| object.uid.clone()).collect()
    };
    assert_eq!(found(&a.store, 3), ["u"], "a new index contains the existing objects");
    assert_eq!(before.by_index(&factors, &3).count(), 0, "an unpublished object is not in an older snapshot");

    a.apply("late", "v", 2, test_object("v", 2, 4));
    a.store.publish();
    assert_eq!(found(&a.store, 2), ["u", "v"]);
    a.apply("early", "u", 3, test_object("u", 3, 1));
    a.store.publish();
    assert_eq!(found(&a.store, 2), ["v"]);
    assert!(found(&a.store, 3).is_empty());
    a.apply("late", "v", 4, Err(Tainted));
    a.store.publish();
    assert_eq!(found(&a.store, 4), ["v"], "a tainted object is found where its last known state was");
    a.remove("late", "v", 5);
    a.store.publish();
    assert!(found(&a.store, 4).is_empty());
}

#[test]
fn snapshot_before_index_serves_its_queries() {
    let mut a = Delivered::new();
    a.apply("a", "u", 1, test_object("u", 1, 6));
    a.store.publish();
    let before = a.store.reader().snapshot();
    let groups = a.store.add_index(|object: &TestObject| Some(object.group));
    assert_eq!(before.by_index(&groups, &6).count(), 1);
    assert_eq!(before.by_index(&groups, &7).count(), 0);
}

#[test]
fn indexes_of_one_type_are_distinguished() {
    let mut a = Delivered::new();
    let groups = a.store.add_index(|object: &TestObject| Some(object.group));
    let none = a.store.add_index(|_: &TestObject| None::<u8>);
    a.apply("a", "u", 1, test_object("u", 1, 6));
    a.store.publish();
    let snapshot = a.store.reader().snapshot();
    assert_eq!(snapshot.by_index(&groups, &6).count(), 1);
    assert_eq!(snapshot.by_index(&none, &6).count(), 0);
}

#[test]
fn joining_index_evaluates_each_state_once() {
    let mut a = Delivered::new();
    for (name, uid, version) in [("a", "u", 1), ("b", "v", 2), ("c", "w", 3)] {
        a.apply_object(name, uid, version);
    }
    a.store.publish();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let (by_uid, mut pending_index) = a.store.reader().snapshot().index(move |object: &TestObject| {
        counted.fetch_add(1, Ordering::Relaxed);
        Some(object.uid.clone())
    });
    assert_eq!(calls.swap(0, Ordering::Relaxed), 3);
    assert!(pending_index.is_at(a.store.working()));

    a.apply_object("b", "v", 4);
    a.remove("c", "w", 5);
    a.apply_object("d", "x", 6);
    a.store.publish();
    let found = |store: &Store<TestObject>, uid: &str| -> Vec<u64> {
        store.reader().snapshot().by_index(&by_uid, &uid.to_owned()).map(|object| object.version).collect()
    };
    assert_eq!(found(&a.store, "v"), [4], "before the index is admitted, a lookup scans all objects");
    calls.store(0, Ordering::Relaxed);
    assert!(!pending_index.is_at(a.store.working()));
    pending_index.catch_up_to(&a.store.reader().snapshot());
    assert_eq!(calls.swap(0, Ordering::Relaxed), 2, "the index function runs only for changed objects");
    assert!(pending_index.is_at(a.store.working()));

    a.store.add_filled_index(pending_index);
    a.store.publish();
    assert_eq!(calls.load(Ordering::Relaxed), 0, "admission must not call the index function");
    for (uid, versions) in [("u", vec![1]), ("v", vec![4]), ("w", vec![]), ("x", vec![6])] {
        assert_eq!(found(&a.store, uid), versions);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 0, "a lookup must not call the index function");
    a.apply_object("a", "u", 7);
    a.store.publish();
    assert_eq!(found(&a.store, "u"), [7]);
}

#[test]
fn panicking_index_leaves_store_unchanged() {
    let mut a = Delivered::new();
    let groups = a.store.add_index(|object: &TestObject| Some(object.group));
    a.store.add_index(|object: &TestObject| {
        assert!(object.group != 13, "unlucky");
        Some(())
    });
    a.apply("a", "u", 1, test_object("u", 1, 1));
    let panicked = catch_unwind(AssertUnwindSafe(|| a.apply("a", "u", 2, test_object("u", 2, 13))));
    assert!(panicked.is_err());
    a.apply("b", "v", 3, test_object("v", 3, 3));
    a.store.publish();
    let snapshot = a.store.reader().snapshot();
    let found = |group| snapshot.by_index(&groups, &group).map(|object| object.version).collect::<Vec<_>>();
    assert_eq!((found(1), found(13), found(3)), (vec![1], vec![], vec![3]));
    assert_eq!(snapshot.entry(Some("shop"), "a").unwrap().version(), &resource_version(1));
    assert_eq!(a.delivered(), ["shop/a: Added u@1", "shop/b: Added v@3"]);
}

#[test]
fn stores_with_equal_content_have_equal_checksums() {
    let (mut a, mut b) = (Delivered::new(), Delivered::new());
    a.apply_object("a", "u", 1);
    a.apply_object("b", "v", 2);
    b.list(&[("b", "v", 2), ("a", "u", 1)], 2);
    assert_eq!(a.store.working().checksum(), b.store.working().checksum());
    b.apply_object("b", "v", 3);
    assert_ne!(a.store.working().checksum(), b.store.working().checksum());
}

#[test]
fn readers_see_only_consistent_states() {
    let mut store = Store::new(Rules::default());
    let groups = store.add_index(|object: &TestObject| Some(object.group));
    let reader: StoreReader<TestObject> = store.reader();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let snapshot = reader.snapshot();
                let versions: Vec<u64> = snapshot.decodable().map(|object| object.version).collect();
                assert!(versions.windows(2).all(|pair| pair[0] == pair[1]), "each publication writes all objects");
                let version = versions.first().copied().unwrap_or(0);
                assert!(version >= last, "a reader must not see an earlier version");
                last = version;
                assert_eq!(snapshot.by_index(&groups, &(version as u8)).count(), versions.len());
            }
        });
        for version in 1..=500 {
            for name in 0..60 {
                let uid = format!("u{name}");
                let object = test_object(&uid, version, version as u8);
                store.apply(identity(&format!("n{name}"), &uid, version), object, &LIVE, |_| ());
            }
            store.publish();
        }
        done.store(true, Ordering::Relaxed);
        watching.join().unwrap();
    });
}
