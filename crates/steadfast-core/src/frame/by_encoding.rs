//! Framers that hide the encoding of a body from its reader.

use bytes::Bytes;

use super::FrameError;
use super::lengths::LengthFramer;
use super::lines::{LineFramer, StreamRecord};
use super::list::{ListFramer, ListPart};
use super::protobuf_list::ProtobufListFramer;
use crate::decode::Encoding;

/// Splits the body of a watch into its records.
///
/// Pass a chunk to [`feed`](Self::feed), then call [`next`](Self::next) until it returns `None`, and repeat with the
/// next chunk. Call [`finish`](Self::finish) at the end of the body.
pub enum StreamFramer {
    /// Framer for JSON.
    Json(LineFramer),
    /// Framer for protobuf.
    Protobuf(LengthFramer),
}

/// Splits the body of a list into its items.
///
/// Pass a chunk to [`feed`](Self::feed), then call [`next`](Self::next) until it returns `None`, and repeat with the
/// next chunk. Call [`finish`](Self::finish) at the end of the body, before the list is used. After an error, no
/// further items follow.
pub enum ItemFramer {
    /// Framer for JSON.
    Json(Box<ListFramer>),
    /// Framer for protobuf.
    Protobuf(Box<ProtobufListFramer>),
}

impl StreamFramer {
    /// Creates a framer for `encoding` that holds records of at most `limit` bytes.
    pub fn new(encoding: Encoding, limit: usize) -> Self {
        match encoding {
            Encoding::Json => Self::Json(LineFramer::new(limit)),
            Encoding::Protobuf => Self::Protobuf(LengthFramer::new(limit)),
        }
    }

    /// Returns the encoding of the records.
    pub fn encoding(&self) -> Encoding {
        match self {
            Self::Json(_) => Encoding::Json,
            Self::Protobuf(_) => Encoding::Protobuf,
        }
    }

    /// Adds the next chunk of the body.
    ///
    /// # Panics
    ///
    /// Panics if the previous chunk has not been read to its end, since chunks are not queued.
    pub fn feed(&mut self, chunk: Bytes) {
        match self {
            Self::Json(framer) => framer.feed(chunk),
            Self::Protobuf(framer) => framer.feed(chunk),
        }
    }

    /// Returns the next record; `None` if the chunk has no more.
    #[expect(
        clippy::should_implement_trait,
        reason = "unlike an iterator, it returns items again after the next `feed`"
    )]
    pub fn next(&mut self) -> Option<StreamRecord> {
        match self {
            Self::Json(framer) => framer.next(),
            Self::Protobuf(framer) => framer.next(),
        }
    }

    /// Returns the number of received bytes of the current record if they far exceed the limit; at most once per
    /// record.
    pub fn take_overlong_length(&mut self) -> Option<u64> {
        match self {
            Self::Json(framer) => framer.take_overlong_length(),
            Self::Protobuf(framer) => framer.take_overlong_length(),
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError::Truncated`] if the body ends within a record.
    pub fn finish(self) -> Result<(), FrameError> {
        match self {
            Self::Json(framer) => framer.finish(),
            Self::Protobuf(framer) => framer.finish(),
        }
    }
}

impl ItemFramer {
    /// Creates a framer for `encoding` that holds items of at most `limit` bytes.
    pub fn new(encoding: Encoding, limit: usize) -> Self {
        match encoding {
            Encoding::Json => Self::Json(Box::new(ListFramer::new(limit))),
            Encoding::Protobuf => Self::Protobuf(Box::new(ProtobufListFramer::new(limit))),
        }
    }

    /// Returns the encoding of the items.
    pub fn encoding(&self) -> Encoding {
        match self {
            Self::Json(_) => Encoding::Json,
            Self::Protobuf(_) => Encoding::Protobuf,
        }
    }

    /// Adds the next chunk of the body.
    ///
    /// # Panics
    ///
    /// Panics if the previous chunk has not been read to its end, since chunks are not queued.
    pub fn feed(&mut self, chunk: Bytes) {
        match self {
            Self::Json(framer) => framer.feed(chunk),
            Self::Protobuf(framer) => framer.feed(chunk),
        }
    }

    /// Returns the next part; `None` if the chunk has no more.
    #[expect(
        clippy::should_implement_trait,
        reason = "unlike an iterator, it returns items again after the next `feed`"
    )]
    pub fn next(&mut self) -> Option<Result<ListPart, FrameError>> {
        match self {
            Self::Json(framer) => framer.next(),
            Self::Protobuf(framer) => framer.next(),
        }
    }

    /// Returns the number of received bytes of the current item if they far exceed the limit; at most once per item.
    pub fn take_overlong_length(&mut self) -> Option<u64> {
        match self {
            Self::Json(framer) => framer.take_overlong_length(),
            Self::Protobuf(framer) => framer.take_overlong_length(),
        }
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// Returns an earlier error again, or [`FrameError::Truncated`] if the list does not end.
    pub fn finish(self) -> Result<(), FrameError> {
        match self {
            Self::Json(framer) => framer.finish(),
            Self::Protobuf(framer) => framer.finish(),
        }
    }
}
