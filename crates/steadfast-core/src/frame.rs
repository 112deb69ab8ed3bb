//! Framing: splits a body into records, independent of its chunk boundaries.
//!
//! A record within a single chunk is a slice of the chunk; any other record is copied once. The framer holds at most a
//! single record, up to the limit. Of a longer record, only the identity is read ([`Overlong`]). Later records are read
//! normally.

mod by_encoding;
mod item;
mod lengths;
mod lines;
mod list;
mod overlong;
mod protobuf_list;

pub use by_encoding::{ItemFramer, StreamFramer};
pub use item::Item;
pub use lengths::LengthFramer;
pub use lines::{LineFramer, StreamRecord};
pub use list::{ListFramer, ListPart};
pub use overlong::Overlong;
pub use protobuf_list::ProtobufListFramer;

use crate::decode::Encoding;
use crate::scan::ScanError;

/// Error after which a body cannot be read further. It states the position, not the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A member of the list document other than its items exceeds the limit. An overlong item is skipped instead.
    #[error("a member of the list is longer than the limit of {limit} bytes")]
    TooLarge {
        /// Limit in bytes.
        limit: usize,
    },
    /// The body ended within a record or within the list.
    #[error("the body ended early, {bytes} bytes into an unfinished record")]
    Truncated {
        /// Number of bytes of the unfinished record.
        bytes: u64,
    },
    /// The body is not valid in its encoding.
    #[error("malformed {encoding} at byte {offset} of the body")]
    Malformed {
        /// Encoding of the body.
        encoding: Encoding,
        /// Offset in the body, in bytes.
        offset: u64,
    },
}

impl FrameError {
    /// Converts the error of a scan whose text starts at `offset` of the body.
    fn of(fault: ScanError, offset: u64) -> Self {
        let ScanError::Malformed { at } = fault;
        Self::Malformed { encoding: Encoding::Json, offset: offset + at as u64 }
    }
}
