//! What an encoded object has of its own beside its bytes, in one word: there is one for each object that is kept.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protobuf::MessageId;

/// Its number, how it is written, and whether it was told that it does not fit.
// The message's place in its table and one, or nothing of JSON; whether it was told; the number.
pub(super) struct Label(AtomicU64);

/// What an object's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Json,
    Protobuf(MessageId),
}

/// Where it is said that it was told.
const TOLD: u64 = 1 << 16;

/// From where on the number is. It begins anew after 140 million million: 50,000 objects a second for ninety years.
const NUMBER: u32 = 17;

impl Label {
    pub(super) fn new(number: u64, written: Written) -> Self {
        let written = match written {
            Written::Json => 0,
            // Of 65,535 there are none: the table has a thousand messages.
            Written::Protobuf(message) => u64::from(message.place()) + 1,
        };
        Self(AtomicU64::new(number << NUMBER | written))
    }

    /// What no other object of its cache has.
    pub(super) fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed) >> NUMBER
    }

    pub(super) fn written(&self) -> Written {
        match self.0.load(Ordering::Relaxed) as u16 {
            0 => Written::Json,
            place => Written::Protobuf(MessageId::at(place - 1)),
        }
    }

    /// Takes note that it is told that the object does not fit; returns whether that is news. Once is enough, however often it
    /// is read.
    pub(super) fn tell(&self) -> bool {
        self.0.fetch_or(TOLD, Ordering::Relaxed) & TOLD == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_it_was_told_and_nothing_of_that_changes_the_rest() {
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
