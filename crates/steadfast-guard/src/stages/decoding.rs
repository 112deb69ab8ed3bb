//! Decoding: from the bytes of a response to an object.

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use steadfast_core::decode::{self, Cacheable, DecodeOptions, Decoder, Encoding, ExpectedKind, WatchRecord};
use steadfast_core::event::Rules;
use steadfast_core::frame::{ItemFramer, ListPart, StreamFramer, StreamRecord};
use steadfast_core::store::{Lookup, Store};
use steadfast_core::{Object, ObjectKey, WithSize};

use super::store::{WATCHED, identity};
use crate::meter::Meter;
use crate::sample;

/// Maximum length of an object in bytes.
pub(super) const MAX_OBJECT_BYTES: usize = 16 << 20;

/// Maximum number of bytes that HTTP/2 delivers at once by default (RFC 9113, `SETTINGS_MAX_FRAME_SIZE`).
const FRAME_BYTES: usize = 16_384;

/// Returns the requirements of an informer of pods.
pub(super) fn wanted() -> ExpectedKind {
    ExpectedKind { api_version: "v1".into(), kind: "Pod".into(), metadata: false }
}

fn chunks(mut body: Bytes) -> Vec<Bytes> {
    let mut chunks = Vec::new();
    while !body.is_empty() {
        // Each chunk has its own memory, like a chunk from a network.
        chunks.push(Bytes::copy_from_slice(&body.split_to(body.len().min(FRAME_BYTES))));
    }
    chunks
}

pub(super) fn frame_list(meter: &mut Meter, encoding: Encoding, count: usize) {
    let chunks = chunks(sample::list(encoding, count));
    let framed = meter.count(|| {
        let mut framer = ItemFramer::new(encoding, MAX_OBJECT_BYTES);
        let mut found = 0;
        for chunk in chunks {
            framer.feed(chunk);
            while let Some(part) = framer.next() {
                found += usize::from(matches!(part, Ok(ListPart::Item(_))));
            }
        }
        framer.finish().map(|()| found)
    });
    assert_eq!(framed, Ok(count));
}

/// Measures the framing and the scan of list items. The framing finds the metadata, so the scan does not search for it
/// again.
pub(super) fn read_list(meter: &mut Meter, encoding: Encoding, count: usize) {
    let (chunks, wanted) = (chunks(sample::list(encoding, count)), wanted());
    let scanned = meter.count(|| {
        let mut framer = ItemFramer::new(encoding, MAX_OBJECT_BYTES);
        let mut scanned = 0;
        for chunk in chunks {
            framer.feed(chunk);
            while let Some(part) = framer.next() {
                let Ok(ListPart::Item(item)) = part else { continue };
                scanned += usize::from(decode::list_item(encoding, &item, Some(&wanted)).is_ok());
            }
        }
        scanned
    });
    assert_eq!(scanned, count);
}

pub(super) fn frame_watch(meter: &mut Meter, encoding: Encoding, count: usize) {
    // Events are cut at frame boundaries, so that some of them span two chunks.
    let chunks = chunks(sample::events(encoding, count).concat().into());
    let framed = meter.count(|| {
        let mut framer = StreamFramer::new(encoding, MAX_OBJECT_BYTES);
        let mut found = 0;
        for chunk in chunks {
            framer.feed(chunk);
            while let Some(line) = framer.next() {
                found += usize::from(matches!(line, StreamRecord::Complete(_)));
            }
        }
        framer.finish().map(|()| found)
    });
    assert_eq!(framed, Ok(count));
}

/// Measures an item whose framing found no metadata, since the item was not in one chunk.
pub(super) fn scan_item(meter: &mut Meter, encoding: Encoding, count: usize) {
    let wanted = wanted();
    for item in sample::items(encoding, count) {
        let scanned = meter.count(|| decode::list_item(encoding, &item, Some(&wanted)));
        assert!(scanned.is_ok(), "{scanned:?}");
    }
}

