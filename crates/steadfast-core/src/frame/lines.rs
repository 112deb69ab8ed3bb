//! Watch streams: one record a line.

use bytes::{Buf, Bytes};
use memchr::memchr;

use super::FrameError;

/// Cuts a body into its lines.
///
/// [`feed`](Self::feed) it a chunk, take [`next`](Self::next) until there is none, feed it the next; at the body's end ask
/// [`finish`](Self::finish). After an error it is done: it yields nothing more.
pub struct LineFramer {
    limit: usize,
    /// What has not been looked at yet of the chunk fed last.
    chunk: Bytes,
    /// The beginning of a record whose end has not come yet.
    begun: Vec<u8>,
    failed: Option<FrameError>,
}

impl LineFramer {
    /// A framer of records of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, chunk: Bytes::new(), begun: Vec::new(), failed: None }
    }

    /// Takes the body's next chunk.
    ///
    /// # Panics
    ///
    /// If the chunk before has not been taken to its end: nothing here queues chunks.
    pub fn feed(&mut self, chunk: Bytes) {
        assert!(self.chunk.is_empty(), "a chunk was fed before the one before it was used up");
        if self.failed.is_none() {
            self.chunk = chunk;
        }
    }

    /// The next record, without its line end; none where the chunk has no more.
    #[expect(clippy::should_implement_trait, reason = "it yields again once it is fed again: no iterator does")]
    pub fn next(&mut self) -> Option<Result<Bytes, FrameError>> {
        while let Some(end) = memchr(b'\n', &self.chunk) {
            if self.begun.len() + end > self.limit {
                return Some(Err(self.fail()));
            }
            let mut record = self.chunk.split_to(end);
            self.chunk.advance(1);
            if !self.begun.is_empty() {
                self.begun.extend_from_slice(&record);
                record = Bytes::from(std::mem::take(&mut self.begun));
            }
            if record.last() == Some(&b'\r') {
                record.truncate(record.len() - 1);
            }
            if !record.is_empty() {
                return Some(Ok(record));
            }
        }
        if self.begun.len() + self.chunk.len() > self.limit {
            return Some(Err(self.fail()));
        }
        self.begun.extend_from_slice(&self.chunk);
        self.chunk = Bytes::new();
        None
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// The error met before, or [`FrameError::Truncated`] where the last line has no end: the server ends each.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.failed {
            Some(error) => Err(error),
            None if self.begun.trim_ascii().is_empty() => Ok(()),
            None => Err(FrameError::Truncated { bytes: self.begun.len() }),
        }
    }

    fn fail(&mut self) -> FrameError {
        let error = FrameError::TooLarge { limit: self.limit };
        self.failed = Some(error);
        self.chunk = Bytes::new();
        self.begun = Vec::new();
        error
    }
}
