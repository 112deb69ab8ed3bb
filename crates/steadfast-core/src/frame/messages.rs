//! Lists in protobuf: one message in its envelope, whose items are handed out as they arrive.

use bytes::Bytes;

use super::FrameError;
use super::item::Item;
use super::list::ListPart;
use super::overlong::Passing;
use crate::decode::{Encoding, list_meta_of_message, status_of_message};
use crate::protobuf::{Gist, Head, Heads, MARK, MessageId, Wire, types as read_types};

/// Cuts a list into its items.
///
/// [`feed`](Self::feed) it a chunk, take [`next`](Self::next) until there is none, feed it the next; at the body's end ask
/// [`finish`](Self::finish), before the list is believed. After an error it is done: it yields nothing more.
pub struct MessageFramer {
    limit: usize,
    chunk: Bytes,
    /// How much of the chunk has been looked at.
    at: usize,
    /// How much of the body came before the chunk.
    before: u64,
    state: State,
    heads: Heads,
    /// What chunks before had of the value that is under way.
    begun: Vec<u8>,
    /// The item that is under way, where it is longer than the limit.
    passing: Option<Box<Passing>>,
    kind: Option<String>,
    /// The items' message, once the envelope has said what the list is.
    items: Option<MessageId>,
    failed: Option<FrameError>,
}

/// The longest value beside the items, in bytes.
const MEMBER_LIMIT: u64 = 1 << 20;

/// What has to come next. Places are counted from the body's beginning.
#[derive(Clone, Copy)]
enum State {
    /// The mark.
    Mark,
    /// A field of the envelope.
    Envelope,
    /// What is in the envelope: its kind, to there.
    Types { end: u64 },
    /// A field of the list, which ends there.
    List { end: u64 },
    /// A value of the list that ends at `list`.
    Value { end: u64, list: u64, place: Place },
    /// A `Status` in place of the list.
    Status { end: u64 },
    /// A field of the envelope, after the list.
    After,
    /// What is of no interest; then that.
    Skipped { end: u64, then: Then },
}

/// What a value is to the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Meta,
    Item,
}

/// What comes after what is of no interest.
#[derive(Clone, Copy)]
enum Then {
    Envelope,
    After,
    List { end: u64 },
}

