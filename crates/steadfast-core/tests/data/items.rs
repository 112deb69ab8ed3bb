//! Items found by the framing of a list equal those found by `serde_json` and by a scan of each item.

use crate::json::{Json, Style, chunks, cuts, members, read, texts, values};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;
use steadfast_core::Encoding;
use steadfast_core::decode::{DecodeOptions, Decoder, RecordProblem, list_item};
use steadfast_core::frame::{FrameError, Item, ListFramer, ListPart};

const LIMIT: usize = 1 << 20;

fn items(chunks: &[Bytes]) -> (Vec<Item>, Result<(), FrameError>) {
    let mut framer = ListFramer::new(LIMIT);
    let mut items = Vec::new();
    for chunk in chunks {
        framer.feed(chunk.clone());
        while let Some(part) = framer.next() {
            match part {
                Ok(ListPart::Item(item)) => items.push(item),
                Ok(_) => {}
                Err(error) => return (items, Err(error)),
            }
        }
    }
    (items, framer.finish())
}

/// Generates objects with complete identities, and any other members.
fn objects() -> impl Strategy<Value = Json> {
    let identity_members = || {
        let names = ["namespace", "name", "uid", "resourceVersion", "managedFields", "annotations", "labels"];
        let value = prop_oneof![4 => texts().prop_map(Json::Text), 1 => values()];
        prop::collection::vec((prop::sample::select(names.to_vec()).prop_map(str::to_owned), value), 0..10)
    };
    let metadata = (identity_members(), members())
        .prop_flat_map(|(relevant, others)| Just([relevant, others].concat()).prop_shuffle());
    let top = || prop::sample::select(vec!["metadata", "metadata", "spec", "kind"]).prop_map(str::to_owned);
    let object = (prop::collection::vec((top(), metadata.prop_map(Json::Object)), 0..3), members());
    object.prop_flat_map(|(relevant, others)| Just([relevant, others].concat()).prop_shuffle()).prop_map(Json::Object)
}

/// Writes a list of `items`, and returns the range of each.
fn write_list(items: &[(Json, Style)]) -> (String, Vec<std::ops::Range<usize>>) {
    let mut body = r#"{"kind":"PodList","items":["#.to_owned();
    let mut spans = Vec::new();
    for (item, style) in items {
        body.push_str(if spans.is_empty() { " " } else { "\n," });
        let item = item.write(&mut style.clone());
        let start = body.len() + item.len() - item.trim_start().len();
        spans.push(start..start + item.trim().len());
        body.push_str(&item);
    }
    body.push_str(r#"],"metadata":{"resourceVersion":"1"}}"#);
    (body, spans)
}

fn metadata_field<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Returns the positions of the brackets in the JSON `text`.
fn brackets(text: &[u8]) -> Vec<usize> {
    let (mut inside, mut escaped) = (false, false);
    let mut found = Vec::new();
    for (offset, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => inside = !inside,
            b'{' | b'}' | b'[' | b']' if !inside => found.push(offset),
            _ => {}
        }
    }
    found
}