pub(super) fn scan_event(meter: &mut Meter, encoding: Encoding, count: usize) {
    let wanted = wanted();
    let mut framer = StreamFramer::new(encoding, MAX_OBJECT_BYTES);
    for event in sample::events(encoding, count) {
        framer.feed(event);
        let Some(StreamRecord::Complete(line)) = framer.next() else { panic!("an event") };
        let scanned = meter.count(|| decode::watch_record(encoding, &line, Some(&wanted)));
        assert!(matches!(scanned, Ok(WatchRecord::Object { .. })), "{scanned:?}");
    }
}

pub(super) fn decode(meter: &mut Meter, encoding: Encoding, count: usize) {
    let mut decoder = Decoder::new(DecodeOptions::default());
    for item in sample::items(encoding, count) {
        let raw = decode::list_item(encoding, &item, None).expect("a pod");
        // The decoded object is dropped outside of the measured closure. `drop_pod` measures the drop.
        let pod = meter.count(|| Pod::decode(&raw, &mut decoder)).expect("a pod");
        assert!(pod.metadata.managed_fields.is_none());
    }
}

/// Returns the decoder of an informer of pods that decodes on demand.
pub(super) fn decoder_on_demand() -> Decoder {
    Decoder::new(DecodeOptions::default()).on_demand(4096, Arc::new(|_, _| {}))
}

/// Returns a store with pods that are cached in packed form.
fn store_on_demand(encoding: Encoding, count: usize) -> (Store<Pod>, Vec<ObjectKey>) {
    let (mut decoder, mut store, mut keys) = (decoder_on_demand(), Store::new(Rules::default()), Vec::new());
    for (number, item) in sample::items(encoding, count).into_iter().enumerate() {
        let raw = decode::list_item(encoding, &item, None).expect("a pod");
        let pod = WithSize::<Pod>::decode(&raw, &mut decoder).expect("a pod");
        // The sample has few names, so each pod receives another one.
        let identity = identity(number, number);
        keys.push(identity.key.clone());
        store.apply(identity, Ok(pod), &WATCHED, drop);
    }
    store.publish();
    (store, keys)
}

/// Measures the conversion of a pod to the packed form of a cache that decodes on demand.
pub(super) fn pack(meter: &mut Meter, encoding: Encoding, count: usize) {
    let mut decoder = decoder_on_demand();
    for item in sample::items(encoding, count) {
        let raw = decode::list_item(encoding, &item, None).expect("a pod");
        let packed = meter.count(|| Pod::on_demand(&raw, 32_000, &mut decoder));
        assert!(packed.is_some());
    }
}

/// Measures the first read of a cached pod, including its decode, and the drop of the decoded pod.
pub(super) fn read_on_demand(meter: &mut Meter, encoding: Encoding, count: usize) {
    let (store, keys) = store_on_demand(encoding, count);
    let reader = store.reader();
    for key in keys {
        let Lookup::Found(pod) = reader.get_by_key(&key) else { panic!("{key} exists") };
        let is_named = meter.count(|| {
            let pod = Object::private(pod);
            pod.metadata.name.is_some()
        });
        assert!(is_named);
    }
}

/// Measures a repeated read of a cached pod.
pub(super) fn read_decoded(meter: &mut Meter, encoding: Encoding, count: usize) {
    let (store, keys) = store_on_demand(encoding, count);
    let reader = store.reader();
    for key in keys {
        let Lookup::Found(pod) = reader.get_by_key(&key) else { panic!("{key} exists") };
        assert!(pod.metadata.name.is_some());
        assert!(meter.count(|| pod.metadata.name.is_some()));
    }
}

/// Measures the drop of pods that were allocated together, one after the other. The cost of `free` depends on the
/// neighbours.
pub(super) fn drop_pod(meter: &mut Meter, count: usize) {
    let mut decoder = Decoder::new(DecodeOptions::default());
    let mut decode = |item| Pod::decode(&decode::list_item(Encoding::Json, &item, None).expect("a pod"), &mut decoder);
    let pods: Vec<Pod> =
        sample::items(Encoding::Json, count).into_iter().map(|item| decode(item).expect("a pod")).collect();
    for pod in pods {
        meter.count(|| drop(pod));
    }
}
