//! Framer for lists in JSON. A list is a single document; the framer returns each item on arrival.

use std::fmt;

use bytes::Bytes;
use serde_json::Map;

use super::FrameError;
use super::item::Item;
use super::overlong::{Overlong, SkippedRecord};
use crate::decode;
use crate::record::{ListMeta, Status};
use crate::scan::{JsonIdentityScanner, ValueSkipper};

/// Part of a list, in the server's order.
#[derive(Clone, PartialEq, Eq)]
pub enum ListPart {
    /// Element of `items`.
    Item(Item),
    /// Element above the limit.
    Overlong(Overlong),
    /// The list's `metadata`. If several exist, the last counts.
    Meta(ListMeta),
    /// End of the list. The caller must check that the list has the requested kind.
    End {
        /// `kind` of the list, such as `PodList`.
        kind: Option<String>,
        /// Set if the document has `items`, including `null`. A document without `items` is not a list.
        items: bool,
    },
    /// The document is a `Status` and not a list. Earlier parts are invalid.
    Status(Status),
}

// Not derived: an item may be a Secret.
impl fmt::Debug for ListPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(item) => item.fmt(f),
            Self::Overlong(item) => item.fmt(f),
            Self::Meta(meta) => f.debug_tuple("Meta").field(meta).finish(),
            Self::End { kind, items } => f.debug_struct("End").field("kind", kind).field("items", items).finish(),
            Self::Status(status) => f.debug_tuple("Status").field(status).finish(),
        }
    }
}

/// Splits a list into its items, independent of the order of its members.
///
/// Pass a chunk to [`feed`](Self::feed), then call [`next`](Self::next) until it returns `None`, and repeat with the
/// next chunk. Call [`finish`](Self::finish) at the end of the body, before the list is used. After an error, no
/// further items follow.
pub struct ListFramer {
    limit: usize,
    chunk: Bytes,
    /// Read position in the chunk.
    at: usize,
    /// Length of the body before the chunk.
    chunk_offset: u64,
    state: State,
    /// Scanner of the current or last value.
    skipper: ValueSkipper,
    /// Number of bytes from the read position on that the scanner has already processed.
    scanned: usize,
    /// Bytes of the current value from earlier chunks.
    partial: Vec<u8>,
    /// The current item, if it exceeds the limit.
    skipped: Option<Box<SkippedRecord>>,
    /// Name of the current member.
    member: ListMember,
    seen_items: bool,
    kind: Option<String>,
    /// Members of a `Status`, in case the document is a `Status`.
    status: Map<String, serde_json::Value>,
    failed: Option<FrameError>,
}

/// Maximum length of members other than items, in bytes. Parsed values take many times their length.
const MAX_MEMBER_BYTES: usize = 1 << 20;

/// `kind` of the document that the server returns instead of a list.
const STATUS: &str = "Status";

/// Expected next token.
enum State {
    /// Opening brace of the document.
    Document,
    /// A member, or the end of the document.
    FirstMember,
    /// A member.
    Member,
    /// Colon after the name of a member.
    Colon,
    /// Value of a member.
    Value,
    /// A comma, or the end of the document.
    MemberEnd,
    /// An item, or the end of the items.
    FirstItem,
    /// An item.
    Item,
    /// A comma, or the end of the items.
    ItemEnd,
    /// Rest of a value.
    Inside(ValueRole),
    /// No further token.
    Done,
}

/// Role of a value in the list.
#[derive(Clone, Copy)]
enum ValueRole {
    Name,
    Value,
    Item,
}

/// Complete value.
enum CompleteValue {
    Complete(Bytes),
    /// Item above the limit.
    Overlong(Overlong),
}

/// Names of the relevant members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListMember {
    Items,
    Kind,
    Metadata,
    /// Member of a `Status`.
    Status(&'static str),
    Other,
}

