//! List bodies: one JSON document whose items are handed out as they arrive.

use std::fmt;

use bytes::Bytes;
use serde_json::Map;

use super::FrameError;
use super::item::Item;
use super::overlong::{Overlong, Passing};
use crate::decode;
use crate::record::{ListMeta, Status};
use crate::scan::{Gist, Skim};

/// A part of a list, in the order in which the server wrote it.
#[derive(Clone, PartialEq, Eq)]
pub enum ListPart {
    /// An element of `items`.
    Item(Item),
    /// One that is longer than the limit.
    Overlong(Overlong),
    /// The list's `metadata`. The last counts, should there be several.
    Meta(ListMeta),
    /// The list is complete. Whether it is the one that was requested is for the requester to see.
    End {
        /// Its `kind`, as `PodList`.
        kind: Option<String>,
        /// Whether it has `items` at all, if only `null`: what has none is another document, and no empty list.
        items: bool,
    },
    /// The document was no list but a `Status`; whatever came before means nothing.
    Status(Status),
}

// By hand: an item may be a Secret.
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

/// Cuts a list into its items, in whatever order its members come.
///
/// [`feed`](Self::feed) it a chunk, take [`next`](Self::next) until there is none, feed it the next; at the body's end ask
/// [`finish`](Self::finish), before the list is believed. After an error it is done: it yields nothing more.
pub struct ListFramer {
    limit: usize,
    chunk: Bytes,
    /// How much of the chunk has been looked at.
    at: usize,
    /// How much of the body came before the chunk.
    before: u64,
    state: State,
    /// The value that is under way, or the last one.
    skim: Skim,
    /// How many bytes it has seen of what is here and beyond.
    skimmed: usize,
    /// What chunks before had of the value that is under way.
    begun: Vec<u8>,
    /// The item that is under way, where it is longer than the limit.
    passing: Option<Box<Passing>>,
    /// The name of the member under way.
    member: Name,
    seen_items: bool,
    kind: Option<String>,
    /// What a `Status` would be made of: its members, in case the document is one.
    status: Map<String, serde_json::Value>,
    failed: Option<FrameError>,
}

/// The longest other member, in bytes: what is parsed takes many times its length.
const MEMBER_LIMIT: usize = 1 << 20;

/// The `kind` of a document that is no list but the server's word on why there is none.
const STATUS: &str = "Status";

/// What has to come next.
enum State {
    /// The document's opening brace.
    Document,
    /// A member, or the document's end.
    FirstMember,
    /// A member.
    Member,
    /// The colon after a member's name.
    Colon,
    /// A member's value.
    Value,
    /// A comma, or the document's end.
    MemberEnd,
    /// An item, or the end of the items.
    FirstItem,
    /// An item.
    Item,
    /// A comma, or the end of the items.
    ItemEnd,
    /// The rest of a value.
    Inside(Place),
    /// Nothing more.
    Done,
}

/// What a value is to the list.
#[derive(Clone, Copy)]
enum Place {
    Name,
    Value,
    Item,
}

/// A value that has ended.
enum Value {
    Whole(Bytes),
    /// An item above the limit.
    Overlong(Overlong),
}

/// The names of the document's members that mean something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Items,
    Kind,
    Metadata,
    /// A member that a `Status` is made of.
    Status(&'static str),
    Other,
}

