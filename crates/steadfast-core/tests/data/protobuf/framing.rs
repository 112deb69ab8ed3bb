//! Framing yields equal records for any chunk boundaries.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use steadfast_core::decode::{Decoder, PartialIdentity, list_item, overlong, watch_record};
use steadfast_core::frame::{FrameError, Item, ItemFramer, ListPart, Overlong, StreamFramer, StreamRecord};
use steadfast_core::record::{ListMeta, RecordKind};
use steadfast_core::{Encoding, RawObject};

use crate::protobuf::build::{bare, delimited, enveloped, event, number, text};
use crate::protobuf::samples::corpus;

const LIMIT: usize = 1 << 20;

fn chunks(body: &Bytes, sizes: &[usize]) -> Vec<Bytes> {
    let (mut rest, mut chunks) = (body.clone(), Vec::new());
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        chunks.push(rest.split_to((*size).clamp(1, rest.len())));
    }
    chunks
}

fn list(limit: usize, body: &Bytes, sizes: &[usize]) -> Framed<ListPart> {
    let (mut framer, mut parts) = (ItemFramer::new(Encoding::Protobuf, limit), Vec::new());
    for chunk in chunks(body, sizes) {
        framer.feed(chunk);
        while let Some(part) = framer.next() {
            match part {
                Ok(part) => parts.push(part),
                Err(error) => {
                    assert!(framer.next().is_none(), "a framer yields nothing after an error");
                    assert_eq!(framer.finish(), Err(error));
                    return (parts, Err(error));
                }
            }
        }
    }
    (parts, framer.finish())
}

fn lines(limit: usize, body: &Bytes, sizes: &[usize]) -> Framed<StreamRecord> {
    let (mut framer, mut records) = (StreamFramer::new(Encoding::Protobuf, limit), Vec::new());
    for chunk in chunks(body, sizes) {
        framer.feed(chunk);
        records.extend(std::iter::from_fn(|| framer.next()));
    }
    (records, framer.finish())
}

/// Returns the pods of the corpus, as messages without an envelope, with their JSON.
fn pods() -> Vec<(Vec<u8>, &'static str)> {
    let pods = corpus().into_iter().filter(|(_, kind, ..)| *kind == "Pod");
    pods.map(|(_, _, protobuf, json)| (bare(&protobuf).to_vec(), json)).collect()
}

fn pod(name: &str, padding: usize) -> Vec<u8> {
    let metadata = [text(1, name), text(3, "n"), text(5, "u"), text(6, "7")].concat();
    let spec = delimited(2, &text(10, &"x".repeat(padding)));
    [delimited(1, &metadata), spec].concat()
}

fn pod_list(items: &[Vec<u8>]) -> Bytes {
    let meta = delimited(1, &[text(2, "4711"), text(3, "token"), number(4, 3)].concat());
    let items: Vec<_> = items.iter().map(|item| delimited(2, item)).collect();
    // Go writes the two empty fields of `runtime.Unknown` at the end: the encoding and the content type.
    let list = enveloped("v1", "PodList", &[meta, items.concat()].concat());
    Bytes::from([list, text(3, ""), text(4, "")].concat())
}

fn meta() -> ListPart {
    ListPart::Meta(ListMeta { version: Some("4711".into()), continue_token: Some("token".to_owned()) })
}

fn end() -> ListPart {
    ListPart::End { kind: Some("PodList".to_owned()), items: true }
}

fn identity(read: Result<RawObject, steadfast_core::decode::RecordError>) -> PartialIdentity {
    match read {
        Ok(RawObject { identity, .. }) => {
            PartialIdentity { key: Some(identity.key), uid: Some(identity.uid), version: Some(identity.version) }
        }
        Err(error) => *error.identity,
    }
}

fn reported(record: &Overlong) -> (Option<RecordKind>, PartialIdentity) {
    let error = overlong(record, None);
    (error.kind, *error.identity)
}

