//! Watch streams in protobuf: before each record is its length, four bytes, the highest first
//! ([length-delimited](https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding)).

use bytes::{Buf, Bytes};

use super::FrameError;
use super::lines::Line;
use super::overlong::Passing;
use crate::protobuf::Gist;

/// How many bytes a length has.
const PREFIX: usize = 4;

/// Cuts a body into records by the lengths before them.
///
/// [`feed`](Self::feed) it a chunk, take [`next`](Self::next) until there is none, feed it the next; at the body's end ask
/// [`finish`](Self::finish).
pub struct LengthFramer {
    limit: usize,
    /// What has not been looked at yet of the chunk fed last.
    chunk: Bytes,
    /// What chunks before had of the length, or of the record, that is under way.
    begun: Vec<u8>,
    /// The length of the record under way.
    length: Option<u64>,
    /// That record, where it is longer than the limit.
    passing: Option<Box<Passing>>,
}

impl LengthFramer {
    /// A framer that holds records of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, chunk: Bytes::new(), begun: Vec::new(), length: None, passing: None }
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
        // It is within the limit, so it has a length in memory.
        let left = length as usize - self.begun.len();
        let whole = self.chunk.len() >= left;
        let piece = self.chunk.split_to(left.min(self.chunk.len()));
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

    /// Reads the length of the next record; none where it has not come.
    fn begin(&mut self) -> Option<u64> {
        let taken = (PREFIX - self.begun.len()).min(self.chunk.len());
        self.begun.extend_from_slice(&self.chunk[..taken]);
        self.chunk.advance(taken);
        let length = u64::from(u32::from_be_bytes(*self.begun.first_chunk::<PREFIX>()?));
        self.begun.clear();
        self.length = Some(length);
        if length > self.limit as u64 {
            self.passing = Some(Box::new(Passing::new(self.limit, Gist::of_record(length), &[])));
        }
        Some(length)
    }

    /// How many bytes the record under way has so far, reported once, when that is so many that it may have no end.
    pub fn endless(&mut self) -> Option<u64> {
        self.passing.as_mut().and_then(|passing| passing.endless())
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// [`FrameError::Truncated`] where it ends inside a record.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.passing {
            Some(passing) => Err(FrameError::Truncated { bytes: passing.bytes() }),
            None if self.begun.is_empty() && self.length.is_none() => Ok(()),
            None => Err(FrameError::Truncated { bytes: self.begun.len() as u64 }),
        }
    }
}
