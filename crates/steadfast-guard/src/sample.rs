//! The pods that are read: four as the bench generates them (`bench/go`), 8.9 KB of JSON or 6.2 KB of protobuf each, and 37 %
//! of the JSON `managedFields`. They are from before its deployments were in one namespace each, so that figures stay
//! comparable.

mod message;

use bytes::Bytes;
use steadfast_core::decode::Encoding;
use steadfast_core::frame::Item;
use steadfast_core::protobuf::MessageId;

/// As the bench's generator writes them: before each its length and the places of its version and of the time at which it
/// was sent, 32 bits each.
const JSON: &[u8] = include_bytes!("../sample/pods.json");

/// The same pods.
const PROTOBUF: &[u8] = include_bytes!("../sample/pods.protobuf");

/// The digits of a version.
const VERSION_DIGITS: usize = 10;

/// One pod as a server would send it.
struct Record {
    bytes: &'static [u8],
    /// Where its version is.
    version: usize,
}

fn records(mut rest: &'static [u8]) -> Vec<Record> {
    let mut records = Vec::new();
    while let Some((header, tail)) = rest.split_first_chunk::<12>() {
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
        let (bytes, tail) = tail.split_at(number(0));
        records.push(Record { bytes, version: number(4) });
        rest = tail;
    }
    records
}

/// The text of pod number `index`, which is of the versions after those of the pods before it.
fn pod(records: &[Record], index: usize) -> Vec<u8> {
    let record = &records[index % records.len()];
    let mut text = record.bytes.to_vec();
    text[record.version..record.version + VERSION_DIGITS].copy_from_slice(version(index).as_bytes());
    text
}

/// The version of pod number `index`.
pub(crate) fn version(index: usize) -> String {
    format!("{:0VERSION_DIGITS$}", 1_000_000_000 + index)
}

/// Pods as the items of a list are encoded.
fn texts(encoding: Encoding, count: usize) -> impl Iterator<Item = Vec<u8>> {
    let records = records(match encoding {
        Encoding::Json => JSON,
        Encoding::Protobuf => PROTOBUF,
    });
    (0..count).map(move |index| pod(&records, index))
}

/// Items of a list, of which nothing was found out yet.
pub(crate) fn items(encoding: Encoding, count: usize) -> Vec<Item> {
    let message = MessageId::of_kind("v1", "Pod").expect("a built-in kind");
    let item = |text: Vec<u8>| match encoding {
        Encoding::Json => Item::from(Bytes::from(text)),
        Encoding::Protobuf => Item::of_message(text.into(), message),
    };
    texts(encoding, count).map(item).collect()
}

/// A whole list.
pub(crate) fn list(encoding: Encoding, count: usize) -> Bytes {
    let items: Vec<Vec<u8>> = texts(encoding, count).collect();
    let version = version(0);
    let text = match encoding {
        Encoding::Json => {
            let head = format!(
                r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":["#
            );
            [head.as_bytes(), &items.join(&b","[..]), b"]}\n"].concat()
        }
        Encoding::Protobuf => message::list("PodList", &version, &items),
    };
    text.into()
}

/// Events of a watch, each with what parts it from the next.
pub(crate) fn events(encoding: Encoding, count: usize) -> Vec<Bytes> {
    let event = |text: Vec<u8>| match encoding {
        Encoding::Json => {
            let head = br#"{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","#;
            [head, &text[1..], b"}\n"].concat().into()
        }
        Encoding::Protobuf => message::event("MODIFIED", "Pod", &text).into(),
    };
    texts(encoding, count).map(event).collect()
}

/// How many different pods there are.
pub(crate) fn pods() -> usize {
    records(JSON).len()
}
