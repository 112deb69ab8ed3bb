//! Fuzzes protobuf: any bytes, split at any position, must yield the same records. In every form, a decodable object
//! must have the same value as decoded from its JSON.
//!
//! The input consists of one byte for the limit, one byte for the length of the pieces, one byte for the kind, and the
//! body.
#![no_main]

use std::collections::HashSet;
use std::fmt::{self, Debug, Formatter};

use bytes::Bytes;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{DynamicObject, PartialObjectMeta};
use libfuzzer_sys::fuzz_target;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use steadfast_core::RawObject;
use steadfast_core::decode::{self, DecodeOptions, Decoder, Encoding, WatchRecord, list_item, watch_record};
use steadfast_core::frame::{FrameError, Item, ItemFramer, ListPart, StreamFramer, StreamRecord};
use steadfast_core::protobuf::{MessageType, decode};

const MESSAGE_KINDS: [(&str, &str); 5] = [
    ("v1", "Pod"),
    ("v1", "Secret"),
    ("v1", "PodList"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("meta.k8s.io/v1", "PartialObjectMetadata"),
];

fuzz_target!(|input: &[u8]| {
    let [limit, cut, kind, body @ ..] = input else { return };
    let limit = if *limit >= 128 { 1 << 20 } else { usize::from(*limit) * 4 };
    let body = Bytes::copy_from_slice(body);
    let (uncut, cut) = ([body.len().max(1)], [usize::from(cut % 16) + 1, usize::from(cut / 16) + 1]);

    let records = frame_stream(limit, &body, &uncut);
    assert_same(&records, &frame_stream(limit, &body, &cut));
    for record in records.0 {
        match record {
            StreamRecord::Complete(record) => check_event(&record),
            StreamRecord::Overlong(record) => drop(decode::overlong(&record, None)),
        }
    }
    let parts = frame_list(limit, &body, &uncut);
    assert_same(&parts, &frame_list(limit, &body, &cut));
    for part in parts.0 {
        match part {
            ListPart::Item(part) => check_item(&part),
            ListPart::Overlong(part) => drop(decode::overlong(&part, None)),
            _ => {}
        }
    }
    check_event(&body);
    let (api_version, kind) = MESSAGE_KINDS[usize::from(*kind) % MESSAGE_KINDS.len()];
    check_item(&Item::of_message(body.clone(), MessageType::of_kind(api_version, kind).expect("the kind is built in")));
    drop(decode::status(Encoding::Protobuf, &body));
    drop(decode::continue_token(Encoding::Protobuf, &body));
});

type FramingResult<T> = (Vec<T>, Result<(), FrameError>);

/// Checks for the same records and the same end. If the body breaks off, the amount of buffered data may depend on the
/// pieces.
fn assert_same<T: PartialEq + Debug>(first: &FramingResult<T>, second: &FramingResult<T>) {
    match (first.1, second.1) {
        (Err(FrameError::Truncated { .. }), Err(FrameError::Truncated { .. }))
        | (Err(FrameError::Malformed { .. }), Err(FrameError::Malformed { .. })) => {}
        (first, second) => assert_eq!(first, second),
    }
    assert_eq!(first.0, second.0);
}

fn frame_stream(limit: usize, body: &Bytes, cuts: &[usize]) -> FramingResult<StreamRecord> {
    let (mut framer, mut records) = (StreamFramer::new(Encoding::Protobuf, limit), Vec::new());
    for chunk in chunks(body, cuts) {
        framer.feed(chunk);
        records.extend(std::iter::from_fn(|| framer.next()));
    }
    (records, framer.finish())
}

fn frame_list(limit: usize, body: &Bytes, cuts: &[usize]) -> FramingResult<ListPart> {
    let (mut framer, mut parts) = (ItemFramer::new(Encoding::Protobuf, limit), Vec::new());
    for chunk in chunks(body, cuts) {
        framer.feed(chunk);
        while let Some(part) = framer.next() {
            match part {
                Ok(part) => parts.push(part),
                Err(error) => return (parts, Err(error)),
            }
        }
    }
    (parts, framer.finish())
}

fn chunks(body: &Bytes, cuts: &[usize]) -> Vec<Bytes> {
    let (mut rest, mut chunks) = (body.clone(), Vec::new());
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        chunks.push(rest.split_to((*cut).min(rest.len())));
    }
    chunks
}