impl Name {
    fn of(written: &[u8]) -> Self {
        // A name that says one of ours is not longer than ours with every letter as `\u0000`.
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
    /// A framer that holds items of at most `limit` bytes; other members of a list may not be longer.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            chunk: Bytes::new(),
            at: 0,
            before: 0,
            state: State::Document,
            skim: Skim::Scalar,
            skimmed: 0,
            begun: Vec::new(),
            passing: None,
            member: Name::Other,
            seen_items: false,
            kind: None,
            status: Map::new(),
            failed: None,
        }
    }

    /// Takes the body's next chunk.
    ///
    /// # Panics
    ///
    /// If the chunk before has not been taken to its end: nothing here queues chunks.
    pub fn feed(&mut self, chunk: Bytes) {
        assert!(self.at == self.chunk.len(), "a chunk was fed before the one before it was used up");
        if self.failed.is_none() {
            self.before += self.chunk.len() as u64;
            self.chunk = chunk;
            self.at = 0;
        }
    }

    /// The next part; none where the chunk has no more.
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
    /// The error met before, or [`FrameError::Truncated`] where the list has no end.
    pub fn finish(self) -> Result<(), FrameError> {
        match (self.failed, self.state) {
            (Some(error), _) => Err(error),
            (None, State::Done) => Ok(()),
            (None, _) => {
                let bytes = self.passing.map_or(self.begun.len() as u64, |passing| passing.bytes());
                Err(FrameError::Truncated { bytes })
            }
        }
    }

    /// How many bytes the item under way has so far, reported once, when that is so many that it may have no end.
    pub fn endless(&mut self) -> Option<u64> {
        self.passing.as_mut().and_then(|passing| passing.endless())
    }

    fn step(&mut self) -> Result<Option<ListPart>, FrameError> {
        while self.at < self.chunk.len() {
            let part = match self.state {
                State::Inside(place) => match self.rest_of_value()? {
                    Some(value) => self.complete(place, value)?,
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

    /// Looks at the byte between two values.
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
            (State::FirstMember | State::Member, b'"') => return self.begin(Place::Name),
            (State::Colon, b':') => State::Value,
            (State::Value, b'[') if self.member == Name::Items => State::FirstItem,
            (State::Value, _) if self.member != Name::Items || byte == b'n' => return self.begin(Place::Value),
            (State::MemberEnd, b',') => State::Member,
            (State::FirstItem | State::ItemEnd, b']') => State::MemberEnd,
            (State::FirstItem | State::Item, b'{') => return self.object(),
            (State::FirstItem | State::Item, _) => return self.begin(Place::Item),
            (State::ItemEnd, b',') => State::Item,
            _ => return Err(self.malformed()),
        };
        self.at += 1;
        self.state = next;
        Ok(None)
    }

    /// Takes the object here whole, or begins it.
    fn object(&mut self) -> Result<Option<ListPart>, FrameError> {
        let Some(item) = Item::object(&self.chunk, self.at, self.limit) else { return self.begin(Place::Item) };
        self.at += item.len();
        self.state = State::ItemEnd;
        Ok(Some(ListPart::Item(item)))
    }

    /// Begins a value with the byte here.
    fn begin(&mut self, place: Place) -> Result<Option<ListPart>, FrameError> {
        self.skim = Skim::begin(self.chunk[self.at]).ok_or_else(|| self.malformed())?;
        self.skimmed = 1;
        self.state = State::Inside(place);
        Ok(None)
    }

    /// Takes the value under way, from here on; none where the chunk ends before it does.
    fn rest_of_value(&mut self) -> Result<Option<Value>, FrameError> {
        let from = self.at + std::mem::take(&mut self.skimmed);
        let ends = self.skim.feed(&self.chunk[from..]);
        let length = ends.map_err(|fault| FrameError::of(fault, self.before + from as u64))?;
        let end = length.map_or(self.chunk.len(), |length| from + length);
        let here = self.at..end;
        let item = matches!(self.state, State::Inside(Place::Item));
        let limit = if item { self.limit } else { self.limit.min(MEMBER_LIMIT) };
        if self.passing.is_none() && self.begun.len() + here.len() > limit {
            if !item {
                return Err(FrameError::TooLarge { limit });
            }
            let begun = std::mem::take(&mut self.begun);
            self.passing = Some(Box::new(Passing::new(limit, Gist::of_object(), &begun)));
        }
        self.at = end;
        if let Some(passing) = &mut self.passing {
            passing.pass(&self.chunk[here]);
            let ended = length.and_then(|_| self.passing.take());
            return Ok(ended.map(|passing| Value::Overlong(passing.end())));
        }
        if length.is_some() && self.begun.is_empty() {
            return Ok(Some(Value::Whole(self.chunk.slice(here))));
        }
        self.begun.extend_from_slice(&self.chunk[here]);
        Ok(length.map(|_| Value::Whole(Bytes::from(std::mem::take(&mut self.begun)))))
    }

    fn complete(&mut self, place: Place, value: Value) -> Result<Option<ListPart>, FrameError> {
        let value = match value {
            Value::Whole(value) => value,
            Value::Overlong(item) => {
                self.state = State::ItemEnd;
                return Ok(Some(ListPart::Overlong(item)));
            }
        };
        match place {
            Place::Name => {
                self.member = Name::of(&value);
                // Items once handed out cannot be taken back for others that come under the same name.
                if self.member == Name::Items && std::mem::replace(&mut self.seen_items, true) {
                    return Err(self.malformed());
                }
                self.state = State::Colon;
                Ok(None)
            }
            Place::Value => {
                self.state = State::MemberEnd;
                self.member(&value)
            }
            Place::Item => {
                self.state = State::ItemEnd;
                Ok(Some(ListPart::Item(value.into())))
            }
        }
    }

    fn member(&mut self, value: &[u8]) -> Result<Option<ListPart>, FrameError> {
        match self.member {
            Name::Items if value != b"null" => return Err(self.malformed()),
            Name::Items | Name::Other => {}
            Name::Kind => self.kind = serde_json::from_slice(value).ok(),
            Name::Metadata => {
                let meta = decode::list_meta(value).ok_or_else(|| self.malformed())?;
                return Ok((self.kind.as_deref() != Some(STATUS)).then_some(ListPart::Meta(meta)));
            }
            Name::Status(name) => {
                // A `Status` without what cannot be read says more than none.
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
        FrameError::Malformed { encoding: decode::Encoding::Json, offset: self.before + self.at as u64 }
    }
}
