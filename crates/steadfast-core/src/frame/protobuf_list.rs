//! Framer for lists in protobuf: a single message in an envelope. Items are returned on arrival.

use bytes::Bytes;

use super::FrameError;
use super::item::Item;
use super::list::ListPart;
use super::overlong::SkippedRecord;
use crate::decode::{Encoding, list_meta_of_message, status_of_message};
use crate::protobuf::{
    FieldHeader, FieldHeaderReader, MAGIC_PREFIX, MessageIdentityScanner, MessageType, Wire, types as read_types,
};

/// Splits a list into its items.
///
/// Pass a chunk to [`feed`](Self::feed), then call [`next`](Self::next) until it returns `None`, and repeat with the
/// next chunk. Call [`finish`](Self::finish) at the end of the body, before the list is used. After an error, no
/// further items follow.
pub struct ProtobufListFramer {
    limit: usize,
    chunk: Bytes,
    /// Read position in the chunk.
    at: usize,
    /// Length of the body before the chunk.
    chunk_offset: u64,
    state: State,
    headers: FieldHeaderReader,
    /// Bytes of the current value from earlier chunks.
    partial: Vec<u8>,
    /// The current item, if it exceeds the limit.
    skipped: Option<Box<SkippedRecord>>,
    kind: Option<String>,
    /// Message type of the items, after the envelope was read.
    items: Option<MessageType>,
    failed: Option<FrameError>,
}

/// Maximum length of values other than items, in bytes.
const MAX_MEMBER_BYTES: u64 = 1 << 20;

/// Expected next element. Positions are relative to the start of the body.
#[derive(Clone, Copy)]
enum State {
    /// The magic prefix.
    MagicPrefix,
    /// A field of the envelope.
    Envelope,
    /// The kind in the envelope, which ends at `end`.
    Types { end: u64 },
    /// A field of the list, which ends at `end`.
    List { end: u64 },
    /// A value within the list that ends at `list`.
    Value { end: u64, list: u64, role: FieldRole },
    /// A `Status` instead of the list.
    Status { end: u64 },
    /// A field of the envelope after the list.
    After,
    /// Irrelevant bytes up to `end`, followed by `then`.
    Skipped { end: u64, then: NextElement },
}

/// Role of a value in the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldRole {
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

