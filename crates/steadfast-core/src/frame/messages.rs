//! Framer for lists in protobuf: a single message in an envelope. Items are returned on arrival.

use bytes::Bytes;

use super::FrameError;
use super::item::Item;
use super::list::ListPart;
use super::overlong::SkippedRecord;
use crate::decode::{Encoding, list_meta_of_message, status_of_message};
use crate::protobuf::{Head, Heads, IdentityScanner, MAGIC_PREFIX, MessageId, Wire, types as read_types};

/// Splits a list into its items.
///
/// Pass a chunk to [`feed`](Self::feed), then call [`next`](Self::next) until it returns `None`, and repeat with the
/// next chunk. Call [`finish`](Self::finish) at the end of the body, before the list is used. After an error, no
/// further items follow.
pub struct MessageFramer {
    limit: usize,
    chunk: Bytes,
    /// Read position in the chunk.
    at: usize,
    /// Length of the body before the chunk.
    before: u64,
    state: State,
    heads: Heads,
    /// Bytes of the current value from earlier chunks.
    begun: Vec<u8>,
    /// The current item, if it exceeds the limit.
    skipped: Option<Box<SkippedRecord>>,
    kind: Option<String>,
    /// Message type of the items, after the envelope was read.
    items: Option<MessageId>,
    failed: Option<FrameError>,
}

/// Maximum length of values other than items, in bytes.
const MEMBER_LIMIT: u64 = 1 << 20;

/// Expected next element. Positions are relative to the start of the body.
#[derive(Clone, Copy)]
enum State {
    /// The magic prefix.
    Mark,
    /// A field of the envelope.
    Envelope,
    /// The kind in the envelope, which ends at `end`.
    Types { end: u64 },
    /// A field of the list, which ends at `end`.
    List { end: u64 },
    /// A value within the list that ends at `list`.
    Value { end: u64, list: u64, place: Place },
    /// A `Status` instead of the list.
    Status { end: u64 },
    /// A field of the envelope after the list.
    After,
    /// Irrelevant bytes up to `end`, followed by `then`.
    Skipped { end: u64, then: NextElement },
}

/// Role of a value in the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Meta,
    Item,
}

/// Element after irrelevant bytes.
#[derive(Clone, Copy)]
enum NextElement {
    Envelope,
    After,
    List { end: u64 },
}

