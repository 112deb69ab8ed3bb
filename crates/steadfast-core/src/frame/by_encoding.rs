//! One framer for each sort of body, whatever its encoding: who reads a body need not know it.

use bytes::Bytes;

use super::FrameError;
use super::lengths::LengthFramer;
use super::lines::{Line, LineFramer};
use super::list::{ListFramer, ListPart};
use super::messages::MessageFramer;
use crate::decode::Encoding;

/// Cuts the body of a watch into its records.
///
/// [`feed`](Self::feed) it a chunk, take [`next`](Self::next) until there is none, feed it the next; at the body's end ask
/// [`finish`](Self::finish).
pub enum StreamFramer {
    /// One in JSON.
    Json(LineFramer),
    /// One in protobuf.
    Protobuf(LengthFramer),
}

/// Cuts the body of a list into its items.
///
/// [`feed`](Self::feed) it a chunk, take [`next`](Self::next) until there is none, feed it the next; at the body's end ask
/// [`finish`](Self::finish), before the list is believed. After an error it is done: it yields nothing more.
pub enum ItemFramer {
    /// One in JSON.
    Json(Box<ListFramer>),
    /// One in protobuf.
    Protobuf(Box<MessageFramer>),
}

impl StreamFramer {
    /// A framer of `encoding` that holds records of at most `limit` bytes.
    pub fn new(encoding: Encoding, limit: usize) -> Self {
        match encoding {
            Encoding::Json => Self::Json(LineFramer::new(limit)),
            Encoding::Protobuf => Self::Protobuf(LengthFramer::new(limit)),
        }
    }

    /// How its records are encoded.
    pub fn encoding(&self) -> Encoding {
        match self {
            Self::Json(_) => Encoding::Json,
            Self::Protobuf(_) => Encoding::Protobuf,
        }
    }

    /// Takes the body's next chunk.
    ///
    /// # Panics
    ///
    /// If the chunk before has not been taken to its end: nothing here queues chunks.
    pub fn feed(&mut self, chunk: Bytes) {
        match self {
            Self::Json(framer) => framer.feed(chunk),
            Self::Protobuf(framer) => framer.feed(chunk),
        }
    }

    /// The next record; none where the chunk has no more.
    #[expect(clippy::should_implement_trait, reason = "it yields again once it is fed again: no iterator does")]
    pub fn next(&mut self) -> Option<Line> {
        match self {
            Self::Json(framer) => framer.next(),
            Self::Protobuf(framer) => framer.next(),
        }
    }

    /// How many bytes the record under way has so far, reported once, when that is so many that it may have no end.
    pub fn endless(&mut self) -> Option<u64> {
        match self {
            Self::Json(framer) => framer.endless(),
            Self::Protobuf(framer) => framer.endless(),
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// [`FrameError::Truncated`] where it ends inside a record.
    pub fn finish(self) -> Result<(), FrameError> {
        match self {
            Self::Json(framer) => framer.finish(),
            Self::Protobuf(framer) => framer.finish(),
        }
    }
}

impl ItemFramer {
    /// A framer of `encoding` that holds items of at most `limit` bytes.
    pub fn new(encoding: Encoding, limit: usize) -> Self {
        match encoding {
            Encoding::Json => Self::Json(Box::new(ListFramer::new(limit))),
            Encoding::Protobuf => Self::Protobuf(Box::new(MessageFramer::new(limit))),
        }
    }

    /// How its items are encoded.
    pub fn encoding(&self) -> Encoding {
        match self {
            Self::Json(_) => Encoding::Json,
            Self::Protobuf(_) => Encoding::Protobuf,
        }
    }

    /// Takes the body's next chunk.
    ///
    /// # Panics
    ///
    /// If the chunk before has not been taken to its end: nothing here queues chunks.
    pub fn feed(&mut self, chunk: Bytes) {
        match self {
            Self::Json(framer) => framer.feed(chunk),
            Self::Protobuf(framer) => framer.feed(chunk),
        }
    }

    /// The next part; none where the chunk has no more.
    #[expect(clippy::should_implement_trait, reason = "it yields again once it is fed again: no iterator does")]
    pub fn next(&mut self) -> Option<Result<ListPart, FrameError>> {
        match self {
            Self::Json(framer) => framer.next(),
            Self::Protobuf(framer) => framer.next(),
        }
    }

    /// How many bytes the item under way has so far, reported once, when that is so many that it may have no end.
    pub fn endless(&mut self) -> Option<u64> {
        match self {
            Self::Json(framer) => framer.endless(),
            Self::Protobuf(framer) => framer.endless(),
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// The error met before, or [`FrameError::Truncated`] where the list has no end.
    pub fn finish(self) -> Result<(), FrameError> {
        match self {
            Self::Json(framer) => framer.finish(),
            Self::Protobuf(framer) => framer.finish(),
        }
    }
}
