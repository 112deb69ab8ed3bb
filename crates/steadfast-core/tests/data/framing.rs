//! Framing yields equal records for any chunk boundaries.

use crate::json::{Json, Style, chunks, cuts, members, object, read, text, values};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use steadfast_core::decode::{PartialIdentity, WatchRecord, overlong, watch_record};
use steadfast_core::frame::{FrameError, LineFramer, ListFramer, ListPart, Overlong, StreamRecord};
use steadfast_core::record::{Identity, ListMeta, Status};
use steadfast_core::{Encoding, RawObject, ResourceVersion};

const LIMIT: usize = 1 << 20;

fn frame_lines(limit: usize, chunks: &[Bytes]) -> (Vec<StreamRecord>, Result<(), FrameError>) {
    let mut framer = LineFramer::new(limit);
    let mut records = Vec::new();
    for chunk in chunks {
        framer.feed(chunk.clone());
        records.extend(std::iter::from_fn(|| framer.next()));
    }
    (records, framer.finish())
}

/// Returns the records of a body without records above the limit.
fn complete_lines(limit: usize, chunks: &[Bytes]) -> (Vec<Bytes>, Result<(), FrameError>) {
    let (records, ended) = frame_lines(limit, chunks);
    let complete = |record| match record {
        StreamRecord::Complete(record) => record,
        StreamRecord::Overlong(record) => panic!("{record:?}"),
    };
    (records.into_iter().map(complete).collect(), ended)
}

