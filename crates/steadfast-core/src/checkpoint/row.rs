//! Format of an entry: a byte for the encoding, then the UID and the version, each after its length, then the object.

use crate::key::ObjectKey;

/// Written fields of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    pub(super) encoding: RowEncoding,
    /// UID of the object; empty if the server provided none.
    pub(super) uid: &'a str,
    pub(super) version: &'a str,
    pub(super) bytes: &'a [u8],
}

/// Form of the object's bytes in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowEncoding {
    /// The newest state could not be decoded. The bytes are the row of the last decodable state, or empty.
    Unknown,
    Json,
    /// Protobuf message of the object.
    Object,
    /// Protobuf message that contains only the metadata of the object.
    Metadata,
}

const ROW_ENCODINGS: [(RowEncoding, u8); 4] = [
    (RowEncoding::Unknown, b'?'),
    (RowEncoding::Json, b'j'),
    (RowEncoding::Object, b'o'),
    (RowEncoding::Metadata, b'm'),
];

impl<'a> Row<'a> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(ROW_ENCODINGS.iter().filter(|(encoding, _)| *encoding == self.encoding).map(|(_, byte)| byte));
        for text in [self.uid, self.version] {
            write_text(text, out);
        }
        out.extend(self.bytes);
    }

    pub(super) fn read(row: &'a [u8]) -> Option<Self> {
        let (byte, rest) = row.split_first()?;
        let encoding = ROW_ENCODINGS.iter().find(|(_, known)| known == byte)?.0;
        let (uid, rest) = text(rest)?;
        let (version, bytes) = text(rest)?;
        // Every stored entry has a version, so an empty version marks a damaged row.
        (!version.is_empty()).then_some(Self { encoding, uid, version, bytes })
    }
}

/// Appends a text after its length.
pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u32).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Reads a text after its length, and returns it with the remaining bytes.
pub(super) fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((str::from_utf8(text).ok()?, rest))
}

/// Terminator of a namespace. It occurs in no namespace.
const END: u8 = 0;

/// Appends a key so that the keys of one namespace are adjacent.
pub fn write_key(key: &ObjectKey, out: &mut Vec<u8>) {
    if let Some(namespace) = key.namespace() {
        out.extend(namespace.as_bytes());
        out.push(END);
    }
    out.extend(key.name().as_bytes());
}

/// Reads a key; `None` if the bytes are not a valid key.
pub fn key_of(bytes: &[u8]) -> Option<ObjectKey> {
    let text = str::from_utf8(bytes).ok()?;
    Some(match text.split_once(char::from(END)) {
        Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::cluster(text),
    })
}
