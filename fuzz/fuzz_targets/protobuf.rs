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
use steadfast_core::protobuf::{MessageId, decode};

const KINDS: [(&str, &str); 5] = [
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

    let records = stream(limit, &body, &uncut);
    same(&records, &stream(limit, &body, &cut));
    for record in records.0 {
        match record {
            StreamRecord::Complete(record) => event(&record),
            StreamRecord::Overlong(record) => drop(decode::overlong(&record, None)),
        }
    }
    let parts = list(limit, &body, &uncut);
    same(&parts, &list(limit, &body, &cut));
    for part in parts.0 {
        match part {
            ListPart::Item(part) => item(&part),
            ListPart::Overlong(part) => drop(decode::overlong(&part, None)),
            _ => {}
        }
    }
    event(&body);
    let (api_version, kind) = KINDS[usize::from(*kind) % KINDS.len()];
    item(&Item::of_message(body.clone(), MessageId::of_kind(api_version, kind).expect("the kind is built in")));
    drop(decode::status(Encoding::Protobuf, &body));
    drop(decode::continue_token(Encoding::Protobuf, &body));
});

type Cut<T> = (Vec<T>, Result<(), FrameError>);

/// Checks for the same records and the same end. If the body breaks off, the amount of buffered data may depend on the
/// pieces.
fn same<T: PartialEq + Debug>(one: &Cut<T>, other: &Cut<T>) {
    match (one.1, other.1) {
        (Err(FrameError::Truncated { .. }), Err(FrameError::Truncated { .. }))
        | (Err(FrameError::Malformed { .. }), Err(FrameError::Malformed { .. })) => {}
        (one, other) => assert_eq!(one, other),
    }
    assert_eq!(one.0, other.0);
}

fn stream(limit: usize, body: &Bytes, cuts: &[usize]) -> Cut<StreamRecord> {
    let (mut framer, mut records) = (StreamFramer::new(Encoding::Protobuf, limit), Vec::new());
    for chunk in chunks(body, cuts) {
        framer.feed(chunk);
        records.extend(std::iter::from_fn(|| framer.next()));
    }
    (records, framer.finish())
}

fn list(limit: usize, body: &Bytes, cuts: &[usize]) -> Cut<ListPart> {
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

fn event(record: &Bytes) {
    match watch_record(Encoding::Protobuf, record, None) {
        Ok(WatchRecord::Object { object, .. }) => kept(&object),
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn item(item: &Item) {
    let id = item.message().expect("the item has a message");
    as_in_json::<DynamicObject>(id, item);
    as_in_json::<Pod>(id, item);
    as_in_json::<ConfigMap>(id, item);
    as_in_json::<Secret>(id, item);
    as_in_json::<CustomResourceDefinition>(id, item);
    match list_item(Encoding::Protobuf, item, None) {
        Ok(object) => kept(&object),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Checks that the value in another form equals the value from its JSON.
fn as_in_json<T: DeserializeOwned + Debug + PartialEq>(id: MessageId, bytes: &[u8]) {
    let Ok(value) = decode::<Value>(id, bytes, true) else { return };
    let text = value.to_string();
    // An embedded object may add as many nesting levels again. The total may exceed the limit of `serde_json`.
    let Ok(again) = serde_json::from_str::<Value>(&text) else { return };
    assert_eq!(again, value);
    // If a map contains a key twice, JSON keeps the last value, and the form may reject the first one.
    if decode::<Repeats>(id, bytes, true).is_ok_and(|Repeats(repeats)| repeats) {
        return;
    }
    match (serde_json::from_str::<T>(&text), decode::<T>(id, bytes, true)) {
        (Ok(json), Ok(protobuf)) => assert_eq!(json, protobuf),
        (Err(_), Err(error)) => assert!(!error.to_string().is_empty()),
        (json, protobuf) => panic!("{json:?} from JSON, {protobuf:?} from protobuf, {text}"),
    }
}

/// Detector of maps with a repeated key.
struct Repeats(bool);

impl<'de> Deserialize<'de> for Repeats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FindRepeats)
    }
}

struct FindRepeats;

impl<'de> Visitor<'de> for FindRepeats {
    type Value = Repeats;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Repeats, A::Error> {
        let (mut keys, mut repeats) = (HashSet::new(), false);
        while let Some((key, Repeats(inside))) = map.next_entry::<String, Repeats>()? {
            repeats |= inside || !keys.insert(key);
        }
        Ok(Repeats(repeats))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Repeats, A::Error> {
        let mut repeats = false;
        while let Some(Repeats(inside)) = sequence.next_element()? {
            repeats |= inside;
        }
        Ok(Repeats(repeats))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }

    fn visit_str<E>(self, _: &str) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }

    fn visit_unit<E>(self) -> Result<Repeats, E> {
        Ok(Repeats(false))
    }
}

/// Checks that the removal of `managedFields` leaves the rest unchanged.
fn kept(object: &RawObject) {
    let trimmed = Decoder::default().decode::<Value>(object);
    let mut buffer = Vec::new();
    let compact = Bytes::copy_from_slice(object.compact(DecodeOptions::default(), &mut buffer));
    assert!(compact.len() <= object.bytes.len() + 8, "the encoding of lengths must be minimal");
    let compact = RawObject { bytes: compact, managed_fields: None, ..object.clone() };
    let mut uncut = Decoder::new(DecodeOptions { keep_managed_fields: true });
    match (trimmed, uncut.decode::<Value>(&compact), uncut.decode::<Value>(object)) {
        (Ok(trimmed), Ok(compact), all) => {
            assert_eq!(trimmed, compact);
            if let Ok(mut all) = all {
                if let Some(metadata) = all["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                assert_eq!(trimmed, all);
            }
        }
        (Err(_), Err(_), _) => {}
        (trimmed, compact, _) => panic!("{trimmed:?} is trimmed, {compact:?} compact"),
    }
    drop(Decoder::default().decode::<PartialObjectMeta<Pod>>(object));
}