#[test]
fn protobuf_list_matches_json() {
    let pods = pods();
    let body = pod_list(&pods.iter().map(|(message, _)| message.clone()).collect::<Vec<_>>());
    let (parts, ended) = list(LIMIT, &body, &[body.len()]);
    assert_eq!((ended, parts.first(), parts.last()), (Ok(()), Some(&meta()), Some(&end())));
    assert_eq!(parts.len(), pods.len() + 2);
    for (part, (message, json)) in parts[1..].iter().zip(&pods) {
        let ListPart::Item(item) = part else { panic!("{part:?} is not an item") };
        assert_eq!(item.bytes(), message);
        assert!(body.as_ptr_range().contains(&item.bytes().as_ptr()), "an item must be a slice of the chunk");
        let Ok(raw) = list_item(Encoding::Protobuf, item, None) else { continue };
        let mut wanted: Value = serde_json::from_str(json).expect("Go writes JSON");
        let object = wanted.as_object_mut().expect("the list item is an object");
        object.remove("apiVersion");
        object.remove("kind");
        object["metadata"].as_object_mut().expect("the metadata are an object").remove("managedFields");
        assert_eq!(Decoder::default().decode::<Value>(&raw), Ok(wanted));
    }
}

#[test]
fn list_from_go_contains_its_items() {
    let (mut lists, mut items) = (0, 0);
    for (_, kind, protobuf, json) in corpus().into_iter().filter(|(_, kind, ..)| kind.ends_with("List")) {
        let body = Bytes::from(protobuf);
        let wanted: Value = serde_json::from_str(json).expect("Go writes JSON");
        for size in [1, 3, 7, 100, body.len()] {
            let (parts, ended) = list(LIMIT, &body, &[size]);
            assert_eq!(ended, Ok(()));
            assert_eq!(parts.last(), Some(&ListPart::End { kind: Some(kind.to_owned()), items: true }));
            let found = parts.iter().filter(|part| matches!(part, ListPart::Item(_))).count();
            assert_eq!(found, wanted["items"].as_array().map_or(0, Vec::len));
            let version = wanted["metadata"]["resourceVersion"].as_str();
            let Some(ListPart::Meta(meta)) = parts.first() else {
                panic!("the first part must be the metadata of the list")
            };
            assert_eq!(meta.version.as_ref().map(|version| version.as_str().to_owned()), version.map(str::to_owned));
            items += found;
        }
        lists += 1;
    }
    assert!(lists >= 3 && items > 0, "{lists} lists, {items} items");
}

#[test]
fn status_instead_of_list_is_a_status() {
    let body = Bytes::from(enveloped("v1", "Status", &[text(4, "Expired"), number(6, 410)].concat()));
    for size in [1, 2, body.len()] {
        let (parts, ended) = list(LIMIT, &body, &[size]);
        let [ListPart::Status(status)] = &parts[..] else { panic!("{parts:?}") };
        assert_eq!((ended, status.code, status.reason.as_str()), (Ok(()), 410, "Expired"));
    }
}

#[test]
fn non_list_is_reported() {
    for (kind, items) in [("Pod", false), ("Unheard", false), ("PodList", true)] {
        let body = Bytes::from(enveloped("v1", kind, &delimited(1, &text(1, "a"))));
        let (parts, ended) = list(LIMIT, &body, &[body.len()]);
        assert_eq!((ended, parts.last()), (Ok(()), Some(&ListPart::End { kind: Some(kind.to_owned()), items })));
    }
    for body in [&b"{\"kind\":"[..], b"k8s\x01", b"<html>", b"k8s\0\x0f"] {
        let (parts, ended) = list(LIMIT, &Bytes::from_static(body), &[1]);
        assert!(parts.is_empty() && ended.is_err(), "{body:?}");
    }
}

