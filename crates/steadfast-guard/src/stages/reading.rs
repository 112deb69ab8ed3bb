//! From the bytes of an answer to an object.

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use steadfast_core::decode::{self, DecodeOptions, Decoder, Encoding, Kept, Wanted, WatchRecord};
use steadfast_core::frame::{Item, Line, LineFramer, ListFramer, ListPart};

use crate::meter::Meter;
use crate::sample;

/// The longest object that is read, in bytes.
pub(super) const LIMIT: usize = 16 << 20;

/// What HTTP/2 delivers at once unless a client asks for more, in bytes (RFC 9113, `SETTINGS_MAX_FRAME_SIZE`).
const FRAME: usize = 16_384;

/// What an informer of pods says that it wants.
pub(super) fn wanted() -> Wanted {
    Wanted { api_version: "v1".into(), kind: "Pod".into(), metadata: false }
}

fn chunks(mut body: Bytes) -> Vec<Bytes> {
    let mut chunks = Vec::new();
    while !body.is_empty() {
        // Each of its own memory, as they come from a network.
        chunks.push(Bytes::copy_from_slice(&body.split_to(body.len().min(FRAME))));
    }
    chunks
}

pub(super) fn frame_list(meter: &mut Meter, count: usize) {
    let chunks = chunks(sample::list(count));
    let framed = meter.count(|| {
        let mut framer = ListFramer::new(LIMIT);
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

pub(super) fn frame_watch(meter: &mut Meter, count: usize) {
    let chunks = chunks(sample::events(count).concat().into());
    let framed = meter.count(|| {
        let mut framer = LineFramer::new(LIMIT);
        let mut found = 0;
        for chunk in chunks {
            framer.feed(chunk);
            while let Some(line) = framer.next() {
                found += usize::from(matches!(line, Line::Whole(_)));
            }
        }
        found
    });
    assert_eq!(framed, count);
}

pub(super) fn scan_item(meter: &mut Meter, count: usize) {
    let wanted = wanted();
    for item in sample::items(count).into_iter().map(Item::from) {
        let scanned = meter.count(|| decode::list_item(Encoding::Json, &item, Some(&wanted)));
        assert!(scanned.is_ok(), "{scanned:?}");
    }
}

pub(super) fn scan_event(meter: &mut Meter, count: usize) {
    let wanted = wanted();
    for event in sample::events(count) {
        let line = event.slice(..event.len() - 1);
        let scanned = meter.count(|| decode::watch_record(Encoding::Json, &line, Some(&wanted)));
        assert!(matches!(scanned, Ok(WatchRecord::Object { .. })), "{scanned:?}");
    }
}

pub(super) fn decode(meter: &mut Meter, count: usize) {
    let mut decoder = Decoder::new(DecodeOptions::default());
    for item in sample::items(count) {
        let raw = decode::list_item(Encoding::Json, &item.into(), None).expect("a pod");
        let pod = meter.count(|| Pod::decode(&raw, &mut decoder)).expect("a pod");
        assert!(pod.metadata.managed_fields.is_none());
    }
}

pub(super) fn drop_pod(meter: &mut Meter, count: usize) {
    let mut decoder = Decoder::new(DecodeOptions::default());
    for item in sample::items(count) {
        let raw = decode::list_item(Encoding::Json, &item.into(), None).expect("a pod");
        let pod = Pod::decode(&raw, &mut decoder).expect("a pod");
        meter.count(|| drop(pod));
    }
}
