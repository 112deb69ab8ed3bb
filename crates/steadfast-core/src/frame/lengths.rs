//! Framer for watch streams in protobuf: a length of four bytes in big-endian order precedes each record
//! ([length-delimited](https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding)).

use bytes::{Buf, Bytes};

use super::FrameError;
use super::lines::StreamRecord;
use super::overlong::SkippedRecord;
use crate::protobuf::MessageIdentityScanner;

/// Size of a length in bytes.
const PREFIX_BYTES: usize = 4;

/// Splits a body into records by their lengths.
///
/// Pass a chunk to [`feed`](Self::feed), then call [`next`](Self::next) until it returns `None`, and repeat with the
/// next chunk. Call [`finish`](Self::finish) at the end of the body.
pub struct LengthFramer {
    limit: usize,
    /// Unread rest of the current chunk.
    chunk: Bytes,
    /// Bytes of the current length or record from earlier chunks.
    partial: Vec<u8>,
    /// Length of the current record.
    length: Option<u64>,
    /// The current record, if it exceeds the limit.
    skipped: Option<Box<SkippedRecord>>,
}

impl LengthFramer {
    /// Creates a framer that holds records of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, chunk: Bytes::new(), partial: Vec::new(), length: None, skipped: None }
    }

    /// Adds the next chunk of the body.
    ///
    /// # Panics
    ///
    /// Panics if the previous chunk has not been read to its end, since chunks are not queued.
    pub fn feed(&mut self, chunk: Bytes) {
        assert!(self.chunk.is_empty(), "a chunk was fed before the previous chunk was read to its end");
        self.chunk = chunk;
    }

    /// Returns the next record; `None` if the chunk has no more.
    #[expect(
        clippy::should_implement_trait,
        reason = "unlike an iterator, it returns items again after the next `feed`"
    )]
    pub fn next(&mut self) -> Option<StreamRecord> {
        let length = match self.length {
            Some(length) => length,
            None => self.read_length()?,
        };
        if let Some(skipped) = &mut self.skipped {
            let left = usize::try_from(length - skipped.bytes()).unwrap_or(usize::MAX);
            skipped.pass(&self.chunk.split_to(left.min(self.chunk.len())));
            if skipped.bytes() < length {
                return None;
            }
            self.length = None;
            return self.skipped.take().map(|skipped| StreamRecord::Overlong(skipped.end()));
        }
        // The record is within the limit, so its length fits into memory.
        let left = length as usize - self.partial.len();
        let is_complete = self.chunk.len() >= left;
        let piece = self.chunk.split_to(left.min(self.chunk.len()));
        // A record within a single chunk needs no copy.
        if is_complete && self.partial.is_empty() {
            self.length = None;
            return Some(StreamRecord::Complete(piece));
        }
        self.partial.extend_from_slice(&piece);
        if !is_complete {
            return None;
        }
        self.length = None;
        Some(StreamRecord::Complete(Bytes::from(std::mem::take(&mut self.partial))))
    }

    /// Reads the length of the next record; `None` if it is incomplete.
    fn read_length(&mut self) -> Option<u64> {
        let taken = (PREFIX_BYTES - self.partial.len()).min(self.chunk.len());
        self.partial.extend_from_slice(&self.chunk[..taken]);
        self.chunk.advance(taken);
        // Kubernetes frames watch events in protobuf with a big-endian `u32` length.
        let length = u64::from(u32::from_be_bytes(*self.partial.first_chunk::<PREFIX_BYTES>()?));
        self.partial.clear();
        self.length = Some(length);
        // An overlong record is scanned for its identity and never kept in memory.
        if length > self.limit as u64 {
            self.skipped =
                Some(Box::new(SkippedRecord::new(self.limit, MessageIdentityScanner::of_record(length), &[])));
        }
        Some(length)
    }

    /// Returns the number of received bytes of the current record if they far exceed the limit; at most once per
    /// record.
    pub fn take_overlong_length(&mut self) -> Option<u64> {
        self.skipped.as_mut().and_then(|skipped| skipped.take_overlong_length())
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// Returns [`FrameError::Truncated`] if the body ends within a record.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.skipped {
            Some(skipped) => Err(FrameError::Truncated { bytes: skipped.bytes() }),
            // A stream may only end between two records.
            None if self.partial.is_empty() && self.length.is_none() => Ok(()),
            None => Err(FrameError::Truncated { bytes: self.partial.len() as u64 }),
        }
    }
}
