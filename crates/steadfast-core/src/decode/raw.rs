//! Encoded objects with the results of a scan.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use super::{DecodeOptions, Encoding};
use crate::protobuf::{self, MessageType};
use crate::record::Identity;

/// Object with a known identity that is not decoded.
///
/// The bytes are a slice of the connection's buffer. Code that stores the bytes for long must copy them, since a slice
/// keeps the whole buffer in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct RawObject {
    /// Identity of the object.
    pub identity: Identity,
    /// Encoded object.
    pub bytes: Bytes,
    /// Range of `metadata.managedFields` in `bytes`, which [`compact`](Self::compact) can remove; `None` if the field is
    /// missing. If the field occurs several times, the range is the last one.
    pub managed_fields: Option<Range<usize>>,
    /// Encoding of the object.
    pub encoding: Encoding,
    /// Message type of a protobuf object; `None` for an unknown kind.
    pub message: Option<MessageType>,
}

impl RawObject {
    /// Returns the parts of the object that `options` keep, in the same encoding. The result is all bytes of the
    /// object, or a shortened copy in `buffer`.
    ///
    /// A protobuf envelope is kept, if one exists.
    pub fn compact<'a>(&'a self, options: DecodeOptions, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        let Some(cut) = self.managed_fields.as_ref().filter(|_| !options.keep_managed_fields) else {
            return &self.bytes;
        };
        buffer.clear();
        match self.encoding {
            Encoding::Json => {
                buffer.extend_from_slice(&self.bytes[..cut.start]);
                buffer.extend_from_slice(&self.bytes[cut.end..]);
            }
            Encoding::Protobuf => protobuf::without(&self.bytes, cut.clone(), buffer),
        }
        buffer
    }
}

// Not derived: the object may be a Secret.
impl fmt::Debug for RawObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawObject")
            .field("identity", &self.identity)
            .field("bytes", &self.bytes.len())
            .field("managed_fields", &self.managed_fields)
            .field("encoding", &self.encoding)
            .field("message", &self.message)
            .finish()
    }
}
