//! What is written down of a cache is read again as it was, and what is no such thing is not taken for it.

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use steadfast_core::checkpoint::{Forms, Saved, key_of, write_key};
use steadfast_core::decode::{Decoder, Kept, RawObject};
use steadfast_core::protobuf::MessageId;
use steadfast_core::record::Identity;
use steadfast_core::{Encoding, Entry, Lazy, Object, ObjectKey, Uid};

fn forms() -> Forms {
    Forms::of("v1", "Pod")
}

fn entry(raw: &RawObject) -> Entry<Lazy<Pod>> {
    let lazy = Lazy::decode(raw, &mut Decoder::default()).expect("it is kept as it is");
    Entry::known(Object::new(raw.identity.clone(), Arc::new(lazy)))
}

fn written(entry: &Entry<Lazy<Pod>>) -> Vec<u8> {
    let mut row = Vec::new();
    forms().write(entry, &mut row).expect("its form has a name");
    row
}

fn key() -> impl Strategy<Value = ObjectKey> {
    (proptest::option::of("[a-z0-9-]{1,80}"), "[a-zA-Z0-9.:-]{1,80}").prop_map(|(namespace, name)| match namespace {
        Some(namespace) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::cluster(name),
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_it_was(
        key in key(),
        uid in proptest::option::of("[a-f0-9-]{1,60}"),
        version in "[1-9][0-9]{0,25}",
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        form in 0..3,
        cut in any::<prop::sample::Index>(),
    ) {
        let uid = uid.map_or_else(|| Uid::by_name(&key), |uid| Uid::from(uid.as_str()));
        let identity = Identity { key: key.clone(), uid, version: version.as_str().into() };
        let (encoding, message) = match form {
            0 => (Encoding::Json, None),
            1 => (Encoding::Protobuf, MessageId::of_kind("v1", "Pod")),
            _ => (Encoding::Protobuf, MessageId::of_kind("meta.k8s.io/v1", "PartialObjectMetadata")),
        };
        prop_assert_eq!(message.is_some(), form > 0);
        let raw = RawObject { identity: identity.clone(), bytes: Bytes::from(bytes), managed_fields: None, encoding, message };

        let row = written(&entry(&raw));
        match forms().read(key.clone(), &row) {
            Some(Saved::Known(read)) => prop_assert_eq!(&read, &raw),
            other => prop_assert!(false, "{:?}", other),
        }
        let unknown = written(&Entry::tainted(identity.clone(), None));
        match forms().read(key.clone(), &unknown) {
            Some(Saved::Unknown(read)) => prop_assert_eq!(read, identity),
            other => prop_assert!(false, "{:?}", other),
        }
        // Of a part of it nothing is made up: who it is and in which version is there or nothing.
        let part = &unknown[..cut.index(unknown.len())];
        prop_assert!(forms().read(key.clone(), part).is_none());

        let mut text = Vec::new();
        write_key(&key, &mut text);
        prop_assert_eq!(key_of(&text), Some(key));
    }

    #[test]
    fn bytes_of_any_kind_are_read_without_a_panic(row in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Some(saved) = forms().read(ObjectKey::cluster("a"), &row) {
            prop_assert!(b"?jom".contains(&row[0]));
            prop_assert!(!saved.identity().version.as_str().is_empty());
        }
        let _ = key_of(&row);
    }
}

#[test]
fn one_that_turned_out_not_to_fit_is_written_as_it_came_and_an_older_state_is_not() {
    let identity =
        |version: &str| Identity { key: ObjectKey::namespaced("shop", "a"), uid: "u".into(), version: version.into() };
    let raw = |version: &str| RawObject {
        identity: identity(version),
        bytes: Bytes::from_static(b"{}"),
        managed_fields: None,
        encoding: Encoding::Json,
        message: None,
    };
    let read = |entry: &Entry<Lazy<Pod>>| forms().read(entry.key().clone(), &written(entry));
    let seen = entry(&raw("5")).object().cloned();
    let unfit = Entry::tainted(identity("5"), seen.clone());
    assert!(matches!(read(&unfit), Some(Saved::Known(read)) if read == raw("5")));
    let newer = Entry::tainted(identity("6"), seen);
    assert!(matches!(read(&newer), Some(Saved::Unknown(read)) if read == identity("6")));
}
