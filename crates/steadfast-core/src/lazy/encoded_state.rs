//! State of a cached object in addition to its encoded bytes. Each cached object has this state, so it is packed into
//! one word.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protobuf::MessageType;

/// Identifier, encoding and error flag of an object.
// The lowest bits contain the message's index plus one, or 0 for JSON; then the flag and the identifier follow.
pub(super) struct EncodedState(AtomicU64);

/// Encoding of the object's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredEncoding {
    Json,
    Protobuf(MessageType),
}

/// Bit of objects already reported as undecodable.
const REPORTED: u64 = 1 << 16;

/// Position of the lowest bit of the identifier. The identifier wraps around after 2^47 objects: 90 years at 50,000
/// objects per second.
const ID_SHIFT: u32 = 17;

impl EncodedState {
    pub(super) fn new(id: u64, encoding: StoredEncoding) -> Self {
        let encoding = match encoding {
            StoredEncoding::Json => 0,
            // The table has about a thousand messages, so the index cannot reach 65,535.
            StoredEncoding::Protobuf(message) => u64::from(message.index()) + 1,
        };
        Self(AtomicU64::new(id << ID_SHIFT | encoding))
    }

    /// Returns the identifier, which is unique within the cache.
    pub(super) fn id(&self) -> u64 {
        self.0.load(Ordering::Relaxed) >> ID_SHIFT
    }

    pub(super) fn encoding(&self) -> StoredEncoding {
        match self.0.load(Ordering::Relaxed) as u16 {
            0 => StoredEncoding::Json,
            index => StoredEncoding::Protobuf(MessageType::at(index - 1)),
        }
    }

    /// Marks the object as reported, and returns true if it was not marked before. One report is sufficient for any
    /// number of reads.
    pub(super) fn mark_reported(&self) -> bool {
        // `Relaxed` suffices: the flag guards no other data.
        self.0.fetch_or(REPORTED, Ordering::Relaxed) & REPORTED == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_fields_are_independent() {
        let pod = MessageType::of_kind("v1", "Pod").expect("a built-in kind");
        for encoding in [
            StoredEncoding::Json,
            StoredEncoding::Protobuf(pod),
            StoredEncoding::Protobuf(MessageType::at(u16::MAX - 2)),
        ] {
            for id in [0, 1, 77, (1 << 47) - 1] {
                let state = EncodedState::new(id, encoding);
                for is_first in [true, false, false] {
                    assert_eq!((state.id(), state.encoding()), (id, encoding));
                    assert_eq!(state.mark_reported(), is_first);
                }
                assert_eq!((state.id(), state.encoding()), (id, encoding));
            }
        }
    }
}