proptest! {
    // Each case contains long lists and covers many positions, so fewer cases suffice.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn framed_item_matches_serde(
        objects in prop::collection::vec((objects(), Style::any()), 1..4), cuts in cuts(), in_one_chunk: bool,
    ) {
        let (body, spans) = write_list(&objects);
        let body = Bytes::from(body);
        let cuts = if in_one_chunk { vec![body.len()] } else { cuts };
        let (found, ended) = items(&chunks(&body, &cuts));
        prop_assert_eq!(ended, Ok(()));
        prop_assert_eq!(found.len(), spans.len());
        for (item, span) in found.iter().zip(spans) {
            prop_assert_eq!(item.bytes(), &body.slice(span));
            let scanned = list_item(Encoding::Json, item, None);
            prop_assert_eq!(&scanned, &list_item(Encoding::Json, &item.bytes().clone().into(), None));

            let value = read(item);
            let Ok(raw) = scanned else {
                let long = ["uid", "resourceVersion"].iter().any(|field| metadata_field(&value, field).len() > 1024);
                prop_assert!(metadata_field(&value, "name").is_empty() || long, "{scanned:?}");
                continue;
            };
            let identity = &raw.identity;
            prop_assert_eq!(identity.key.name(), metadata_field(&value, "name"));
            prop_assert_eq!(identity.key.namespace().unwrap_or_default(), metadata_field(&value, "namespace"));
            prop_assert_eq!(identity.uid.as_str(), metadata_field(&value, "uid"));
            prop_assert_eq!(identity.version.as_str(), metadata_field(&value, "resourceVersion"));
            prop_assert_eq!(raw.managed_fields.is_some(), value["metadata"].get("managedFields").is_some());
            let cut = serde_json::from_slice::<Value>(raw.compact(DecodeOptions::default(), &mut Vec::new()));
            prop_assert!(cut.is_ok(), "{cut:?}");
        }
    }

    #[test]
    fn damaged_item_matches_its_scan(
        objects in prop::collection::vec((objects(), Style::any()), 1..4), position: prop::sample::Index, bytes in prop::collection::vec(
            prop_oneof![prop::sample::select(b"\"\\{}[],: \n0n".to_vec()), any::<u8>()], 1..3,
        ),
    ) {
        let mut body = write_list(&objects).0.into_bytes();
        let position = position.index(body.len());
        body.splice(position..(position + 1).min(body.len()), bytes);
        let body = Bytes::from(body);
        for item in items(std::slice::from_ref(&body)).0 {
            let rescanned = list_item(Encoding::Json, &item.bytes().clone().into(), None);
            prop_assert_eq!(list_item(Encoding::Json, &item, None), rescanned);
        }
    }

    #[test]
    fn unbalanced_bracket_is_reported_at_any_position(
        objects in prop::collection::vec((objects(), Style::any()), 1..4), cuts in cuts(), in_one_chunk: bool, position: prop::sample::Index,
        extra in prop::option::of(prop::sample::select(b"{}[]".to_vec())),
    ) {
        let mut body = write_list(&objects).0.into_bytes();
        let positions = brackets(&body);
        let position = positions[position.index(positions.len())];
        match extra {
            Some(bracket) => body.insert(position, bracket),
            None => _ = body.remove(position),
        }
        let body = Bytes::from(body);
        let cuts = if in_one_chunk { vec![body.len()] } else { cuts };
        prop_assert!(items(&chunks(&body, &cuts)).1.is_err());
    }

    #[test]
    fn mismatched_bracket_affects_only_its_item(
        objects in prop::collection::vec((objects(), Style::any()), 1..4), cuts in cuts(), in_one_chunk: bool,
        damaged: prop::sample::Index, position: prop::sample::Index,
    ) {
        let (body, spans) = write_list(&objects);
        let damaged = damaged.index(spans.len());
        let span = spans[damaged].clone();
        let mut body = body.into_bytes();
        let inner = brackets(&body[span.start + 1..span.end - 1]);
        prop_assume!(!inner.is_empty());
        let position = span.start + 1 + inner[position.index(inner.len())];
        // The two sorts of brackets differ in a single bit.
        body[position] ^= 0x20;
        let body = Bytes::from(body);
        let cuts = if in_one_chunk { vec![body.len()] } else { cuts };
        let (found, ended) = items(&chunks(&body, &cuts));
        prop_assert_eq!(ended, Ok(()));
        prop_assert_eq!(found.len(), spans.len());
        for (index, (item, span)) in found.iter().zip(spans).enumerate() {
            prop_assert_eq!(item.bytes(), &body.slice(span));
            if index != damaged {
                continue;
            }
            match list_item(Encoding::Json, item, None) {
                Ok(raw) => {
                    let mut decoder = Decoder::new(DecodeOptions { keep_managed_fields: true });
                    prop_assert!(decoder.decode::<Value>(&raw).is_err());
                }
                Err(error) => {
                    let is_expected = matches!(error.problem, RecordProblem::Malformed { .. } | RecordProblem::NoIdentity { .. });
                    prop_assert!(is_expected, "{error:?}");
                }
            }
        }
    }
}

#[test]
fn item_without_last_byte_is_completed() {
    let metadata = r#"{"name":"a","uid":"u","resourceVersion":"7"}"#;
    let item = format!(r#"{{"metadata":{metadata},"spec":{{"x":"{}"}}}}"#, "y".repeat(1000));
    let body = Bytes::from(format!(r#"{{"items":[{item},{item}]}}"#));
    let first = 10 + item.len();
    for cut in [first - 1, first, first + 1] {
        let (found, ended) = items(&[body.slice(..cut), body.slice(cut..)]);
        assert_eq!((found.len(), ended), (2, Ok(())), "cut at {cut}");
        for item in found {
            let raw = list_item(Encoding::Json, &item, None).expect("the item has an identity");
            assert_eq!((raw.identity.key.name(), raw.identity.version.as_str()), ("a", "7"));
        }
    }
}
