//! State of an encoded object besides its bytes. Every kept object has such a state, so it is packed into one word.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protobuf::MessageId;

/// Number, encoding and error flag of an object.
// The lowest bits contain the message's index plus one, or 0 for JSON; then the flag and the number follow.
pub(super) struct Label(AtomicU64);

/// Encoding of the object's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Json,
    Protobuf(MessageId),
}

/// Bit of objects already reported as undecodable.
const TOLD: u64 = 1 << 16;

/// Position of the lowest bit of the number. The number wraps around after 140 million million objects: 90 years at
/// 50,000 objects per second.
const NUMBER: u32 = 17;

impl Label {
    pub(super) fn new(number: u64, written: Written) -> Self {
        let written = match written {
            Written::Json => 0,
            // The table has about a thousand messages, so the index cannot reach 65,535.
            Written::Protobuf(message) => u64::from(message.place()) + 1,
        };
        Self(AtomicU64::new(number << NUMBER | written))
    }

    /// Returns the number, which is unique within the cache.
    pub(super) fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed) >> NUMBER
    }

    pub(super) fn written(&self) -> Written {
        match self.0.load(Ordering::Relaxed) as u16 {
            0 => Written::Json,
            place => Written::Protobuf(MessageId::at(place - 1)),
        }
    }

    /// Marks the object as reported, and returns true if it was not marked before. One report is sufficient for any
    /// number of reads.
    pub(super) fn tell(&self) -> bool {
        // `Relaxed` suffices: the flag guards no other data.
        self.0.fetch_or(TOLD, Ordering::Relaxed) & TOLD == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_fields_are_independent() {
        let pod = MessageId::of_kind("v1", "Pod").expect("a built-in kind");
        for written in [Written::Json, Written::Protobuf(pod), Written::Protobuf(MessageId::at(u16::MAX - 2))] {
            for number in [0, 1, 77, (1 << 47) - 1] {
                let label = Label::new(number, written);
                for is_news in [true, false, false] {
                    assert_eq!((label.number(), label.written()), (number, written));
                    assert_eq!(label.tell(), is_news);
                }
                assert_eq!((label.number(), label.written()), (number, written));
            }
        }
    }
}