impl ListMember {
    fn of(written: &[u8]) -> Self {
        // Even with every character escaped as `\u0000`, a relevant name stays below this length.
        if written.len() > 64 {
            return Self::Other;
        }
        let Ok(name) = serde_json::from_slice::<String>(written) else { return Self::Other };
        match name.as_str() {
            "items" => Self::Items,
            "kind" => Self::Kind,
            "metadata" => Self::Metadata,
            "message" => Self::Status("message"),
            "reason" => Self::Status("reason"),
            "code" => Self::Status("code"),
            "details" => Self::Status("details"),
            _ => Self::Other,
        }
    }
}

impl ListFramer {
    /// Creates a framer that holds items of at most `limit` bytes. The limit also applies to other members.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            chunk: Bytes::new(),
            at: 0,
            chunk_offset: 0,
            state: State::Document,
            skipper: ValueSkipper::Scalar,
            scanned: 0,
            partial: Vec::new(),
            skipped: None,
            member: ListMember::Other,
            seen_items: false,
            kind: None,
            status: Map::new(),
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
            // The position is uncertain after an error, so the rest of the response is ignored.
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
            (None, State::Done) => Ok(()),
            (None, _) => {
                let bytes = self.skipped.map_or(self.partial.len() as u64, |skipped| skipped.bytes());
                Err(FrameError::Truncated { bytes })
            }
        }
    }

    /// Returns the number of received bytes of the current item if they far exceed the limit; at most once per item.
    pub fn take_overlong_length(&mut self) -> Option<u64> {
        self.skipped.as_mut().and_then(|skipped| skipped.take_overlong_length())
    }

    fn step(&mut self) -> Result<Option<ListPart>, FrameError> {
        while self.at < self.chunk.len() {
            let part = match self.state {
                State::Inside(role) => match self.rest_of_value()? {
                    Some(value) => self.complete(role, value)?,
                    None => None,
                },
                _ => self.token()?,
            };
            if part.is_some() {
                return Ok(part);
            }
        }
        Ok(None)
    }

    /// Processes the byte between two values, or the first byte of a value.
    fn token(&mut self) -> Result<Option<ListPart>, FrameError> {
        let byte = self.chunk[self.at];
        let next = match (&self.state, byte) {
            (_, b' ' | b'\t' | b'\r' | b'\n') => {
                self.at += 1;
                return Ok(None);
            }
            (State::Document, b'{') => State::FirstMember,
            (State::FirstMember | State::MemberEnd, b'}') => {
                self.at += 1;
                self.state = State::Done;
                return Ok(Some(self.end()));
            }
            (State::FirstMember | State::Member, b'"') => return self.start(ValueRole::Name),
            (State::Colon, b':') => State::Value,
            (State::Value, b'[') if self.member == ListMember::Items => State::FirstItem,
            // Go encodes a nil slice as `null`, which is an empty list.
            (State::Value, _) if self.member != ListMember::Items || byte == b'n' => {
                return self.start(ValueRole::Value);
            }
            (State::MemberEnd, b',') => State::Member,
            (State::FirstItem | State::ItemEnd, b']') => State::MemberEnd,
            (State::FirstItem | State::Item, b'{') => return self.object(),
            (State::FirstItem | State::Item, _) => return self.start(ValueRole::Item),
            (State::ItemEnd, b',') => State::Item,
            _ => return Err(self.malformed()),
        };
        self.at += 1;
        self.state = next;
        Ok(None)
    }

    /// Reads the object at the current position if it is complete; otherwise starts it.
    fn object(&mut self) -> Result<Option<ListPart>, FrameError> {
        // Fast path: the item ends within the chunk, so a single pass finds its end and its
        // identity.
        let Some(item) = Item::scan_in_chunk(&self.chunk, self.at, self.limit) else {
            return self.start(ValueRole::Item);
        };
        self.at += item.len();
        self.state = State::ItemEnd;
        Ok(Some(ListPart::Item(item)))
    }

    /// Starts a value with the current byte.
    fn start(&mut self, role: ValueRole) -> Result<Option<ListPart>, FrameError> {
        self.skipper = ValueSkipper::start(self.chunk[self.at]).ok_or_else(|| self.malformed())?;
        self.scanned = 1;
        self.state = State::Inside(role);
        Ok(None)
    }

    /// Reads the rest of the current value; `None` if the chunk ends before the value.
    fn rest_of_value(&mut self) -> Result<Option<CompleteValue>, FrameError> {
        let from = self.at + std::mem::take(&mut self.scanned);
        let ends = self.skipper.feed(&self.chunk[from..]);
        let length = ends.map_err(|fault| FrameError::of(fault, self.chunk_offset + from as u64))?;
        let end = length.map_or(self.chunk.len(), |length| from + length);
        let range = self.at..end;
        let is_item = matches!(self.state, State::Inside(ValueRole::Item));
        let limit = if is_item { self.limit } else { self.limit.min(MAX_MEMBER_BYTES) };
        // An overlong item is skipped. An overlong member fails the list.
        if self.skipped.is_none() && self.partial.len() + range.len() > limit {
            if !is_item {
                return Err(FrameError::TooLarge { limit });
            }
            let partial = std::mem::take(&mut self.partial);
            self.skipped = Some(Box::new(SkippedRecord::new(limit, JsonIdentityScanner::of_object(), &partial)));
        }
        self.at = end;
        if let Some(skipped) = &mut self.skipped {
            skipped.pass(&self.chunk[range]);
            let ended_record = length.and_then(|_| self.skipped.take());
            return Ok(ended_record.map(|skipped| CompleteValue::Overlong(skipped.end())));
        }
        // A value within a single chunk needs no copy.
        if length.is_some() && self.partial.is_empty() {
            return Ok(Some(CompleteValue::Complete(self.chunk.slice(range))));
        }
        self.partial.extend_from_slice(&self.chunk[range]);
        Ok(length.map(|_| CompleteValue::Complete(Bytes::from(std::mem::take(&mut self.partial)))))
    }

    fn complete(&mut self, role: ValueRole, value: CompleteValue) -> Result<Option<ListPart>, FrameError> {
        let value = match value {
            CompleteValue::Complete(value) => value,
            CompleteValue::Overlong(item) => {
                self.state = State::ItemEnd;
                return Ok(Some(ListPart::Overlong(item)));
            }
        };
        match role {
            ValueRole::Name => {
                self.member = ListMember::of(&value);
                // Returned items cannot be revoked in favour of a second member of this name.
                if self.member == ListMember::Items && std::mem::replace(&mut self.seen_items, true) {
                    return Err(self.malformed());
                }
                self.state = State::Colon;
                Ok(None)
            }
            ValueRole::Value => {
                self.state = State::MemberEnd;
                self.member(&value)
            }
            ValueRole::Item => {
                self.state = State::ItemEnd;
                Ok(Some(ListPart::Item(value.into())))
            }
        }
    }

    fn member(&mut self, value: &[u8]) -> Result<Option<ListPart>, FrameError> {
        match self.member {
            ListMember::Items if value != b"null" => return Err(self.malformed()),
            ListMember::Items | ListMember::Other => {}
            ListMember::Kind => self.kind = serde_json::from_slice(value).ok(),
            ListMember::Metadata => {
                let meta = decode::list_meta(value).ok_or_else(|| self.malformed())?;
                // The metadata of a `Status` does not describe a list.
                return Ok((self.kind.as_deref() != Some(STATUS)).then_some(ListPart::Meta(meta)));
            }
            ListMember::Status(name) => {
                // A `Status` without the unreadable members still reports the failure.
                if let Ok(value) = serde_json::from_slice(value) {
                    self.status.insert(name.to_owned(), value);
                }
            }
        }
        Ok(None)
    }

    fn end(&mut self) -> ListPart {
        if self.kind.as_deref() == Some(STATUS) {
            return ListPart::Status(decode::status_of(&serde_json::Value::Object(std::mem::take(&mut self.status))));
        }
        ListPart::End { kind: self.kind.take(), items: self.seen_items }
    }

    fn malformed(&self) -> FrameError {
        FrameError::Malformed { encoding: decode::Encoding::Json, offset: self.chunk_offset + self.at as u64 }
    }
}
