//! Framer for watch streams in protobuf: a length of four bytes in big-endian order precedes each record
//! ([length-delimited](https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding)).

use bytes::{Buf, Bytes};

use super::FrameError;
use super::lines::Line;
use super::overlong::Passing;
use crate::protobuf::IdentityScanner;

/// Size of a length in bytes.
const PREFIX: usize = 4;

/// Splits a body into records by their lengths.
///
/// Pass a chunk to [`feed`](Self::feed), then call [`next`](Self::next) until it returns `None`, and repeat with the
/// next chunk. Call [`finish`](Self::finish) at the end of the body.
pub struct LengthFramer {
    limit: usize,
    /// Unread rest of the current chunk.
    chunk: Bytes,
    /// Bytes of the current length or record from earlier chunks.
    begun: Vec<u8>,
    /// Length of the current record.
    length: Option<u64>,
    /// The current record, if it exceeds the limit.
    passing: Option<Box<Passing>>,
}

impl LengthFramer {
    /// Creates a framer that holds records of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, chunk: Bytes::new(), begun: Vec::new(), length: None, passing: None }
    }

    /// Adds the next chunk of the body.
    ///
    /// # Panics
    ///
    /// Panics if the previous chunk has not been read to its end, since chunks are not queued.
    pub fn feed(&mut self, chunk: Bytes) {
        assert!(self.chunk.is_empty(), "a chunk was fed before the one before it was used up");
        self.chunk = chunk;
    }

    /// Returns the next record; `None` if the chunk has no more.
    #[expect(clippy::should_implement_trait, reason = "it yields again once it is fed again: no iterator does")]
    pub fn next(&mut self) -> Option<Line> {
        let length = match self.length {
            Some(length) => length,
            None => self.begin()?,
        };
        if let Some(passing) = &mut self.passing {
            let left = usize::try_from(length - passing.bytes()).unwrap_or(usize::MAX);
            passing.pass(&self.chunk.split_to(left.min(self.chunk.len())));
            if passing.bytes() < length {
                return None;
            }
            self.length = None;
            return self.passing.take().map(|passing| Line::Overlong(passing.end()));
        }
        // The record is within the limit, so its length fits into memory.
        let left = length as usize - self.begun.len();
        let whole = self.chunk.len() >= left;
        let piece = self.chunk.split_to(left.min(self.chunk.len()));
        // A record within a single chunk needs no copy.
        if whole && self.begun.is_empty() {
            self.length = None;
            return Some(Line::Whole(piece));
        }
        self.begun.extend_from_slice(&piece);
        if !whole {
            return None;
        }
        self.length = None;
        Some(Line::Whole(Bytes::from(std::mem::take(&mut self.begun))))
    }

    /// Reads the length of the next record; `None` if it is incomplete.
    fn begin(&mut self) -> Option<u64> {
        let taken = (PREFIX - self.begun.len()).min(self.chunk.len());
        self.begun.extend_from_slice(&self.chunk[..taken]);
        self.chunk.advance(taken);
        // Kubernetes frames watch events in protobuf with a big-endian `u32` length.
        let length = u64::from(u32::from_be_bytes(*self.begun.first_chunk::<PREFIX>()?));
        self.begun.clear();
        self.length = Some(length);
        // An overlong record is scanned for its identity and never kept in memory.
        if length > self.limit as u64 {
            self.passing = Some(Box::new(Passing::new(self.limit, IdentityScanner::of_record(length), &[])));
        }
        Some(length)
    }

    /// Returns the number of received bytes of the current record if they far exceed the limit; at most once per
    /// record.
    pub fn endless(&mut self) -> Option<u64> {
        self.passing.as_mut().and_then(|passing| passing.endless())
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError::Truncated`] if the body ends within a record.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.passing {
            Some(passing) => Err(FrameError::Truncated { bytes: passing.bytes() }),
            // A stream may only end between two records.
            None if self.begun.is_empty() && self.length.is_none() => Ok(()),
            None => Err(FrameError::Truncated { bytes: self.begun.len() as u64 }),
        }
    }
}
