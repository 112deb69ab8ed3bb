//! Format of a cache's checkpoint, from which the next run continues. This module encodes and decodes the rows. It
//! performs no I/O.
//!
//! An encoded object is written unchanged. [`RowEncodings::read`] is the only reader of entries. The reader checks all
//! bytes and rejects an invalid row.

mod delivery;
mod row;

use bytes::Bytes;

use crate::decode::{Encoding, RawObject};
use crate::key::ObjectKey;
use crate::lazy::Lazy;
use crate::object::{Entry, Object};
use crate::protobuf::MessageType;
use crate::record::Identity;
use crate::uid::Uid;
use crate::version::ResourceVersion;
use row::{Row, RowEncoding};

pub use delivery::{DeliveryKey, SavedDelivery, SavedState};
pub use row::{key_of, write_key};

/// Possible encodings of the objects of one collection.
///
/// A row specifies the role of its message type: the object, or only its metadata. It does not contain the index of the
/// type in the table, since the index changes between releases.
#[derive(Clone, Copy, Debug)]
pub struct RowEncodings {
    messages: [Option<MessageType>; 2],
}

/// Entry of a cache from a checkpoint.
#[derive(Debug)]
pub enum RestoredEntry {
    /// Newest state of the object, encoded.
    Known(RawObject),
    /// Entry whose newest state could not be decoded: its identity with the version, and the last decodable state.
    Unknown(Identity, Option<RawObject>),
}

impl RestoredEntry {
    /// Returns the identity of the object.
    pub fn identity(&self) -> &Identity {
        match self {
            Self::Known(raw) => &raw.identity,
            Self::Unknown(identity, _) => identity,
        }
    }
}

/// Error for an object whose message type is not among the [`RowEncodings`], so that it cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedMessageType;

impl RowEncodings {
    /// Returns the encodings for objects of `kind`, or for their metadata.
    pub fn of(api_version: &str, kind: &str) -> Self {
        let named = MessageType::of_kind;
        Self { messages: [named(api_version, kind), named("meta.k8s.io/v1", "PartialObjectMetadata")] }
    }

    /// Appends `entry` to `out`.
    ///
    /// An entry that a read found to be undecodable is written in its original encoding, since another run may request
    /// another type.
    ///
    /// # Errors
    ///
    /// Returns an error if the message type of the object is not one of these encodings.
    pub fn write<K>(&self, entry: &Entry<Lazy<K>>, out: &mut Vec<u8>) -> Result<(), UnsupportedMessageType> {
        let Identity { uid, version, .. } = entry.identity();
        // An entry is decodable if the last decodable state carries the entry's own version and
        // UID.
        let is_current = |last: &&Object<Lazy<K>>| last.version() == version && last.identity().uid == *uid;
        if let Some(object) = entry.last().filter(is_current) {
            return self.write_object(object, out);
        }
        // The entry is tainted, so the last decodable state is nested as a row.
        let mut last = Vec::new();
        entry.last().map_or(Ok(()), |object| self.write_object(object, &mut last))?;
        Row { encoding: RowEncoding::Unknown, uid: uid.as_str(), version: version.as_str(), bytes: &last }.write(out);
        Ok(())
    }

    fn write_object<K>(self, object: &Object<Lazy<K>>, out: &mut Vec<u8>) -> Result<(), UnsupportedMessageType> {
        let Identity { uid, version, .. } = object.identity();
        let (encoding, bytes) = (self.encoding(object.message())?, Lazy::bytes(object));
        Row { encoding, uid: uid.as_str(), version: version.as_str(), bytes: &bytes }.write(out);
        Ok(())
    }

    fn encoding(self, message: Option<MessageType>) -> Result<RowEncoding, UnsupportedMessageType> {
        // JSON contains `apiVersion` and `kind`, so the row encoding needs no message type.
        let Some(message) = message else { return Ok(RowEncoding::Json) };
        match self.messages.iter().position(|known| *known == Some(message)) {
            Some(0) => Ok(RowEncoding::Object),
            Some(_) => Ok(RowEncoding::Metadata),
            None => Err(UnsupportedMessageType),
        }
    }

    /// Reads the row of the object at `key`; `None` if the bytes are not a valid row.
    pub fn read(&self, key: ObjectKey, row: &[u8]) -> Option<RestoredEntry> {
        let Row { encoding, uid, version, bytes } = Row::read(row)?;
        // Servers without UIDs identify objects by name.
        let uid = if uid.is_empty() { Uid::by_name(&key) } else { Uid::from(uid) };
        let identity = Identity { key, uid, version: ResourceVersion::from(version) };
        let (encoding, message) = match encoding {
            RowEncoding::Unknown if bytes.is_empty() => return Some(RestoredEntry::Unknown(identity, None)),
            RowEncoding::Unknown => {
                return match self.read(identity.key.clone(), bytes)? {
                    RestoredEntry::Known(last) => Some(RestoredEntry::Unknown(identity, Some(last))),
                    // A row can nest only one level deep, so this row is damaged.
                    RestoredEntry::Unknown(..) => None,
                };
            }
            RowEncoding::Json => (Encoding::Json, None),
            // The message type may be missing in this release or for this kind. Such a row is rejected.
            RowEncoding::Object => (Encoding::Protobuf, Some(self.messages[0]?)),
            RowEncoding::Metadata => (Encoding::Protobuf, Some(self.messages[1]?)),
        };
        let bytes = Bytes::copy_from_slice(bytes);
        Some(RestoredEntry::Known(RawObject { identity, bytes, managed_fields: None, encoding, message }))
    }
}
