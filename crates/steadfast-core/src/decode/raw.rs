//! An object as it came, with what a scan found of it.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use super::{DecodeOptions, Encoding};
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
    /// What to cut out of `bytes` so that the object has no `metadata.managedFields`; none where it has none. Should
    /// there be several, it is the last.
    pub managed_fields: Option<Range<usize>>,
    /// How it is encoded.
    pub encoding: Encoding,
}

impl RawObject {
    /// What `options` keep of the bytes, in two pieces that belong together; the second is often empty.
    pub fn pieces(&self, options: DecodeOptions) -> (&[u8], &[u8]) {
        match &self.managed_fields {
            Some(cut) if !options.keep_managed_fields => (&self.bytes[..cut.start], &self.bytes[cut.end..]),
            _ => (&self.bytes, &[]),
        }
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
            .finish()
    }
}
