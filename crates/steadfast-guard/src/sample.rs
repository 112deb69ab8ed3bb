//! The pods that are read: four of those that the bench generates (`bench/go`), 8.9 KB of JSON each, and 37 % of it
//! `managedFields`. `go run . generate -out FOLDER -count 4` there writes them again, byte for byte.

use bytes::Bytes;

/// As the bench's generator writes them: before each its length and the places of its version and of the time at which it
/// was sent, 32 bits each.
const JSON: &[u8] = include_bytes!("../sample/pods.json");

/// The digits of a version.
const VERSION_DIGITS: usize = 10;

/// One pod as a server would send it, without its braces' first.
struct Record {
    bytes: &'static [u8],
    /// Where its version is.
    version: usize,
}

fn records() -> Vec<Record> {
    let mut records = Vec::new();
    let mut rest = JSON;
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

/// Items of a list.
pub(crate) fn items(count: usize) -> Vec<Bytes> {
    let records = records();
    (0..count).map(|index| pod(&records, index).into()).collect()
}

/// A whole list.
pub(crate) fn list(count: usize) -> Bytes {
    let mut text =
        br#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1000000000"},"items":["#.to_vec();
    text.extend(items(count).join(&b","[..]));
    text.extend_from_slice(b"]}\n");
    text.into()
}

/// Events of a watch, each with its line end.
pub(crate) fn events(count: usize) -> Vec<Bytes> {
    let records = records();
    let event = |index| {
        let mut text = br#"{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","#.to_vec();
        text.extend_from_slice(&pod(&records, index)[1..]);
        text.extend_from_slice(b"}\n");
        text.into()
    };
    (0..count).map(event).collect()
}

/// How many different pods there are.
pub(crate) fn pods() -> usize {
    records().len()
}
