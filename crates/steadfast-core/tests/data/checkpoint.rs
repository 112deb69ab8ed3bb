//! Written checkpoints are read back unchanged, and invalid bytes are rejected.

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use steadfast_core::checkpoint::{DeliveryKey, RestoredEntry, RowEncodings, SavedState, key_of, write_key};
use steadfast_core::decode::{Cacheable, Decoder, RawObject};
use steadfast_core::outbox::{DueEvent, PendingDelivery, StayEnd};
use steadfast_core::protobuf::MessageType;
use steadfast_core::record::Identity;
use steadfast_core::{Certainty, DeleteReason, Encoding, Entry, Lazy, Object, ObjectKey, Uid};

fn encodings() -> RowEncodings {
    RowEncodings::of("v1", "Pod")
}

fn entry(raw: &RawObject) -> Entry<Lazy<Pod>> {
    let lazy = Lazy::decode(raw, &mut Decoder::default()).expect("`Lazy` keeps the raw object");
    Entry::known(Object::new(raw.identity.clone(), Arc::new(lazy)))
}

fn written(entry: &Entry<Lazy<Pod>>) -> Vec<u8> {
    let mut row = Vec::new();
    encodings().write(entry, &mut row).expect("its form has a name");
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
    fn written_entries_are_read_back_unchanged(
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
            1 => (Encoding::Protobuf, MessageType::of_kind("v1", "Pod")),
            _ => (Encoding::Protobuf, MessageType::of_kind("meta.k8s.io/v1", "PartialObjectMetadata")),
        };
        prop_assert_eq!(message.is_some(), form > 0);
        let raw = RawObject { identity: identity.clone(), bytes: Bytes::from(bytes), managed_fields: None, encoding, message };

        let row = written(&entry(&raw));
        match encodings().read(key.clone(), &row) {
            Some(RestoredEntry::Known(read)) => prop_assert_eq!(&read, &raw),
            other => prop_assert!(false, "{:?}", other),
        }
        let unknown = written(&Entry::tainted(identity.clone(), None));
        match encodings().read(key.clone(), &unknown) {
            Some(RestoredEntry::Unknown(read, None)) => prop_assert_eq!(read, identity.clone()),
            other => prop_assert!(false, "{:?}", other),
        }
        // This row ends with its version, so every truncated row is incomplete and rejected.
        let part = &unknown[..cut.index(unknown.len())];
        prop_assert!(encodings().read(key.clone(), part).is_none());

        let later = Identity { version: format!("{version}1").as_str().into(), ..identity };
        let tainted = written(&Entry::tainted(later.clone(), entry(&raw).object().cloned()));
        match encodings().read(key.clone(), &tainted) {
            Some(RestoredEntry::Unknown(read, Some(last))) => prop_assert!(read == later && last == raw),
            other => prop_assert!(false, "{:?}", other),
        }

        let mut text = Vec::new();
        write_key(&key, &mut text);
        prop_assert_eq!(key_of(&text), Some(key));
    }

    #[test]
    fn arbitrary_bytes_are_read_without_panic(row in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Some(saved) = encodings().read(ObjectKey::cluster("a"), &row) {
            prop_assert!(b"?jom".contains(&row[0]));
            prop_assert!(!saved.identity().version.as_str().is_empty());
        }
        let _ = key_of(&row);
        let _ = DeliveryKey::read(&row);
        let _ = encodings().read_delivery(&ObjectKey::cluster("a"), &row);
    }

    #[test]
    fn pending_delivery_is_read_back_unchanged(
        key in key(),
        handler in "[ -~é]{1,63}",
        base in proptest::option::of(any::<bool>()),
        is_end in any::<bool>(),
        ended in proptest::option::of(any::<bool>()),
        initial in any::<bool>(),
        deleted_at in proptest::option::of("[1-9][0-9]{0,9}"),
        first_change in proptest::option::of("[1-9][0-9]{0,9}"),
        reason in prop::sample::select(vec![DeleteReason::Deleted, DeleteReason::Replaced, DeleteReason::DeletedOrLeft]),
        cut in any::<prop::sample::Index>(),
    ) {
        let raw = |version: &str| RawObject {
            identity: Identity { key: key.clone(), uid: "u".into(), version: version.into() },
            bytes: Bytes::from(format!("{{\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}")),
            managed_fields: None,
            encoding: Encoding::Json,
            message: None,
        };
        let state = |version: &str| entry(&raw(version)).object().cloned().expect("the entry has an object");
        let cached = entry(&raw("7"));
        let held = cached.object().cloned().expect("the entry has an object");
        let own = |is_held: bool, version: &str| if is_held { held.clone() } else { state(version) };
        let end = |last| StayEnd {
            last,
            version: deleted_at.as_deref().map(Into::into),
            certainty: if deleted_at.is_some() { Certainty::Observed } else { Certainty::Inferred },
            reason,
        };
        let mut pending = PendingDelivery::default();
        pending.base = base.map(|is_held| own(is_held, "5"));
        pending.due = Some(if is_end { DueEvent::End(end(state("6"))) } else { DueEvent::State(held.clone()) });
        pending.ended = ended.map(|is_held| end(own(is_held, "8")));
        pending.initial = initial;
        pending.first_change = first_change.as_deref().map(Into::into);

        let mut row = Vec::new();
        encodings().write_delivery(&pending, Some(&cached), &mut row).expect("its forms have names");
        let read = encodings().read_delivery(&key, &row);
        let saved = |state: Object<Lazy<Pod>>| {
            let separate = || SavedState::Separate(raw(state.version().as_str()));
            Some(if state.is(&held) { SavedState::Cached } else { separate() })
        };
        prop_assert_eq!(read, pending.map(&mut { saved }));
        prop_assert_eq!(encodings().read_delivery(&key, &row[..cut.index(row.len())]), None, "of a part nothing is made up");

        let mut name = Vec::new();
        DeliveryKey::write(&handler, Some(&key), &mut name);
        prop_assert!(DeliveryKey::has_prefix(&name) && key_of(&name).is_none());
        prop_assert_eq!(DeliveryKey::read(&name), Some(DeliveryKey { handler: handler.clone(), key: Some(key) }));
        name.clear();
        DeliveryKey::write(&handler, None, &mut name);
        prop_assert_eq!(DeliveryKey::read(&name), Some(DeliveryKey { handler, key: None }));
    }
}