#[test]
fn wrong_lengths_end_the_list() {
    let types = delimited(1, &[text(1, "v1"), text(2, "PodList")].concat());
    let prefix = [b"k8s\0".to_vec(), types.clone()].concat();
    for (rest, malformed) in [
        // An item beyond the end of its list.
        (delimited(2, &[0x12, 0x05, 0, 0]), true),
        (delimited(2, &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]), true),
        // An item that is a number; a group; an invalid tag.
        (delimited(2, &[0x10, 0x05]), true),
        (delimited(2, &[0x13, 0x14]), true),
        (delimited(2, &[0x06]), true),
        // A list with an endless length, a duplicate list, and a type after the content.
        ([vec![0x12], vec![0xff; 9], vec![0x01]].concat(), true),
        ([delimited(2, &[]), delimited(2, &[])].concat(), true),
        ([delimited(2, &[]), types].concat(), true),
        // A length beyond the end of the body.
        (vec![0x12, 0x7f, 0x0a], false),
    ] {
        let body = Bytes::from([prefix.clone(), rest.clone()].concat());
        for size in [1, 2, body.len()] {
            let ended = list(LIMIT, &body, &[size]).1;
            let found = matches!(ended, Err(FrameError::Malformed { encoding: Encoding::Protobuf, .. }));
            assert!(ended.is_err() && found == malformed, "{rest:?} by {size}: {ended:?}");
        }
    }
    let late = Bytes::from([b"k8s\0".to_vec(), delimited(2, &[])].concat());
    assert!(matches!(list(LIMIT, &late, &[1]).1, Err(FrameError::Malformed { .. })));
    let long = enveloped("v1", "PodList", &delimited(1, &text(2, &"x".repeat(2 << 20))));
    assert!(matches!(list(LIMIT, &Bytes::from(long), &[4096]).1, Err(FrameError::TooLarge { .. })));
}

#[test]
fn overlong_item_keeps_its_identity() {
    let items = [pod("a", 10), pod("long", 5000), pod("b", 10)];
    let body = pod_list(&items);
    let wanted = identity(list_item(
        Encoding::Protobuf,
        &Item::of_message(Bytes::from(items[1].clone()), crate::protobuf::samples::id("v1", "Pod")),
        None,
    ));
    for size in [1, 2, 3, 64, 1000, body.len()] {
        let (parts, ended) = list(1000, &body, &[size]);
        assert_eq!((ended, parts.len()), (Ok(()), 5));
        let ListPart::Overlong(item) = &parts[2] else { panic!("{:?} is longer than 1000", parts[2]) };
        assert_eq!((item.bytes(), reported(item)), (items[1].len() as u64, (None, wanted.clone())));
    }
}

#[test]
fn overlong_event_keeps_its_identity() {
    let objects = [pod("a", 10), pod("long", 5000), pod("b", 10)];
    let events: Vec<_> = objects.iter().map(|object| event("MODIFIED", &enveloped("v1", "Pod", object))).collect();
    let body = Bytes::from(events.concat());
    let wanted = {
        let record = Bytes::from(events[1].clone()).slice(4..);
        match watch_record(Encoding::Protobuf, &record, None) {
            Ok(steadfast_core::decode::WatchRecord::Object { object, .. }) => identity(Ok(object)),
            other => panic!("{other:?}"),
        }
    };
    for size in [1, 2, 3, 5, 64, 1000, body.len()] {
        let (records, ended) = lines(1000, &body, &[size]);
        let [StreamRecord::Complete(_), StreamRecord::Overlong(long), StreamRecord::Complete(_)] = &records[..] else {
            panic!("{records:?}")
        };
        assert_eq!(ended, Ok(()));
        assert_eq!(reported(long), (Some(RecordKind::Modified), wanted.clone()));
    }
}

#[test]
fn overlong_namespace_discards_the_key() {
    // An overlong namespace follows the name. The name alone would be the key of another object.
    let metadata = [text(1, "a"), text(3, &"n".repeat(100_000)), text(5, "u"), text(6, "7")].concat();
    let body = pod_list(&[delimited(1, &metadata)]);
    let (parts, _) = list(1000, &body, &[4096]);
    let ListPart::Overlong(item) = &parts[1] else { panic!("the item must exceed the limit") };
    assert_eq!(reported(item).1.key, None);
    // Incomplete metadata yield no identity.
    let cut = body.slice(..body.len() / 2);
    let (parts, ended) = list(1000, &cut, &[4096]);
    assert_eq!(parts.len(), 1);
    assert!(matches!(ended, Err(FrameError::Truncated { .. })));
}