impl ProtobufListFramer {
    /// Creates a framer that holds items of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            chunk: Bytes::new(),
            at: 0,
            chunk_offset: 0,
            state: State::MagicPrefix,
            headers: FieldHeaderReader::default(),
            partial: Vec::new(),
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
        assert!(self.at == self.chunk.len(), "a chunk was fed before the previous chunk was read to its end");
        if self.failed.is_none() {
            self.chunk_offset += self.chunk.len() as u64;
            self.chunk = chunk;
            self.at = 0;
        }
    }

    /// Returns the next part; `None` if the chunk has no more.
    #[expect(
        clippy::should_implement_trait,
        reason = "unlike an iterator, it returns items again after the next `feed`"
    )]
    pub fn next(&mut self) -> Option<Result<ListPart, FrameError>> {
        if self.failed.is_some() {
            return None;
        }
        let part = self.step();
        if let Err(error) = part {
            self.failed = Some(error);
            self.chunk = Bytes::new();
            self.at = 0;
            self.partial = Vec::new();
        }
        part.transpose()
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// Returns an earlier error again, or [`FrameError::Truncated`] if the list does not end.
    pub fn finish(self) -> Result<(), FrameError> {
        match (self.failed, self.state) {
            (Some(error), _) => Err(error),
            (None, State::After) if self.headers.count() == 0 => Ok(()),
            (None, _) => {
                let held = (self.partial.len() + self.headers.count()) as u64;
                Err(FrameError::Truncated { bytes: self.skipped.map_or(held, |skipped| skipped.bytes()) })
            }
        }
    }

    /// Returns the number of received bytes of the current item if they far exceed the limit; at most once per item.
    pub fn take_overlong_length(&mut self) -> Option<u64> {
        self.skipped.as_mut().and_then(|skipped| skipped.take_overlong_length())
    }

    /// Returns the read position in the body.
    fn offset(&self) -> u64 {
        self.chunk_offset + self.at as u64
    }

    fn step(&mut self) -> Result<Option<ListPart>, FrameError> {
        loop {
            match self.state {
                // Protobuf has no end marker, so a list ends by its length.
                State::List { end } if end == self.offset() && self.headers.count() == 0 => {
                    self.state = State::After;
                    return Ok(Some(ListPart::End { kind: self.kind.take(), items: self.items.is_some() }));
                }
                State::Skipped { end, then } => {
                    self.skip_to(end, |_| ());
                    if end != self.offset() {
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
                    self.type_meta(&types)?;
                    self.state = State::Envelope;
                }
                State::Status { end } => {
                    let Some(message) = self.take(end) else { return Ok(None) };
                    self.state = State::After;
                    let status = status_of_message(&message).ok_or_else(|| self.malformed())?;
                    return Ok(Some(ListPart::Status(status)));
                }
                State::Value { end, list, role } => {
                    let part = self.value(end, role)?;
                    if part.is_some() {
                        self.state = State::List { end: list };
                    }
                    return Ok(part);
                }
                _ if self.at == self.chunk.len() => return Ok(None),
                State::MagicPrefix => {
                    if self.chunk[self.at] != MAGIC_PREFIX[self.offset() as usize] {
                        return Err(self.malformed());
                    }
                    self.at += 1;
                    if self.offset() == MAGIC_PREFIX.len() as u64 {
                        self.state = State::Envelope;
                    }
                }
                State::Envelope | State::After => {
                    if let Some(header) = self.header(u64::MAX)? {
                        self.envelope(header)?;
                    }
                }
                State::List { end } => {
                    if let Some(header) = self.header(end)? {
                        self.field(header, end)?;
                    }
                }
            }
        }
    }

    /// Reads the next field header within a message that ends at `end`; `None` if it is incomplete.
    fn header(&mut self, end: u64) -> Result<Option<FieldHeader>, FrameError> {
        // The buffered bytes of an incomplete header belong to the same message.
        let remaining = end - self.offset() + self.headers.count() as u64;
        let (header, taken) = self.headers.next(&self.chunk[self.at..], remaining).map_err(|_| self.malformed())?;
        self.at += taken;
        Ok(header)
    }

    /// Starts a field of the envelope.
    fn envelope(&mut self, header: FieldHeader) -> Result<(), FrameError> {
        let after = matches!(self.state, State::After);
        let end = self.offset().checked_add(header.length).ok_or_else(|| self.malformed())?;
        self.state = match header.number {
            // The kind must precede the content, and occur once.
            1 | 2 if after || header.wire != Wire::Delimited => return Err(self.malformed()),
            1 if header.length > MAX_MEMBER_BYTES => return Err(too_large()),
            1 => State::Types { end },
            2 => match self.kind.as_deref() {
                None => return Err(self.malformed()),
                Some("Status") if header.length > MAX_MEMBER_BYTES => return Err(too_large()),
                Some("Status") => State::Status { end },
                Some(_) => State::List { end },
            },
            // Content encoding, such as gzip; no server sets it.
            3 if header.length > 0 => return Err(self.malformed()),
            _ => State::Skipped { end, then: if after { NextElement::After } else { NextElement::Envelope } },
        };
        Ok(())
    }

    /// Records the kind of the list.
    fn type_meta(&mut self, types: &[u8]) -> Result<(), FrameError> {
        let (api_version, kind) = read_types(types).map_err(|_| self.malformed())?;
        self.items = MessageType::of_kind(&api_version, &kind).and_then(MessageType::items);
        self.kind = Some(kind.into_owned());
        Ok(())
    }

    /// Starts a field of the list that ends at `list`.
    fn field(&mut self, header: FieldHeader, list: u64) -> Result<(), FrameError> {
        let end = self.offset() + header.length;
        let role = match (header.number, self.items) {
            (1 | 2, Some(_)) if header.wire != Wire::Delimited => return Err(self.malformed()),
            (1, Some(_)) => FieldRole::Meta,
            (2, Some(_)) => FieldRole::Item,
            // A list of an unknown kind has no known fields. The caller checks the kind.
            _ => {
                self.state = State::Skipped { end, then: NextElement::List { end: list } };
                return Ok(());
            }
        };
        if role == FieldRole::Meta && header.length > MAX_MEMBER_BYTES {
            return Err(too_large());
        }
        if role == FieldRole::Item && header.length > self.limit as u64 {
            self.skipped =
                Some(Box::new(SkippedRecord::new(self.limit, MessageIdentityScanner::of_object(header.length), &[])));
        }
        self.state = State::Value { end, list, role };
        Ok(())
    }

    /// Reads the current value and processes it by role; `None` if incomplete.
    fn value(&mut self, end: u64, role: FieldRole) -> Result<Option<ListPart>, FrameError> {
        if let Some(mut skipped) = self.skipped.take() {
            self.skip_to(end, |piece| skipped.pass(piece));
            if end == self.offset() {
                return Ok(Some(ListPart::Overlong(skipped.end())));
            }
            self.skipped = Some(skipped);
            return Ok(None);
        }
        let Some(message) = self.take(end) else { return Ok(None) };
        if let (FieldRole::Item, Some(id)) = (role, self.items) {
            return Ok(Some(ListPart::Item(Item::of_message(message, id))));
        }
        let meta = list_meta_of_message(&message).ok_or_else(|| self.malformed())?;
        Ok(Some(ListPart::Meta(meta)))
    }

    /// Returns the range of the chunk up to `end`.
    fn within(&self, end: u64) -> std::ops::Range<usize> {
        let left = usize::try_from(end - self.offset()).unwrap_or(usize::MAX);
        self.at..self.at + left.min(self.chunk.len() - self.at)
    }

    /// Skips the bytes up to `end`, and passes them to `visit`.
    fn skip_to(&mut self, end: u64, visit: impl FnOnce(&[u8])) {
        let range = self.within(end);
        visit(&self.chunk[range.clone()]);
        self.at = range.end;
    }

    /// Returns the current value if complete: a slice of the chunk, for a value within a single chunk.
    fn take(&mut self, end: u64) -> Option<Bytes> {
        let range = self.within(end);
        self.at = range.end;
        // A value within a single chunk needs no copy.
        if self.offset() == end && self.partial.is_empty() {
            return Some(self.chunk.slice(range));
        }
        self.partial.extend_from_slice(&self.chunk[range]);
        (self.offset() == end).then(|| Bytes::from(std::mem::take(&mut self.partial)))
    }

    fn malformed(&self) -> FrameError {
        FrameError::Malformed { encoding: Encoding::Protobuf, offset: self.offset() }
    }
}

fn too_large() -> FrameError {
    FrameError::TooLarge { limit: MAX_MEMBER_BYTES as usize }
}
