//! Items of a list, with the results of their framing.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::protobuf::MessageType;
use crate::scan::{ObjectScan, ObjectSpans, ScanError};

/// Item of a list.
///
/// If the item was within one chunk, the framer has already located its identity, and no second scan is needed.
#[derive(Clone)]
pub struct Item {
    bytes: Bytes,
    spans: Option<ObjectSpans>,
    message: Option<MessageType>,
}

impl Item {
    /// Creates an item from a protobuf object.
    pub fn of_message(bytes: Bytes, message: MessageType) -> Self {
        Self { bytes, spans: None, message: Some(message) }
    }

    /// Returns the message type of a protobuf item.
    pub fn message(&self) -> Option<MessageType> {
        self.message
    }

    /// Returns the object at `at` of `chunk`, if it ends within the chunk and within `limit` bytes, and is valid JSON.
    pub(super) fn scan_in_chunk(chunk: &Bytes, at: usize, limit: usize) -> Option<Self> {
        let rest = &chunk[at..];
        let (length, spans) = ObjectSpans::scan_first(&rest[..rest.len().min(limit)])?;
        Some(Self { bytes: chunk.slice(at..at + length), spans: Some(spans), message: None })
    }

    /// Returns the bytes of the item.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the known parts of the identity, and the error of the scan, if any.
    pub(crate) fn scan(&self) -> (ObjectScan<'_>, Result<(), ScanError>) {
        if let Some(spans) = &self.spans {
            return (spans.read(&self.bytes), Ok(()));
        }
        let mut found = ObjectSpans::default();
        let scanned = found.scan(&self.bytes);
        (found.read(&self.bytes), scanned)
    }
}

impl From<Bytes> for Item {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, spans: None, message: None }
    }
}

impl Deref for Item {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

// Not derived: `spans` follows from the bytes, and is absent if the item was not scanned yet.
impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.message == other.message
    }
}

impl Eq for Item {}

// Not derived: the item may be a Secret.
impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Item({} bytes)", self.bytes.len())
    }
}
