//! Items of a list, with what their framing has found of them.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::protobuf::MessageId;
use crate::scan::{Fault, ObjectScan, ObjectSpans};

/// An item of a list.
///
/// Where it lay whole in a chunk it is known already where it says who it is: it is not looked at twice.
#[derive(Clone)]
pub struct Item {
    bytes: Bytes,
    known: Option<ObjectSpans>,
    message: Option<MessageId>,
}

impl Item {
    /// An object in protobuf.
    pub fn of_message(bytes: Bytes, message: MessageId) -> Self {
        Self { bytes, known: None, message: Some(message) }
    }

    /// Which message it is, where it is protobuf.
    pub fn message(&self) -> Option<MessageId> {
        self.message
    }

    /// The object that `chunk` has at `at`, should it end there, within `limit` bytes, and be the JSON it should be.
    pub(super) fn object(chunk: &Bytes, at: usize, limit: usize) -> Option<Self> {
        let rest = &chunk[at..];
        let (length, known) = ObjectSpans::scan_first(&rest[..rest.len().min(limit)])?;
        Some(Self { bytes: chunk.slice(at..at + length), known: Some(known), message: None })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Who it is, as far as that can be found; and what is wrong with it, if anything is.
    pub(crate) fn scan(&self) -> (ObjectScan<'_>, Result<(), Fault>) {
        if let Some(known) = &self.known {
            return (known.read(&self.bytes), Ok(()));
        }
        let mut found = ObjectSpans::default();
        let scanned = found.scan(&self.bytes);
        (found.read(&self.bytes), scanned)
    }
}

impl From<Bytes> for Item {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, known: None, message: None }
    }
}

impl Deref for Item {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

// By hand: what is known of it follows from its bytes.
impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.message == other.message
    }
}

impl Eq for Item {}

// By hand: it may be a Secret.
impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Item({} bytes)", self.bytes.len())
    }
}