fn list(limit: usize, chunks: &[Bytes]) -> (Vec<ListPart>, Result<(), FrameError>) {
    let mut framer = ListFramer::new(limit);
    let mut parts = Vec::new();
    for chunk in chunks {
        framer.feed(chunk.clone());
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

fn unsplit_list(body: &str) -> (Vec<ListPart>, Result<(), FrameError>) {
    list(LIMIT, &[Bytes::copy_from_slice(body.as_bytes())])
}

fn end(kind: &str) -> ListPart {
    ListPart::End { kind: Some(kind.to_owned()), items: true }
}

/// Generates lists with their members in any order and other members between them.
fn lists() -> impl Strategy<Value = Json> {
    let metadata = object([("resourceVersion", text("4711")), ("continue", text("to\"ken")), ("x", object([]))]);
    let named = |name: &str, value: Json| (name.to_owned(), value);
    let items = prop_oneof![
        6 => prop::collection::vec(values(), 0..6).prop_map(|items| Some(Json::Array(items))),
        1 => Just(Some(Json::Null)),
        1 => Just(None),
    ];
    (items, members()).prop_flat_map(move |(items, mut all)| {
        all.retain(|(name, _)| !matches!(name.as_str(), "items" | "kind" | "metadata"));
        all.push(named("kind", text("PodList")));
        all.push(named("metadata", metadata.clone()));
        all.extend(items.map(|items| named("items", items)));
        Just(all).prop_shuffle().prop_map(Json::Object)
    })
}

proptest! {
    #[test]
    fn lines_are_independent_of_chunks(
        records in prop::collection::vec((values(), Style::line()), 0..6),
        cuts in cuts(),
        ends in prop::sample::select(vec!["\n", "\r\n", "\n\n", "\r\n\n"]),
    ) {
        let written: Vec<_> = records.iter().map(|(value, style)| value.write(&mut style.clone())).collect();
        let body = Bytes::from(written.join(ends) + ends);
        let (found, ended) = complete_lines(LIMIT, &chunks(&body, &cuts));
        prop_assert_eq!(ended, Ok(()));
        prop_assert_eq!(found, written);
    }

    #[test]
    fn list_matches_serde_for_any_chunks(list_ in lists(), style in Style::any(), cuts in cuts(), position: prop::sample::Index) {
        let body = Bytes::from(list_.write(&mut style.clone()));
        let (parts, ended) = list(LIMIT, &chunks(&body, &cuts));
        prop_assert_eq!(ended, Ok(()));

        let document = read(&body);
        let wanted = document["items"].as_array().cloned().unwrap_or_default();
        let items: Vec<Value> =
            parts.iter().filter_map(|part| if let ListPart::Item(item) = part { Some(read(item)) } else { None }).collect();
        prop_assert_eq!(items, wanted);
        let meta = ListMeta { version: Some("4711".into()), continue_token: Some("to\"ken".to_owned()) };
        prop_assert!(parts.contains(&ListPart::Meta(meta)));
        let has_items = document.get("items").is_some();
        prop_assert_eq!(parts.last(), Some(&ListPart::End { kind: Some("PodList".to_owned()), items: has_items }));

        let truncated = body.slice(..position.index(body.trim_ascii_end().len()));
        let (_, ended) = list(LIMIT, &[truncated]);
        prop_assert!(matches!(ended, Err(FrameError::Truncated { .. })), "{ended:?}");
    }

    #[test]
    fn list_errors_are_independent_of_chunks(
        list_ in lists(), style in Style::any(), cuts in cuts(), position: prop::sample::Index, byte: u8,
    ) {
        let mut body = list_.write(&mut style.clone()).into_bytes();
        let position = position.index(body.len());
        body[position] = byte;
        let body = Bytes::from(body);
        let unsplit = list(LIMIT, std::slice::from_ref(&body));
        let split = list(LIMIT, &chunks(&body, &cuts));
        if let (Ok(()), Err(error)) | (Err(error), Ok(())) = (unsplit.1, split.1) {
            prop_assert!(false, "{error} depends on the chunks");
        }
        if !matches!(unsplit.1, Err(FrameError::Truncated { .. })) {
            prop_assert_eq!(&split, &unsplit);
        }
        // Every list that serde accepts is accepted, unless `items` occurs twice.
        if serde_json::from_slice::<Value>(&body).is_ok_and(|value| value["items"].is_array()) {
            prop_assert!(unsplit.1.is_ok() || unsplit.0.iter().any(|part| matches!(part, ListPart::Item(_))), "{unsplit:?}");
        }
    }

    #[test]
    fn overlong_record_identity_matches_complete_record(
        value in members(), metadata in members(), style in Style::line(), cuts in cuts(), kind in prop::sample::select(vec!["ADDED", "DELETED", "OTHER"]),
    ) {
        let metadata = ("metadata".to_owned(), Json::Object(metadata));
        let object_json = Json::Object([value, vec![metadata]].concat());
        let record = object([("type", text(kind)), ("object", object_json)]).write(&mut style.clone());
        let body = Bytes::from(record.trim().to_owned() + "\n");
        prop_assume!(body.len() > 2);
        let (records, _) = frame_lines(1, &chunks(&body, &cuts));
        let [StreamRecord::Overlong(record)] = &records[..] else { panic!("{records:?}") };
        let (kind, identity) = match watch_record(Encoding::Json, &body.slice(..body.len() - 1), None) {
            Ok(WatchRecord::Object { kind, object: RawObject { identity: Identity { key, uid, version }, .. } }) => {
                (Some(kind), PartialIdentity { key: Some(key), uid: Some(uid), version: Some(version) })
            }
            Ok(_) => return Ok(()),
            Err(error) => (error.kind, *error.identity),
        };
        let error = overlong(record, None);
        // The substitute for a missing version is derived from the buffered bytes, so it is not compared.
        let comparable = |identity: PartialIdentity| {
            let version = identity.version.filter(ResourceVersion::is_from_server);
            PartialIdentity { version, ..identity }
        };
        prop_assert_eq!((error.kind, comparable(*error.identity)), (kind, comparable(identity)));
    }

    #[test]
    fn arbitrary_bytes_never_panic(body: Vec<u8>, cuts in cuts(), limit in 0_usize..40) {
        let body = Bytes::from(body);
        let _ = frame_lines(limit, &chunks(&body, &cuts));
        let _ = list(limit, &chunks(&body, &cuts));
    }
}

#[test]
fn record_within_chunk_is_a_slice() {
    let body = Bytes::from_static(b"{\"a\":1}\n{\"b\":2}\n");
    let (records, _) = complete_lines(LIMIT, std::slice::from_ref(&body));
    assert_eq!(records[1].as_ptr(), body[8..].as_ptr());

    let body = Bytes::from_static(br#"{"items":[{"a":1},{"b":2}]}"#);
    let (parts, _) = list(LIMIT, std::slice::from_ref(&body));
    let ListPart::Item(item) = &parts[1] else { panic!("{parts:?}") };
    assert_eq!(item.as_ptr(), body[18..].as_ptr());
}

#[test]
fn record_after_overlong_one_is_read() {
    let body = Bytes::from_static(b"0123456789\n{}\n");
    assert_eq!(complete_lines(10, std::slice::from_ref(&body)).0, [&body[..10], b"{}"]);
    for length in [1, 3, 11, 100] {
        let (records, ended) = frame_lines(9, &chunks(&body, &[length]));
        let [StreamRecord::Overlong(record), StreamRecord::Complete(next)] = &records[..] else {
            panic!("{records:?}")
        };
        assert_eq!(
            (record.bytes(), record.limit(), &next[..], ended),
            (10, 9, &b"{}"[..], Ok(())),
            "chunks of {length}"
        );
    }
    let (records, ended) = frame_lines(9, &vec![Bytes::from_static(b"xxxx"); 3]);
    assert_eq!((records.len(), ended), (0, Err(FrameError::Truncated { bytes: 12 })));
}

#[test]
fn item_after_overlong_one_is_read() {
    let body = Bytes::from_static(br#"{"items":[{"a":1},{"a":"0123456789"},{"a":2}]}"#);
    for length in [1, 5, 100] {
        let (parts, ended) = list(15, &chunks(&body, &[length]));
        let [ListPart::Item(_), ListPart::Overlong(item), ListPart::Item(next), ListPart::End { .. }] = &parts[..]
        else {
            panic!("{parts:?}");
        };
        assert_eq!((item.bytes(), &next[..], ended), (18, &br#"{"a":2}"#[..], Ok(())));
    }
}

#[test]
fn overlong_member_ends_the_list() {
    for body in [
        r#"{"items":[{"a":1}],"metadata":{"a":"0123456789"}}"#,
        r#"{"items":[{"a":1}],"other":[0,1,2,3,4,5,6,7,8,9]}"#,
        r#"{"items":[{"a":1}],"a very long name indeed":1}"#,
    ] {
        let body = Bytes::copy_from_slice(body.as_bytes());
        for length in [1, 5, 100] {
            let (parts, ended) = list(15, &chunks(&body, &[length]));
            assert_eq!(ended, Err(FrameError::TooLarge { limit: 15 }));
            assert_eq!(parts, [ListPart::Item(Bytes::from_static(br#"{"a":1}"#).into())]);
        }
    }
}

#[test]
fn endless_record_is_reported_once() {
    let mut framer = LineFramer::new(10);
    let mut reported = Vec::new();
    for _ in 0..100 {
        framer.feed(Bytes::from_static(b"xxxx"));
        assert_eq!(framer.next(), None);
        reported.extend(framer.take_overlong_length());
    }
    assert_eq!(reported, [164]);
}

/// Returns the identity in the error of a record above the limit.
fn describe(record: &Overlong) -> String {
    let error = overlong(record, None);
    format!("{:?} {:?} {error}", error.kind, error.identity.uid)
}

#[test]
fn overlong_record_identity_is_found_anywhere() {
    let metadata = r#""metadata":{"managedFields":[{"f":{"name":"x"}}],"name":"a","namespace":"n","uid":"u","resourceVersion":"7"}"#;
    let long = format!(r#""data":{{"metadata":{{"name":"b"}},"x":"{}"}}"#, "y\\\"}".repeat(100));
    let deep = format!(r#""spec":{}{}"#, "[".repeat(1000), "]".repeat(1000));
    for members in [[metadata, &long, &deep], [&long, &deep, metadata], [&deep, metadata, &long]] {
        let object = format!("{{{}}}", members.join(","));
        let [first, last] = [
            format!(r#"{{"type":"DELETED","object":{object}}}"#),
            format!(r#"{{"object":{object}, "type" : "DELETED"}}"#),
        ];
        for record in [first, last] {
            let length = record.len();
            let body = Bytes::from(record + "\n");
            for cut in [1, 7, 1 << 20] {
                let (records, _) = frame_lines(64, &chunks(&body, &[cut]));
                let [StreamRecord::Overlong(record)] = &records[..] else { panic!("{records:?}") };
                let reported = format!("{length} bytes, longer than the limit of 64 bytes");
                assert_eq!(describe(record), format!(r#"Some(Deleted) Some("u") n/a at version 7: {reported}"#));
            }
        }
        let body = Bytes::from(format!(r#"{{"items":[{object}]}}"#));
        for cut in [1, 7, 1 << 20] {
            let (parts, ended) = list(64, &chunks(&body, &[cut]));
            let [ListPart::Overlong(item), _] = &parts[..] else { panic!("{parts:?}") };
            assert_eq!(ended, Ok(()));
            assert!(describe(item).starts_with(r#"None Some("u") n/a at version 7"#), "{}", describe(item));
        }
    }
}

#[test]
fn overlong_namespace_discards_the_key() {
    let long = "x".repeat(100_000);
    for metadata in [
        format!(r#"{{"name":"{long}","namespace":"n","uid":"u","resourceVersion":"7"}}"#),
        format!(r#"{{"namespace":"{long}","name":"a","uid":"u","resourceVersion":"7"}}"#),
        format!(r#"{{"name":"a","uid":"u","resourceVersion":"7","namespace":"{long}"}}"#),
        format!(r#"{{"name":"a","uid":"u","resourceVersion":"7","x":"{long}"#),
    ] {
        let body = Bytes::from(format!("{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{metadata}}}}}\n"));
        let (records, _) = frame_lines(64, &chunks(&body, &[1000]));
        let [StreamRecord::Overlong(record)] = &records[..] else { panic!("{records:?}") };
        assert!(describe(record).contains("an object without a known name"), "{}", describe(record));
    }
}

#[test]
fn line_without_end_is_truncated() {
    let (records, ended) = complete_lines(LIMIT, &[Bytes::from_static(b"{}\n{\"a\"")]);
    assert_eq!((records.len(), ended), (1, Err(FrameError::Truncated { bytes: 4 })));
    assert_eq!(complete_lines(LIMIT, &[Bytes::from_static(b"\r\n ")]).1, Ok(()));
}

#[test]
fn items_before_metadata_are_read() {
    let (parts, ended) = unsplit_list(
        r#"{"apiVersion":"x/v1","items":[{"items":["]"]},[1],"a",-1.5e3,null],"kind":"FooList","metadata":{"continue":"","resourceVersion":"7"}}
"#,
    );
    let item = |text: &'static str| ListPart::Item(Bytes::from_static(text.as_bytes()).into());
    let meta = ListPart::Meta(ListMeta { version: Some("7".into()), continue_token: None });
    let items = [item(r#"{"items":["]"]}"#), item("[1]"), item("\"a\""), item("-1.5e3"), item("null")];
    assert_eq!(parts, [&items[..], &[meta, end("FooList")]].concat());
    assert_eq!(ended, Ok(()));
}

#[test]
fn null_items_are_an_empty_list() {
    for body in [r#"{"items":null,"kind":"PodList"}"#, r#"{"items":[],"kind":"PodList"}"#] {
        assert_eq!(unsplit_list(body), (vec![end("PodList")], Ok(())), "{body}");
    }
    let object = ListPart::End { kind: Some("Pod".to_owned()), items: false };
    assert_eq!(unsplit_list(r#"{"kind":"Pod"}"#), (vec![object], Ok(())), "an object must differ from an empty list");
    let (parts, _) = unsplit_list(r#"{"\u0069tems":[1]}"#);
    assert_eq!(parts.first(), Some(&ListPart::Item(Bytes::from_static(b"1").into())));
}

#[test]
fn status_instead_of_list_is_returned() {
    let wanted = Status {
        code: 410,
        reason: "Expired".to_owned(),
        message: "too old".to_owned(),
        causes: vec!["A".to_owned()],
        retry_after_seconds: Some(3),
    };
    let (parts, ended) = unsplit_list(
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired",
            "details":{"causes":[{"reason":"A"}],"retryAfterSeconds":3},"code":410}"#,
    );
    assert_eq!((parts, ended), (vec![ListPart::Status(wanted)], Ok(())));
}

#[test]
fn invalid_json_is_reported_with_offset() {
    for (body, offset) in [
        ("<html>", 0),
        ("[]", 0),
        (r#"{"items":5}"#, 9),
        (r#"{"items":[1,]}"#, 12),
        (r#"{"items":[1 2]}"#, 12),
        (r#"{"items":[{]]}"#, 11),
        (r#"{"items":[nul!]}"#, 13),
        (r#"{"items":[],}"#, 12),
        (r#"{"kind" "x"}"#, 8),
        (r#"{"items":[]} x"#, 13),
    ] {
        assert_eq!(unsplit_list(body).1, Err(FrameError::Malformed { encoding: Encoding::Json, offset }), "{body}");
    }
    // Returned items cannot be revoked.
    assert!(matches!(unsplit_list(r#"{"items":[1],"items":[2]}"#).1, Err(FrameError::Malformed { .. })));
}

#[test]
fn deeply_nested_value_ends_at_its_brackets() {
    let deep = format!("{}1{}", r#"{"a":["#.repeat(1 << 16), "]}".repeat(1 << 16));
    let body = Bytes::from(format!(r#"{{"items":[{deep},{{"b":2}}]}}"#));
    for length in [1, 63, 1 << 20] {
        let (parts, ended) = list(LIMIT, &chunks(&body, &[length]));
        assert_eq!(ended, Ok(()));
        assert_eq!(
            parts[..2],
            [Bytes::from(deep.clone()), Bytes::from_static(br#"{"b":2}"#)].map(|item| ListPart::Item(item.into()))
        );
    }
}

#[test]
fn many_small_chunks_take_linear_time() {
    // Three megabytes in small chunks: quadratic work would take minutes.
    let body = Bytes::from(format!("{{\"items\":[\"{}\"]}}\n", "é{".repeat(1 << 20)));
    let (records, _) = complete_lines(usize::MAX, &chunks(&body, &[7]));
    assert_eq!(records.len(), 1);
    let (parts, _) = list(usize::MAX, &chunks(&body, &[7]));
    assert_eq!(parts.len(), 2);
}

#[test]
fn item_debug_omits_content() {
    let (parts, _) = unsplit_list(r#"{"items":["s3cr3t"]}"#);
    assert!(!format!("{parts:?}").contains("s3cr3t"));
}
