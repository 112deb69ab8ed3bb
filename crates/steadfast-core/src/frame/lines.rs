//! Framer for watch streams in JSON: one record per line.

use bytes::{Buf, Bytes};
use memchr::memchr;

use super::FrameError;
use super::overlong::{Overlong, SkippedRecord};
use crate::scan::JsonIdentityScanner;

/// Record of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamRecord {
    /// Complete record without its line end.
    Complete(Bytes),
    /// Record above the limit.
    Overlong(Overlong),
}

/// Splits a body into its lines.
///
/// Pass a chunk to [`feed`](Self::feed), then call [`next`](Self::next) until it returns `None`, and repeat with the
/// next chunk. Call [`finish`](Self::finish) at the end of the body.
pub struct LineFramer {
    limit: usize,
    /// Unread rest of the current chunk.
    chunk: Bytes,
    /// Bytes of the current record from earlier chunks.
    partial: Vec<u8>,
    /// The current record, if it exceeds the limit.
    skipped: Option<Box<SkippedRecord>>,
}

impl LineFramer {
    /// Creates a framer that holds records of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, chunk: Bytes::new(), partial: Vec::new(), skipped: None }
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
        while let Some(end) = memchr(b'\n', &self.chunk) {
            let mut record = self.chunk.split_to(end);
            self.chunk.advance(1);
            // This is the end of an overlong record. Its bytes were scanned and not kept.
            if self.skip_if_overlong(&record) {
                return self.skipped.take().map(|skipped| StreamRecord::Overlong(skipped.end()));
            }
            if !self.partial.is_empty() {
                self.partial.extend_from_slice(&record);
                record = Bytes::from(std::mem::take(&mut self.partial));
            }
            // Line ends may be CRLF.
            if record.last() == Some(&b'\r') {
                record.truncate(record.len() - 1);
            }
            // An empty line is not a record.
            if !record.is_empty() {
                return Some(StreamRecord::Complete(record));
            }
        }
        let rest = std::mem::take(&mut self.chunk);
        if !self.skip_if_overlong(&rest) {
            self.partial.extend_from_slice(&rest);
        }
        None
    }

    /// Skips `piece`, the next part of the current record, if the record exceeds the limit. Returns whether `piece` was
    /// skipped.
    fn skip_if_overlong(&mut self, piece: &[u8]) -> bool {
        if self.skipped.is_none() && self.partial.len() + piece.len() > self.limit {
            let partial = std::mem::take(&mut self.partial);
            self.skipped = Some(Box::new(SkippedRecord::new(self.limit, JsonIdentityScanner::of_record(), &partial)));
        }
        let Some(skipped) = &mut self.skipped else { return false };
        skipped.pass(piece);
        true
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
    /// Returns [`FrameError::Truncated`] if the last line has no end, since the server terminates each line.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.skipped {
            Some(skipped) => Err(FrameError::Truncated { bytes: skipped.bytes() }),
            None if self.partial.trim_ascii().is_empty() => Ok(()),
            None => Err(FrameError::Truncated { bytes: self.partial.len() as u64 }),
        }
    }
}