/// Rows of format 2 lack the version of the first change.
#[test]
fn older_delivery_row_has_no_first_change() {
    let key = ObjectKey::namespaced("shop", "a");
    let read = encodings().read_delivery(&key, b"--s=-").expect("a row of format 2");
    assert_eq!((read.due, read.first_change), (Some(DueEvent::State(SavedState::Cached)), None));
}

#[test]
fn undecodable_entry_is_written_in_original_encoding() {
    let identity =
        |version: &str| Identity { key: ObjectKey::namespaced("shop", "a"), uid: "u".into(), version: version.into() };
    let raw = |version: &str| RawObject {
        identity: identity(version),
        bytes: Bytes::from_static(b"{}"),
        managed_fields: None,
        encoding: Encoding::Json,
        message: None,
    };
    let read = |entry: &Entry<Lazy<Pod>>| encodings().read(entry.key().clone(), &written(entry));
    let seen = entry(&raw("5")).object().cloned();
    let tainted = Entry::tainted(identity("5"), seen.clone());
    assert!(matches!(read(&tainted), Some(RestoredEntry::Known(read)) if read == raw("5")));
    let newer = Entry::tainted(identity("6"), seen);
    let read = read(&newer);
    assert!(
        matches!(read, Some(RestoredEntry::Unknown(read, Some(last))) if read == identity("6") && last == raw("5"))
    );
}