impl MessageFramer {
    /// A framer that holds items of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            chunk: Bytes::new(),
            at: 0,
            before: 0,
            state: State::Mark,
            heads: Heads::default(),
            begun: Vec::new(),
            passing: None,
            kind: None,
            items: None,
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
            (None, State::After) if self.heads.count() == 0 => Ok(()),
            (None, _) => {
                let held = (self.begun.len() + self.heads.count()) as u64;
                Err(FrameError::Truncated { bytes: self.passing.map_or(held, |passing| passing.bytes()) })
            }
        }
    }

    /// How many bytes the item under way has so far, reported once, when that is so many that it may have no end.
    pub fn endless(&mut self) -> Option<u64> {
        self.passing.as_mut().and_then(|passing| passing.endless())
    }

    /// How much of the body has been looked at.
    fn place(&self) -> u64 {
        self.before + self.at as u64
    }

    fn step(&mut self) -> Result<Option<ListPart>, FrameError> {
        loop {
            match self.state {
                State::List { end } if end == self.place() && self.heads.count() == 0 => {
                    self.state = State::After;
                    return Ok(Some(ListPart::End { kind: self.kind.take(), items: self.items.is_some() }));
                }
                State::Skipped { end, then } => {
                    self.pass(end, |_| ());
                    if end != self.place() {
                        return Ok(None);
                    }
                    self.state = match then {
                        Then::Envelope => State::Envelope,
                        Then::After => State::After,
                        Then::List { end } => State::List { end },
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
                    if self.chunk[self.at] != MARK[self.place() as usize] {
                        return Err(self.malformed());
                    }
                    self.at += 1;
                    if self.place() == MARK.len() as u64 {
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

    /// The next head, of a field of a message that ends at `end`; none where it has not come.
    fn head(&mut self, end: u64) -> Result<Option<Head>, FrameError> {
        let room = end - self.place() + self.heads.count() as u64;
        let (head, taken) = self.heads.next(&self.chunk[self.at..], room).map_err(|_| self.malformed())?;
        self.at += taken;
        Ok(head)
    }

    /// Begins a field of the envelope.
    fn envelope(&mut self, head: Head) -> Result<(), FrameError> {
        let after = matches!(self.state, State::After);
        let end = self.place().checked_add(head.length).ok_or_else(|| self.malformed())?;
        self.state = match head.number {
            // What it is has to come before what is of it, and once.
            1 | 2 if after || head.wire != Wire::Delimited => return Err(self.malformed()),
            1 if head.length > MEMBER_LIMIT => return Err(too_large()),
            1 => State::Types { end },
            2 => match self.kind.as_deref() {
                None => return Err(self.malformed()),
                Some("Status") if head.length > MEMBER_LIMIT => return Err(too_large()),
                Some("Status") => State::Status { end },
                Some(_) => State::List { end },
            },
            // An encoding of its own, as gzip: no server sets it.
            3 if head.length > 0 => return Err(self.malformed()),
            _ => State::Skipped { end, then: if after { Then::After } else { Then::Envelope } },
        };
        Ok(())
    }

    /// Takes in what the list says that it is.
    fn types(&mut self, types: &[u8]) -> Result<(), FrameError> {
        let (api_version, kind) = read_types(types).map_err(|_| self.malformed())?;
        self.items = MessageId::of_kind(&api_version, &kind).and_then(MessageId::items);
        self.kind = Some(kind.into_owned());
        Ok(())
    }

    /// Begins a field of the list that ends at `list`.
    fn field(&mut self, head: Head, list: u64) -> Result<(), FrameError> {
        let end = self.place() + head.length;
        let place = match (head.number, self.items) {
            (1 | 2, Some(_)) if head.wire != Wire::Delimited => return Err(self.malformed()),
            (1, Some(_)) => Place::Meta,
            (2, Some(_)) => Place::Item,
            // Of what is no list that is known nothing is; its kind says so.
            _ => {
                self.state = State::Skipped { end, then: Then::List { end: list } };
                return Ok(());
            }
        };
        if place == Place::Meta && head.length > MEMBER_LIMIT {
            return Err(too_large());
        }
        if place == Place::Item && head.length > self.limit as u64 {
            self.passing = Some(Box::new(Passing::new(self.limit, Gist::of_object(head.length), &[])));
        }
        self.state = State::Value { end, list, place };
        Ok(())
    }

    /// Takes the value under way, and makes of it what it is to the list; none where its end has not come.
    fn value(&mut self, end: u64, place: Place) -> Result<Option<ListPart>, FrameError> {
        if let Some(mut passing) = self.passing.take() {
            self.pass(end, |piece| passing.pass(piece));
            if end == self.place() {
                return Ok(Some(ListPart::Overlong(passing.end())));
            }
            self.passing = Some(passing);
            return Ok(None);
        }
        let Some(message) = self.take(end) else { return Ok(None) };
        if let (Place::Item, Some(id)) = (place, self.items) {
            return Ok(Some(ListPart::Item(Item::of_message(message, id))));
        }
        let meta = list_meta_of_message(&message).ok_or_else(|| self.malformed())?;
        Ok(Some(ListPart::Meta(meta)))
    }

    /// What there is in the chunk up to `end`.
    fn within(&self, end: u64) -> std::ops::Range<usize> {
        let left = usize::try_from(end - self.place()).unwrap_or(usize::MAX);
        self.at..self.at + left.min(self.chunk.len() - self.at)
    }

    /// Lets pass what there is up to `end`.
    fn pass(&mut self, end: u64, look: impl FnOnce(&[u8])) {
        let here = self.within(end);
        look(&self.chunk[here.clone()]);
        self.at = here.end;
    }

    /// The value under way, once its end is here: a slice of the chunk where it lies whole in it.
    fn take(&mut self, end: u64) -> Option<Bytes> {
        let here = self.within(end);
        self.at = here.end;
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
