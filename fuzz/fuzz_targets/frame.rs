//! Fuzzes framing: any bytes, split at any position, must yield the same records within the limit, without a panic. A
//! record above the limit must have the same identity as a complete one.
//!
//! The input consists of one byte for the limit, one byte for the length of the pieces, and the body.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use steadfast_core::ResourceVersion;
use steadfast_core::decode::{self, Encoding, PartialIdentity, WatchRecord};
use steadfast_core::frame::{FrameError, LineFramer, ListFramer, ListPart, StreamRecord};

fuzz_target!(|input: &[u8]| {
    let [limit, cut, body @ ..] = input else { return };
    // Some limits that bodies exceed, and one that no body exceeds.
    let limit = if *limit >= 128 { 1 << 20 } else { usize::from(*limit) * 4 };
    let body = Bytes::copy_from_slice(body);
    let (uncut, cut) = ([body.len().max(1)], [usize::from(cut % 16) + 1, usize::from(cut / 16) + 1]);

    let (records, result) = frame_lines(limit, &body, &uncut);
    let reframed = frame_lines(limit, &body, &cut);
    assert_same((&records, result), (&reframed.0, reframed.1));
    for record in &records {
        let StreamRecord::Complete(record) = record else { continue };
        assert!(record.len() <= limit && !record.contains(&b'\n'));
    }
    let body_lines = body.split(|byte| *byte == b'\n');
    let buffered_records = frame_lines(usize::MAX, &body, &uncut).0;
    let overlong_count = body_lines.filter(|line| line.len() > limit).count();
    if body.ends_with(b"\n") {
        assert_eq!(records.iter().filter(|record| matches!(record, StreamRecord::Overlong(_))).count(), overlong_count);
    }
    if records.len() == buffered_records.len() {
        records.iter().zip(&buffered_records).for_each(|(record, buffered)| assert_same_identity(record, buffered));
    }

    let (parts, result) = frame_list(limit, &body, &uncut);
    let reframed = frame_list(limit, &body, &cut);
    assert_same((&parts, result), (&reframed.0, reframed.1));
    assert_equals_serde(&body, &parts, result);
});

/// Checks for the same records and the same end. If the body is truncated, the byte count in the error may depend on
/// the pieces.
fn assert_same<T: PartialEq + std::fmt::Debug>(
    (uncut, result): (&Vec<T>, Result<(), FrameError>),
    (cut, cut_result): (&Vec<T>, Result<(), FrameError>),
) {
    match (result, cut_result) {
        // If a value is malformed and too long, the error depends on which defect is detected first.
        (Err(FrameError::TooLarge { .. }), Err(_)) | (Err(_), Err(FrameError::TooLarge { .. })) => {}
        (Err(FrameError::Truncated { .. }), Err(FrameError::Truncated { .. })) => assert_eq!(uncut, cut),
        (result, cut_result) => {
            assert_eq!(result, cut_result);
            assert_eq!(uncut, cut);
        }
    }
}

fn frame_lines(limit: usize, body: &Bytes, cuts: &[usize]) -> (Vec<StreamRecord>, Result<(), FrameError>) {
    let mut framer = LineFramer::new(limit);
    let mut records = Vec::new();
    for chunk in chunks(body, cuts) {
        framer.feed(chunk);
        records.extend(std::iter::from_fn(|| framer.next()));
    }
    (records, framer.finish())
}

/// Checks that a skipped record has the same identity as a buffered one, if it is valid JSON and no string is too long
/// to be kept.
fn assert_same_identity(skipped: &StreamRecord, buffered: &StreamRecord) {
    let (StreamRecord::Overlong(skipped), StreamRecord::Complete(buffered)) = (skipped, buffered) else { return };
    if serde_json::from_slice::<Value>(buffered).is_err() || buffered.len() > 4096 {
        return;
    }
    let (kind, identity) = match decode::watch_record(Encoding::Json, buffered, None) {
        Ok(WatchRecord::Object { kind, object }) => {
            let full_identity = object.identity;
            let identity = PartialIdentity {
                key: Some(full_identity.key),
                uid: Some(full_identity.uid),
                version: Some(full_identity.version),
            };
            (Some(kind), identity)
        }
        Ok(_) => return,
        Err(error) => (error.kind, *error.identity),
    };
    let error = decode::overlong(skipped, None);
    // The substitute for a missing version is derived from the buffered bytes.
    let with_given_version = |identity: PartialIdentity| {
        let version = identity.version.filter(ResourceVersion::is_from_server);
        PartialIdentity { version, ..identity }
    };
    assert_eq!((error.kind, with_given_version(*error.identity)), (kind, with_given_version(identity)));
}

fn frame_list(limit: usize, body: &Bytes, cuts: &[usize]) -> (Vec<ListPart>, Result<(), FrameError>) {
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

/// Checks that a complete list has the items that `serde_json` reads.
fn assert_equals_serde(body: &[u8], parts: &[ListPart], result: Result<(), FrameError>) {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return };
    if !value.is_object() {
        assert!(result.is_err(), "a list that is not an object");
        return;
    }
    if result.is_err() || parts.iter().any(|part| matches!(part, ListPart::Overlong(_))) {
        return;
    }
    let items = parts.iter().filter_map(|part| match part {
        ListPart::Item(item) => Some(serde_json::from_slice::<Value>(item).expect("serde_json reads each item")),
        _ => None,
    });
    let expected = value["items"].as_array().cloned().unwrap_or_default();
    assert_eq!(items.collect::<Vec<_>>(), expected);
    match parts.last() {
        Some(ListPart::End { kind, .. }) => assert_eq!(kind.as_deref(), value["kind"].as_str()),
        Some(ListPart::Status(_)) => assert_eq!(value["kind"], "Status"),
        last => panic!("the last part of a list must be its end, not {last:?}"),
    }
}
