use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};

use bytes::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::DecodedUse;
use crate::decode::{Cacheable, DecodeOptions, Decoder, Encoding, RawObject, list_item};
use crate::event::{Event, Rules, StateSource};
use crate::object::WithSize;
use crate::store::{Lookup, Store};
use crate::{Object, ObjectKey};

const WATCHED: StateSource = StateSource::Watched { deletion: None };

fn raw(name: &str, version: u32, text: &str) -> RawObject {
    let json = format!(
        r#"{{"metadata":{{"namespace":"shop","name":"{name}","uid":"u-{name}","resourceVersion":"{version}",
        "labels":{{"app":"{name}"}},"managedFields":[{{"manager":"kubectl"}}]}},"data":{{"text":"{text}"}}}}"#
    );
    list_item(Encoding::Json, &Bytes::from(json).into(), None).expect("a config map")
}

/// Returns a decoder for objects of all sizes, and a receiver of the names of reported decoded forms.
fn decoder() -> (Decoder, Receiver<String>) {
    let (sender, reported) = mpsc::channel();
    let report = move |key: &ObjectKey, _: usize| sender.send(key.name().to_owned()).expect("the test receives");
    (Decoder::new(DecodeOptions::default()).on_demand(0, Arc::new(report)), reported)
}

fn names(reported: &Receiver<String>) -> Vec<String> {
    reported.try_iter().collect()
}

fn decoded<K: Cacheable>(raw: &RawObject, decoder: &mut Decoder) -> WithSize<K> {
    WithSize::decode(raw, decoder).expect("the object fits")
}

fn apply<K: Cacheable>(store: &mut Store<K>, raw: RawObject, decoder: &mut Decoder) -> Vec<Event<K>> {
    let object = decoded(&raw, decoder);
    let mut events = Vec::new();
    store.apply(raw.identity, Ok(object), &WATCHED, |change| events.push(change.event));
    store.publish();
    events
}

fn get<K: Cacheable>(store: &Store<K>, name: &str) -> Object<K> {
    match store.reader().get(Some("shop"), name) {
        Lookup::Found(object) => object,
        other => panic!("{other:?}"),
    }
}

fn text(object: &ConfigMap) -> &str {
    &object.data.as_ref().expect("data")["text"]
}

#[test]
fn decoded_form_is_shared_until_it_is_dropped() {
    let (mut decoder, reported) = decoder();
    let mut store = Store::<ConfigMap>::new(Rules::default());
    apply(&mut store, raw("web", 1, "hello"), &mut decoder);
    let key = ObjectKey::namespaced("shop", "web");
    assert!(store.sweep_decoded(&key).is_none() && names(&reported).is_empty());

    let (first, second) = (get(&store, "web"), get(&store, "web"));
    assert!(first.is(&second) && Arc::ptr_eq(first.arc(), second.arc()));
    assert!(text(&first) == "hello" && first.metadata.managed_fields.is_none());
    assert_eq!(names(&reported), ["web"], "the first read reports");
    let usage = |store: &Store<ConfigMap>| store.sweep_decoded(&key);
    assert_eq!(usage(&store), Some(DecodedUse::New { again: false }));
    assert_eq!(usage(&store), Some(DecodedUse::Idle));
    assert_eq!(text(&get(&store, "web")), "hello");
    assert_eq!(usage(&store), Some(DecodedUse::Read));

    store.drop_decoded(&key);
    store.publish();
    assert_eq!(usage(&store), None);
    let again = get(&store, "web");
    assert!(!again.is(&first) && !Arc::ptr_eq(again.arc(), first.arc()) && *again == *first);
    assert_eq!(usage(&store), Some(DecodedUse::New { again: true }));
    // A newer state has no decoded form yet.
    apply(&mut store, raw("web", 2, "world"), &mut decoder);
    assert_eq!(usage(&store), None);
    assert_eq!(text(&get(&store, "web")), "world");
    assert_eq!(usage(&store), Some(DecodedUse::New { again: false }));
}

