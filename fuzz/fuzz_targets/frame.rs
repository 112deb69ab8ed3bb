//! Framing: any bytes, cut anywhere, give the same records, within the limit, and never a panic. A record above the limit
//! is known by what it is known by when it is held.
//!
//! The input is one byte for the limit, one for the length of cuts, and the body.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use steadfast_core::ResourceVersion;
use steadfast_core::decode::{self, Encoding, PartialIdentity, WatchRecord};
use steadfast_core::frame::{FrameError, Line, LineFramer, ListFramer, ListPart};

fuzz_target!(|input: &[u8]| {
    let [limit, cut, body @ ..] = input else { return };
    // A few limits that bodies exceed, and one that none does.
    let limit = if *limit >= 128 { 1 << 20 } else { usize::from(*limit) * 4 };
    let body = Bytes::copy_from_slice(body);
    let (whole, cut) = ([body.len().max(1)], [usize::from(cut % 16) + 1, usize::from(cut / 16) + 1]);

    let (records, ended) = lines(limit, &body, &whole);
    let again = lines(limit, &body, &cut);
    assert_same((&records, ended), (&again.0, again.1));
    for record in &records {
        let Line::Whole(record) = record else { continue };
        assert!(record.len() <= limit && !record.contains(&b'\n'));
    }
    let lengths = body.split(|byte| *byte == b'\n');
    let held = lines(usize::MAX, &body, &whole).0;
    let long = lengths.filter(|line| line.len() > limit).count();
    if body.ends_with(b"\n") {
        assert_eq!(records.iter().filter(|record| matches!(record, Line::Overlong(_))).count(), long);
    }
    if records.len() == held.len() {
        records.iter().zip(&held).for_each(|(record, held)| known_alike(record, held));
    }

    let (parts, ended) = list(limit, &body, &whole);
    let again = list(limit, &body, &cut);
    assert_same((&parts, ended), (&again.0, again.1));
    agrees_with_serde(&body, &parts, ended);
});

/// The same records and the same end; where the body breaks off, how much of it was held may depend on the cuts.
fn assert_same<T: PartialEq + std::fmt::Debug>(
    (whole, ended): (&Vec<T>, Result<(), FrameError>),
    (cut, cut_ended): (&Vec<T>, Result<(), FrameError>),
) {
    match (ended, cut_ended) {
        // A malformed value that is also too long is one or the other, whichever is seen first.
        (Err(FrameError::TooLarge { .. }), Err(_)) | (Err(_), Err(FrameError::TooLarge { .. })) => {}
        (Err(FrameError::Truncated { .. }), Err(FrameError::Truncated { .. })) => assert_eq!(whole, cut),
        (ended, cut_ended) => {
            assert_eq!(ended, cut_ended);
            assert_eq!(whole, cut);
        }
    }
}

fn lines(limit: usize, body: &Bytes, cuts: &[usize]) -> (Vec<Line>, Result<(), FrameError>) {
    let mut framer = LineFramer::new(limit);
    let mut records = Vec::new();
    for chunk in chunks(body, cuts) {
        framer.feed(chunk);
        records.extend(std::iter::from_fn(|| framer.next()));
    }
    (records, framer.finish())
}

/// What passed is known as it is when it is held, if it is JSON at all and no string of it too long to be kept.
fn known_alike(passed: &Line, held: &Line) {
    let (Line::Overlong(passed), Line::Whole(held)) = (passed, held) else { return };
    if serde_json::from_slice::<Value>(held).is_err() || held.len() > 4096 {
        return;
    }
    let (kind, identity) = match decode::watch_record(Encoding::Json, held, None) {
        Ok(WatchRecord::Object { kind, object }) => {
            let whole = object.identity;
            let identity = PartialIdentity { key: Some(whole.key), uid: Some(whole.uid), version: Some(whole.version) };
            (Some(kind), identity)
        }
        Ok(_) => return,
        Err(error) => (error.kind, *error.identity),
    };
    let error = decode::overlong(passed, None);
    // What stands for a version that was not given is made of what was held.
    let told = |identity: PartialIdentity| {
        let version = identity.version.filter(ResourceVersion::is_given);
        PartialIdentity { version, ..identity }
    };
    assert_eq!((error.kind, told(*error.identity)), (kind, told(identity)));
}

fn list(limit: usize, body: &Bytes, cuts: &[usize]) -> (Vec<ListPart>, Result<(), FrameError>) {
    let mut framer = ListFramer::new(limit);
    let mut parts = Vec::new();
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

/// A list that was read to its end has the items that `serde_json` reads.
fn agrees_with_serde(body: &[u8], parts: &[ListPart], ended: Result<(), FrameError>) {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return };
    if !value.is_object() {
        assert!(ended.is_err(), "no object, and a list");
        return;
    }
    if ended.is_err() || parts.iter().any(|part| matches!(part, ListPart::Overlong(_))) {
        return;
    }
    let items = parts.iter().filter_map(|part| match part {
        ListPart::Item(item) => Some(serde_json::from_slice::<Value>(item).expect("a part of what serde reads")),
        _ => None,
    });
    let wanted = value["items"].as_array().cloned().unwrap_or_default();
    assert_eq!(items.collect::<Vec<_>>(), wanted);
    match parts.last() {
        Some(ListPart::End { kind, .. }) => assert_eq!(kind.as_deref(), value["kind"].as_str()),
        Some(ListPart::Status(_)) => assert_eq!(value["kind"], "Status"),
        last => panic!("a list ends with its end, not with {last:?}"),
    }
}
