//! Protobuf messages around the objects, with the field numbers of the API's published definitions:
//! `k8s.io/apimachinery`'s `runtime` and `meta/v1`.

/// Prefix of every top-level object.
const MAGIC: &[u8] = b"k8s\0";

/// Encodes a field of bytes: its number, its length and its content.
pub(super) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        field.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend_from_slice(bytes);
    field
}

/// Encodes a `kind` of the core group in its envelope, `runtime.Unknown`.
pub(super) fn object(kind: &str, message: &[u8]) -> Vec<u8> {
    let types = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    [MAGIC, &field(1, &types), &field(2, message)].concat()
}

/// Encodes a list of messages at `version`.
pub(super) fn list(kind: &str, version: &str, items: &[Vec<u8>]) -> Vec<u8> {
    let mut list = field(1, &field(2, version.as_bytes()));
    list.extend(items.iter().flat_map(|item| field(2, item)));
    object(kind, &list)
}

/// Encodes a record of a watch, with its length in front: `meta/v1`'s `WatchEvent`, with the object in a
/// `RawExtension`.
pub(super) fn event(event_type: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let event = [field(1, event_type.as_bytes()), field(2, &field(1, &object(kind, message)))].concat();
    // Four bytes in big-endian order precede each event of a stream. They are not part of protobuf.
    [&(event.len() as u32).to_be_bytes()[..], &event].concat()
}