impl MessageFramer {
    /// Creates a framer that holds items of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            chunk: Bytes::new(),
            at: 0,
            before: 0,
            state: State::Mark,
            heads: Heads::default(),
            begun: Vec::new(),
            skipped: None,
            kind: None,
            items: None,
            failed: None,
        }
    }

    /// Adds the next chunk of the body.
    ///
    /// # Panics
    ///
    /// Panics if the previous chunk has not been read to its end, since chunks are not queued.
    pub fn feed(&mut self, chunk: Bytes) {
        assert!(self.at == self.chunk.len(), "a chunk was fed before the one before it was used up");
        if self.failed.is_none() {
            self.before += self.chunk.len() as u64;
            self.chunk = chunk;
            self.at = 0;
        }
    }

    /// Returns the next part; `None` if the chunk has no more.
    #[expect(clippy::should_implement_trait, reason = "it yields again once it is fed again: no iterator does")]
    pub fn next(&mut self) -> Option<Result<ListPart, FrameError>> {
        if self.failed.is_some() {
            return None;
        }
        let part = self.step();
        if let Err(error) = part {
            self.failed = Some(error);
            self.chunk = Bytes::new();
            self.at = 0;
            self.begun = Vec::new();
        }
        part.transpose()
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// Returns an earlier error again, or [`FrameError::Truncated`] if the list has no end.
    pub fn finish(self) -> Result<(), FrameError> {
        match (self.failed, self.state) {
            (Some(error), _) => Err(error),
            (None, State::After) if self.heads.count() == 0 => Ok(()),
            (None, _) => {
                let held = (self.begun.len() + self.heads.count()) as u64;
                Err(FrameError::Truncated { bytes: self.skipped.map_or(held, |skipped| skipped.bytes()) })
            }
        }
    }

    /// Returns the number of received bytes of the current item if they far exceed the limit; at most once per item.
    pub fn take_overlong_length(&mut self) -> Option<u64> {
        self.skipped.as_mut().and_then(|skipped| skipped.take_overlong_length())
    }

    /// Returns the read position in the body.
    fn place(&self) -> u64 {
        self.before + self.at as u64
    }

    fn step(&mut self) -> Result<Option<ListPart>, FrameError> {
        loop {
            match self.state {
                // Protobuf has no end marker, so a list ends by its length.
                State::List { end } if end == self.place() && self.heads.count() == 0 => {
                    self.state = State::After;
                    return Ok(Some(ListPart::End { kind: self.kind.take(), items: self.items.is_some() }));
                }
                State::Skipped { end, then } => {
                    self.skip_to(end, |_| ());
                    if end != self.place() {
                        return Ok(None);
                    }
                    self.state = match then {
                        NextElement::Envelope => State::Envelope,
                        NextElement::After => State::After,
                        NextElement::List { end } => State::List { end },
                    };
                }
                State::Types { end } => {
                    let Some(types) = self.take(end) else { return Ok(None) };
                    self.types(&types)?;
                    self.state = State::Envelope;
                }
                State::Status { end } => {
                    let Some(message) = self.take(end) else { return Ok(None) };
                    self.state = State::After;
                    let status = status_of_message(&message).ok_or_else(|| self.malformed())?;
                    return Ok(Some(ListPart::Status(status)));
                }
                State::Value { end, list, place } => {
                    let part = self.value(end, place)?;
                    if part.is_some() {
                        self.state = State::List { end: list };
                    }
                    return Ok(part);
                }
                _ if self.at == self.chunk.len() => return Ok(None),
                State::Mark => {
                    if self.chunk[self.at] != MAGIC_PREFIX[self.place() as usize] {
                        return Err(self.malformed());
                    }
                    self.at += 1;
                    if self.place() == MAGIC_PREFIX.len() as u64 {
                        self.state = State::Envelope;
                    }
                }
                State::Envelope | State::After => {
                    if let Some(head) = self.head(u64::MAX)? {
                        self.envelope(head)?;
                    }
                }
                State::List { end } => {
                    if let Some(head) = self.head(end)? {
                        self.field(head, end)?;
                    }
                }
            }
        }
    }

    /// Reads the next field head within a message that ends at `end`; `None` if it is incomplete.
    fn head(&mut self, end: u64) -> Result<Option<Head>, FrameError> {
        // The buffered bytes of an incomplete head belong to the same message.
        let remaining = end - self.place() + self.heads.count() as u64;
        let (head, taken) = self.heads.next(&self.chunk[self.at..], remaining).map_err(|_| self.malformed())?;
        self.at += taken;
        Ok(head)
    }

    /// Starts a field of the envelope.
    fn envelope(&mut self, head: Head) -> Result<(), FrameError> {
        let after = matches!(self.state, State::After);
        let end = self.place().checked_add(head.length).ok_or_else(|| self.malformed())?;
        self.state = match head.number {
            // The kind must precede the content, and occur once.
            1 | 2 if after || head.wire != Wire::Delimited => return Err(self.malformed()),
            1 if head.length > MEMBER_LIMIT => return Err(too_large()),
            1 => State::Types { end },
            2 => match self.kind.as_deref() {
                None => return Err(self.malformed()),
                Some("Status") if head.length > MEMBER_LIMIT => return Err(too_large()),
                Some("Status") => State::Status { end },
                Some(_) => State::List { end },
            },
            // Content encoding, such as gzip; no server sets it.
            3 if head.length > 0 => return Err(self.malformed()),
            _ => State::Skipped { end, then: if after { NextElement::After } else { NextElement::Envelope } },
        };
        Ok(())
    }

    /// Records the kind of the list.
    fn types(&mut self, types: &[u8]) -> Result<(), FrameError> {
        let (api_version, kind) = read_types(types).map_err(|_| self.malformed())?;
        self.items = MessageId::of_kind(&api_version, &kind).and_then(MessageId::items);
        self.kind = Some(kind.into_owned());
        Ok(())
    }

    /// Starts a field of the list that ends at `list`.
    fn field(&mut self, head: Head, list: u64) -> Result<(), FrameError> {
        let end = self.place() + head.length;
        let place = match (head.number, self.items) {
            (1 | 2, Some(_)) if head.wire != Wire::Delimited => return Err(self.malformed()),
            (1, Some(_)) => Place::Meta,
            (2, Some(_)) => Place::Item,
            // A list of an unknown kind has no known fields. The caller checks the kind.
            _ => {
                self.state = State::Skipped { end, then: NextElement::List { end: list } };
                return Ok(());
            }
        };
        if place == Place::Meta && head.length > MEMBER_LIMIT {
            return Err(too_large());
        }
        if place == Place::Item && head.length > self.limit as u64 {
            self.skipped = Some(Box::new(SkippedRecord::new(self.limit, IdentityScanner::of_object(head.length), &[])));
        }
        self.state = State::Value { end, list, place };
        Ok(())
    }

    /// Reads the current value and processes it by role; `None` if incomplete.
    fn value(&mut self, end: u64, place: Place) -> Result<Option<ListPart>, FrameError> {
        if let Some(mut skipped) = self.skipped.take() {
            self.skip_to(end, |piece| skipped.pass(piece));
            if end == self.place() {
                return Ok(Some(ListPart::Overlong(skipped.end())));
            }
            self.skipped = Some(skipped);
            return Ok(None);
        }
        let Some(message) = self.take(end) else { return Ok(None) };
        if let (Place::Item, Some(id)) = (place, self.items) {
            return Ok(Some(ListPart::Item(Item::of_message(message, id))));
        }
        let meta = list_meta_of_message(&message).ok_or_else(|| self.malformed())?;
        Ok(Some(ListPart::Meta(meta)))
    }

    /// Returns the range of the chunk up to `end`.
    fn within(&self, end: u64) -> std::ops::Range<usize> {
        let left = usize::try_from(end - self.place()).unwrap_or(usize::MAX);
        self.at..self.at + left.min(self.chunk.len() - self.at)
    }

    /// Skips the bytes up to `end`, and passes them to `visit`.
    fn skip_to(&mut self, end: u64, visit: impl FnOnce(&[u8])) {
        let here = self.within(end);
        visit(&self.chunk[here.clone()]);
        self.at = here.end;
    }

    /// Returns the current value if complete: a slice of the chunk, for a value within a single chunk.
    fn take(&mut self, end: u64) -> Option<Bytes> {
        let here = self.within(end);
        self.at = here.end;
        // A value within a single chunk needs no copy.
        if self.place() == end && self.begun.is_empty() {
            return Some(self.chunk.slice(here));
        }
        self.begun.extend_from_slice(&self.chunk[here]);
        (self.place() == end).then(|| Bytes::from(std::mem::take(&mut self.begun)))
    }

    fn malformed(&self) -> FrameError {
        FrameError::Malformed { encoding: Encoding::Protobuf, offset: self.place() }
    }
}

fn too_large() -> FrameError {
    FrameError::TooLarge { limit: MEMBER_LIMIT as usize }
}