#[test]
fn endless_record_is_reported_once() {
    let mut framer = StreamFramer::new(Encoding::Protobuf, 100);
    framer.feed(Bytes::from_static(&[0xff; 4]));
    assert_eq!(framer.next(), None);
    let mut reported = Vec::new();
    for _ in 0..100 {
        framer.feed(Bytes::from_static(&[0; 100]));
        assert_eq!(framer.next(), None);
        reported.extend(framer.take_overlong_length());
    }
    assert_eq!(reported.len(), 1);
    assert!(matches!(framer.finish(), Err(FrameError::Truncated { .. })));
}

#[test]
fn truncated_body_is_an_error() {
    let body = pod_list(&[pod("a", 10), pod("b", 300)]);
    let list_end = body.len() - 4;
    for end in 0..body.len() {
        let (parts, ended) = list(LIMIT, &body.slice(..end), &[50]);
        if end == list_end || end == list_end + 2 {
            assert_eq!((ended, parts.last()), (Ok(()), Some(&self::end())));
        } else {
            assert!(matches!(ended, Err(FrameError::Truncated { .. })), "{end}: {ended:?}");
        }
    }
    let body = Bytes::from(event("ADDED", &pod("a", 10)));
    for end in 1..body.len() {
        assert!(matches!(lines(LIMIT, &body.slice(..end), &[7]).1, Err(FrameError::Truncated { .. })));
    }
}

/// Results of a framer, and the end of its body.
type Framed<T> = (Vec<T>, Result<(), FrameError>);

/// Asserts equal records and an equal end. The number of held bytes of a truncated body and the offset within an
/// invalid tag may differ.
fn assert_same<T: PartialEq + std::fmt::Debug>(one: &Framed<T>, other: &Framed<T>) {
    match (one.1, other.1) {
        (Err(FrameError::Truncated { .. }), Err(FrameError::Truncated { .. }))
        | (Err(FrameError::Malformed { .. }), Err(FrameError::Malformed { .. })) => {}
        (one, other) => assert_eq!(one, other),
    }
    assert_eq!(one.0, other.0);
}

proptest! {
    #[test]
    fn list_errors_are_independent_of_chunks(
        limit in prop::sample::select(vec![64, 1000, LIMIT]),
        sizes in prop::collection::vec(1_usize..200, 1..8),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut body = pod_list(&[pod("a", 10), pod("b", 700), pods()[2].0.clone()]).to_vec();
        for (position, byte) in damage {
            let position = position.index(body.len());
            body[position] ^= byte;
        }
        let body = Bytes::from(body);
        assert_same(&list(limit, &body, &sizes), &list(limit, &body, &[body.len()]));
    }

    #[test]
    fn events_are_independent_of_chunks(
        limit in prop::sample::select(vec![64, 1000, LIMIT]),
        sizes in prop::collection::vec(1_usize..200, 1..8),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let mut body = [event("ADDED", &enveloped("v1", "Pod", &pod("a", 900))), event("BOOKMARK", &[]), event("DELETED", &pod("b", 3))].concat();
        for (position, byte) in damage {
            let position = position.index(body.len());
            body[position] ^= byte;
        }
        let body = Bytes::from(body);
        let unsplit = lines(limit, &body, &[body.len()]);
        for record in &unsplit.0 {
            if let StreamRecord::Complete(record) = record {
                prop_assert!(record.len() <= limit);
                drop(watch_record(Encoding::Protobuf, record, None));
            }
        }
        assert_same(&lines(limit, &body, &sizes), &unsplit);
    }

    #[test]
    fn arbitrary_bytes_are_framed_or_fail(
        body in prop::collection::vec(any::<u8>(), 0..300),
        sizes in prop::collection::vec(1_usize..50, 1..8),
        has_valid_start: bool,
    ) {
        let types = delimited(1, &[text(1, "v1"), text(2, "PodList")].concat());
        let start = if has_valid_start { [b"k8s\0".to_vec(), types, vec![0x12, 0xf0, 0x01]].concat() } else { Vec::new() };
        let body = Bytes::from([start, body].concat());
        assert_same(&list(64, &body, &sizes), &list(64, &body, &[body.len().max(1)]));
        assert_same(&lines(64, &body, &sizes), &lines(64, &body, &[body.len().max(1)]));
        drop(watch_record(Encoding::Protobuf, &body, None));
    }
}
