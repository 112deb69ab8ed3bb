//! An object as it came, with what a scan found of it.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use super::{DecodeOptions, Encoding};
use crate::protobuf::{self, MessageId};
use crate::record::Identity;

/// An object that is known by its identity and not decoded.
///
/// Its bytes are a slice of what the connection read: who keeps them long copies them, lest they hold on to more.
#[derive(Clone, PartialEq, Eq)]
pub struct RawObject {
    /// Who it is.
    pub identity: Identity,
    /// The object, encoded.
    pub bytes: Bytes,
    /// What to leave out of `bytes` so that the object has no `metadata.managedFields`; none where it has none. Should
    /// there be several, it is the last.
    pub managed_fields: Option<Range<usize>>,
    /// How it is encoded.
    pub encoding: Encoding,
    /// Which message it is, where it is protobuf; none of a kind that is not known.
    pub message: Option<MessageId>,
}

impl RawObject {
    /// What `options` keep of the object, in the same encoding: all of its bytes, or what is left of them, in `buffer`.
    ///
    /// Of protobuf the envelope stays, where there is one.
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

// By hand: the object may be a Secret.
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
