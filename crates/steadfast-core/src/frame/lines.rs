//! Watch streams: one record a line.

use bytes::{Buf, Bytes};
use memchr::memchr;

use super::FrameError;
use super::overlong::{Overlong, Passing};
use crate::scan::Gist;

/// A record as it was cut out of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// All of it, without its line end.
    Whole(Bytes),
    /// One above the limit.
    Overlong(Overlong),
}

/// Cuts a body into its lines.
///
/// [`feed`](Self::feed) it a chunk, take [`next`](Self::next) until there is none, feed it the next; at the body's end ask
/// [`finish`](Self::finish).
pub struct LineFramer {
    limit: usize,
    /// What has not been looked at yet of the chunk fed last.
    chunk: Bytes,
    /// The beginning of a record whose end has not come yet.
    begun: Vec<u8>,
    /// The record under way, where it is longer than the limit.
    passing: Option<Box<Passing>>,
}

impl LineFramer {
    /// A framer that holds records of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, chunk: Bytes::new(), begun: Vec::new(), passing: None }
    }

    /// Takes the body's next chunk.
    ///
    /// # Panics
    ///
    /// If the chunk before has not been taken to its end: nothing here queues chunks.
    pub fn feed(&mut self, chunk: Bytes) {
        assert!(self.chunk.is_empty(), "a chunk was fed before the one before it was used up");
        self.chunk = chunk;
    }

    /// The next record; none where the chunk has no more.
    #[expect(clippy::should_implement_trait, reason = "it yields again once it is fed again: no iterator does")]
    pub fn next(&mut self) -> Option<Line> {
        while let Some(end) = memchr(b'\n', &self.chunk) {
            let mut record = self.chunk.split_to(end);
            self.chunk.advance(1);
            if self.passes(&record) {
                return self.passing.take().map(|passing| Line::Overlong(passing.end()));
            }
            if !self.begun.is_empty() {
                self.begun.extend_from_slice(&record);
                record = Bytes::from(std::mem::take(&mut self.begun));
            }
            if record.last() == Some(&b'\r') {
                record.truncate(record.len() - 1);
            }
            if !record.is_empty() {
                return Some(Line::Whole(record));
            }
        }
        let rest = std::mem::take(&mut self.chunk);
        if !self.passes(&rest) {
            self.begun.extend_from_slice(&rest);
        }
        None
    }

    /// Lets the next piece of the record under way pass, if all there is of it is more than the limit.
    fn passes(&mut self, piece: &[u8]) -> bool {
        if self.passing.is_none() && self.begun.len() + piece.len() > self.limit {
            let begun = std::mem::take(&mut self.begun);
            self.passing = Some(Box::new(Passing::new(self.limit, Gist::of_record(), &begun)));
        }
        let Some(passing) = &mut self.passing else { return false };
        passing.pass(piece);
        true
    }

    /// How many bytes the record under way has so far, reported once, when that is so many that it may have no end.
    pub fn endless(&mut self) -> Option<u64> {
        self.passing.as_mut().and_then(|passing| passing.endless())
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// [`FrameError::Truncated`] where the last line has no end: the server ends each.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.passing {
            Some(passing) => Err(FrameError::Truncated { bytes: passing.bytes() }),
            None if self.begun.trim_ascii().is_empty() => Ok(()),
            None => Err(FrameError::Truncated { bytes: self.begun.len() as u64 }),
        }
    }
}