#[test]
fn private_handle_leaves_cache_encoded() {
    let (mut decoder, reported) = decoder();
    let mut store = Store::<ConfigMap>::new(Rules::default());
    apply(&mut store, raw("web", 1, "hello"), &mut decoder);
    let cached = get(&store, "web");
    let private = Object::private(cached.clone());
    assert!(text(&private) == "hello" && private.identity() == cached.identity() && !private.is(&cached));
    cached.decoded_for(|object| assert_eq!(text(object), "hello"));
    assert!(store.sweep_decoded(cached.key()).is_none() && names(&reported).is_empty());
    // With a decoded form in the cache, a copy would only cost memory.
    assert_eq!(text(&cached), "hello");
    assert!(Object::private(cached.clone()).is(&cached));
}

static DECODED: AtomicUsize = AtomicUsize::new(0);

#[derive(Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
struct Counted {
    #[serde(deserialize_with = "counted")]
    metadata: ObjectMeta,
}

fn counted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    DECODED.fetch_add(1, Ordering::SeqCst);
    ObjectMeta::deserialize(deserializer)
}

#[test]
fn objects_are_decoded_once_without_readers() {
    let (mut decoder, _reported) = decoder();
    let mut store = Store::<Counted>::new(Rules::default());
    let app = |object: &Counted| object.metadata.labels.as_ref().and_then(|labels| labels.get("app").cloned());
    let by_app = store.add_index(app);
    let count = || DECODED.load(Ordering::SeqCst);
    for name in ["web", "db"] {
        let events = apply(&mut store, raw(name, 1, ""), &mut decoder);
        let [Event::Added { object, .. }] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(app(object).as_deref(), Some(name), "the handler's object is decoded");
    }
    // The objects of this list exceed the memory limit of decoded forms.
    let mut staging = store.begin_relist();
    for name in ["cache", "db", "web"] {
        let raw = raw(name, 2, "");
        let mut object = decoded::<Counted>(&raw, &mut decoder);
        object.bytes = 1 << 30;
        staging.put(raw.identity, Ok(object));
    }
    store
        .commit(staging, Some("2".into()), &StateSource::Listed { initial: false }, false, drop)
        .expect("a newer list");
    store.publish();
    assert_eq!(count(), 5, "five states arrived");
    let snapshot = store.reader().snapshot();
    let names = |name: &str| -> Vec<String> {
        snapshot.by_index(&by_app, &name.to_owned()).map(|object| object.key().name().to_owned()).collect()
    };
    assert_eq!((names("web"), names("cache")), (vec!["web".to_owned()], vec!["cache".to_owned()]));
    let selector = crate::selector::parse_selector("app in (web, db)").expect("a selector");
    assert_eq!(snapshot.select(None, &selector).count(), 2);
    assert_eq!(count(), 5);
    assert_eq!(app(&get(&store, "db")).as_deref(), Some("db"));
    assert_eq!(count(), 6);
}

#[test]
fn short_list_keeps_decoded_forms() {
    let (mut decoder, reported) = decoder();
    let mut store = Store::<ConfigMap>::new(Rules::default());
    let mut staging = store.begin_relist();
    let raw = raw("web", 1, "hello");
    let object = decoded::<ConfigMap>(&raw, &mut decoder);
    let arrived = object.object.clone();
    staging.put(raw.identity, Ok(object));
    assert!(names(&reported).is_empty(), "the cache does not contain the object yet");
    store
        .commit(staging, Some("1".into()), &StateSource::Listed { initial: true }, false, drop)
        .expect("the first list");
    store.publish();
    assert_eq!(names(&reported), ["web"]);
    assert!(Arc::ptr_eq(get(&store, "web").arc(), &arrived));
}

static FITS: AtomicUsize = AtomicUsize::new(1);

#[derive(Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
struct Fickle {
    #[serde(deserialize_with = "fickle")]
    metadata: ObjectMeta,
}

fn fickle<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    match FITS.load(Ordering::SeqCst) {
        0 => Err(serde::de::Error::custom("not today")),
        _ => ObjectMeta::deserialize(deserializer),
    }
}

#[test]
#[should_panic(expected = "is not deterministic")]
fn read_of_nondeterministic_type_panics() {
    let (mut decoder, _reported) = decoder();
    let mut store = Store::<Fickle>::new(Rules::default());
    apply(&mut store, raw("web", 1, "hello"), &mut decoder);
    FITS.store(0, Ordering::SeqCst);
    drop(get(&store, "web").arc().metadata.name.clone());
}