fn check_event(record: &Bytes) {
    match watch_record(Encoding::Protobuf, record, None) {
        Ok(WatchRecord::Object { object, .. }) => check_trimmed(&object),
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_item(item: &Item) {
    let id = item.message().expect("the item has a message");
    check_equals_json::<DynamicObject>(id, item);
    check_equals_json::<Pod>(id, item);
    check_equals_json::<ConfigMap>(id, item);
    check_equals_json::<Secret>(id, item);
    check_equals_json::<CustomResourceDefinition>(id, item);
    match list_item(Encoding::Protobuf, item, None) {
        Ok(object) => check_trimmed(&object),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Checks that the value in another form equals the value from its JSON.
fn check_equals_json<T: DeserializeOwned + Debug + PartialEq>(id: MessageType, bytes: &[u8]) {
    let Ok(value) = decode::<Value>(id, bytes, true) else { return };
    let text = value.to_string();
    // JSON within a message has a nesting limit of its own, so the whole text may exceed the limit of `serde_json`.
    let Ok(reparsed) = serde_json::from_str::<Value>(&text) else { return };
    assert_eq!(reparsed, value);
    // If a map contains a key twice, the JSON text has only the last value. `T` may reject the first value, which the
    // message still contains.
    if decode::<HasRepeatedKey>(id, bytes, true).is_ok_and(|HasRepeatedKey(is_repeated)| is_repeated) {
        return;
    }
    match (serde_json::from_str::<T>(&text), decode::<T>(id, bytes, true)) {
        (Ok(json), Ok(protobuf)) => assert_eq!(json, protobuf),
        (Err(_), Err(error)) => assert!(!error.to_string().is_empty()),
        (json, protobuf) => panic!("{json:?} from JSON, {protobuf:?} from protobuf, {text}"),
    }
}

/// Detector of maps with a repeated key.
struct HasRepeatedKey(bool);

impl<'de> Deserialize<'de> for HasRepeatedKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RepeatedKeyVisitor)
    }
}

struct RepeatedKeyVisitor;

impl<'de> Visitor<'de> for RepeatedKeyVisitor {
    type Value = HasRepeatedKey;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HasRepeatedKey, A::Error> {
        let (mut keys, mut is_repeated) = (HashSet::new(), false);
        while let Some((key, HasRepeatedKey(is_repeated_inside))) = map.next_entry::<String, HasRepeatedKey>()? {
            is_repeated |= is_repeated_inside || !keys.insert(key);
        }
        Ok(HasRepeatedKey(is_repeated))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<HasRepeatedKey, A::Error> {
        let mut is_repeated = false;
        while let Some(HasRepeatedKey(is_repeated_inside)) = sequence.next_element()? {
            is_repeated |= is_repeated_inside;
        }
        Ok(HasRepeatedKey(is_repeated))
    }

    fn visit_bool<E>(self, _: bool) -> Result<HasRepeatedKey, E> {
        Ok(HasRepeatedKey(false))
    }

    fn visit_i64<E>(self, _: i64) -> Result<HasRepeatedKey, E> {
        Ok(HasRepeatedKey(false))
    }

    fn visit_u64<E>(self, _: u64) -> Result<HasRepeatedKey, E> {
        Ok(HasRepeatedKey(false))
    }

    fn visit_f64<E>(self, _: f64) -> Result<HasRepeatedKey, E> {
        Ok(HasRepeatedKey(false))
    }

    fn visit_str<E>(self, _: &str) -> Result<HasRepeatedKey, E> {
        Ok(HasRepeatedKey(false))
    }

    fn visit_unit<E>(self) -> Result<HasRepeatedKey, E> {
        Ok(HasRepeatedKey(false))
    }
}

/// Checks that the removal of `managedFields` leaves the rest unchanged.
fn check_trimmed(object: &RawObject) {
    let trimmed = Decoder::default().decode::<Value>(object);
    let mut buffer = Vec::new();
    let compact = Bytes::copy_from_slice(object.compact(DecodeOptions::default(), &mut buffer));
    assert!(compact.len() <= object.bytes.len() + 8, "the encoding of lengths must be minimal");
    let compact = RawObject { bytes: compact, managed_fields: None, ..object.clone() };
    let mut uncut = Decoder::new(DecodeOptions { keep_managed_fields: true });
    match (trimmed, uncut.decode::<Value>(&compact), uncut.decode::<Value>(object)) {
        (Ok(trimmed), Ok(compact), full) => {
            assert_eq!(trimmed, compact);
            if let Ok(mut full) = full {
                if let Some(metadata) = full["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                assert_eq!(trimmed, full);
            }
        }
        (Err(_), Err(_), _) => {}
        (trimmed, compact, _) => panic!("{trimmed:?} is trimmed, {compact:?} compact"),
    }
    drop(Decoder::default().decode::<PartialObjectMeta<Pod>>(object));
}
