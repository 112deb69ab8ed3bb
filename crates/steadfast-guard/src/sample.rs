//! Sample pods: four pods of the bench's generator (`bench/go`).
//!
//! A pod has 8.9 KB of JSON or 6.2 KB of protobuf; `managedFields` are 37 % of the JSON. The pods were generated before
//! the generator assigned pods to deployments in separate namespaces. They stay unchanged, so that the figures stay
//! comparable.

mod message;

use bytes::Bytes;
use steadfast_core::decode::Encoding;
use steadfast_core::frame::Item;
use steadfast_core::protobuf::MessageType;

/// Pods in the format of the bench's generator. Three numbers of 32 bits precede each pod: its length, and the offsets
/// of its version and of its sending time.
const JSON: &[u8] = include_bytes!("../sample/pods.json");

/// Pods in protobuf, equal to [`JSON`].
const PROTOBUF: &[u8] = include_bytes!("../sample/pods.protobuf");

/// Number of digits of a version.
const VERSION_DIGITS: usize = 10;

/// A pod as a server would send it.
struct Record {
    bytes: &'static [u8],
    /// Offset of the version.
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

/// Returns the bytes of pod number `index`. Versions increase with the number.
fn pod(records: &[Record], index: usize) -> Vec<u8> {
    let record = &records[index % records.len()];
    let mut text = record.bytes.to_vec();
    // The version has a fixed length, so that it can be overwritten in place.
    text[record.version..record.version + VERSION_DIGITS].copy_from_slice(version(index).as_bytes());
    text
}

/// Returns the version of pod number `index`.
pub(crate) fn version(index: usize) -> String {
    format!("{:0VERSION_DIGITS$}", 1_000_000_000 + index)
}

/// Returns pods in the encoding of list items.
fn encoded_pods(encoding: Encoding, count: usize) -> impl Iterator<Item = Vec<u8>> {
    let records = records(match encoding {
        Encoding::Json => JSON,
        Encoding::Protobuf => PROTOBUF,
    });
    (0..count).map(move |index| pod(&records, index))
}

/// Returns items of a list, without any results of the framing.
pub(crate) fn items(encoding: Encoding, count: usize) -> Vec<Item> {
    let message = MessageType::of_kind("v1", "Pod").expect("a built-in kind");
    let item = |text: Vec<u8>| match encoding {
        Encoding::Json => Item::from(Bytes::from(text)),
        Encoding::Protobuf => Item::of_message(text.into(), message),
    };
    encoded_pods(encoding, count).map(item).collect()
}

/// Returns a whole list.
pub(crate) fn list(encoding: Encoding, count: usize) -> Bytes {
    let items: Vec<Vec<u8>> = encoded_pods(encoding, count).collect();
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

/// Returns events of a watch, each with its delimiter.
pub(crate) fn events(encoding: Encoding, count: usize) -> Vec<Bytes> {
    let event = |text: Vec<u8>| match encoding {
        Encoding::Json => {
            // Watch events contain kind and version of the object, while items of lists do not.
            let head = br#"{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","#;
            [head, &text[1..], b"}\n"].concat().into()
        }
        Encoding::Protobuf => message::event("MODIFIED", "Pod", &text).into(),
    };
    encoded_pods(encoding, count).map(event).collect()
}

/// Returns the number of different pods.
pub(crate) fn pods() -> usize {
    records(JSON).len()
}
