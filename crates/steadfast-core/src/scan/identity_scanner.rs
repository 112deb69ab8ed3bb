//! Identity of an object in a text that is too long to be held. The text is read once, in pieces of any size.
//!
//! Only the strings of the identity are kept, each up to a limit. The result equals that of [`RecordScan`] and
//! [`ObjectScan`](super::ObjectScan) for a complete text.

use std::borrow::Cow;

use super::object::{Metadata, ObjectScan, RecordScan};
use super::value_skipper::{Fault, ValueSkipper};

/// Maximum length of a kept string, in encoded bytes. A longer one counts as missing. Names and UIDs have a few hundred
/// bytes.
const MAX_KEPT_BYTES: usize = 8 * 1024;

/// Scanner of a text that arrives in pieces.
pub(crate) struct IdentityScanner {
    /// Open relevant objects, the outermost first: at most a record, its object and its metadata.
    open: Vec<Level>,
    state: State,
    /// Scanner of the current or last value.
    skipper: ValueSkipper,
    /// Kept bytes of the current value, if it is a string.
    text: Vec<u8>,
    /// Current member.
    member: Member,
    /// Current metadata.
    metadata: Metadata<'static>,
    /// Set if the namespace cannot be read. A key without the namespace would denote another object.
    is_namespace_lost: bool,
    found: RecordScan<'static>,
}

/// Role of an open object in the text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Record,
    Object,
    Metadata,
}

/// Expected next token.
#[derive(Clone, Copy)]
enum State {
    /// Opening brace of the text.
    Begin(Level),
    /// A member, or the end of the object.
    FirstMember,
    /// A member.
    Name,
    /// Colon after the name of a member.
    Colon,
    /// Value of a member.
    Value,
    /// A comma, or the end of the object.
    MemberEnd,
    /// Rest of a value.
    Inside(Place),
    /// No further relevant token.
    Done,
}

/// Role of a value in its object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Name,
    Kept,
    Skipped,
}

/// Relevant members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Type,
    Object,
    ApiVersion,
    Kind,
    Metadata,
    Namespace,
    Name,
    Uid,
    Version,
    Other,
}

impl IdentityScanner {
    /// Creates a scanner for a record of a watch.
    pub(crate) fn of_record() -> Self {
        Self::new(Level::Record)
    }

    /// Creates a scanner for an object.
    pub(crate) fn of_object() -> Self {
        Self::new(Level::Object)
    }

    fn new(level: Level) -> Self {
        Self {
            open: Vec::with_capacity(3),
            state: State::Begin(level),
            skipper: ValueSkipper::Scalar,
            text: Vec::new(),
            member: Member::Other,
            metadata: Metadata::default(),
            is_namespace_lost: false,
            found: RecordScan::default(),
        }
    }

    /// Processes the next piece. After a fault, later pieces are ignored and earlier results stay.
    pub(crate) fn feed(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() && !matches!(self.state, State::Done) {
            let taken = match self.state {
                State::Inside(place) => self.rest_of_value(place, piece),
                _ => self.token(piece[0]).map(|()| 1),
            };
            let Ok(taken) = taken else {
                self.state = State::Done;
                return;
            };
            piece = &piece[taken..];
        }
    }

    /// Returns the result.
    pub(crate) fn end(self) -> RecordScan<'static> {
        self.found
    }

    /// Processes the byte between two values, or the first byte of a value.
    fn token(&mut self, byte: u8) -> Result<(), Fault> {
        self.state = match (self.state, byte) {
            (state, b' ' | b'\t' | b'\r' | b'\n') => state,
            (State::Begin(level), b'{') => self.enter(level),
            (State::FirstMember | State::MemberEnd, b'}') => self.leave(),
            (State::FirstMember | State::Name, b'"') => self.begin(byte, Place::Name)?,
            (State::Colon, b':') => State::Value,
            (State::Value, b'{') if self.member == Member::Object => self.enter(Level::Object),
            (State::Value, b'{') if self.member == Member::Metadata => self.enter(Level::Metadata),
            (State::Value, b'"') if self.member != Member::Other => self.begin(byte, Place::Kept)?,
            (State::Value, _) => self.begin(byte, Place::Skipped)?,
            (State::MemberEnd, b',') => State::Name,
            _ => return Err(Fault::Malformed { at: 0 }),
        };
        Ok(())
    }

    fn enter(&mut self, level: Level) -> State {
        self.open.push(level);
        State::FirstMember
    }

    fn leave(&mut self) -> State {
        match self.open.pop() {
            Some(Level::Metadata) => {
                let mut metadata = std::mem::take(&mut self.metadata);
                metadata.name = metadata.name.filter(|_| !self.is_namespace_lost);
                self.found.object.metadata = metadata;
            }
            // Only the end of the object matters, not its position.
            Some(Level::Object) => self.found.object.span = Some(0..0),
            Some(Level::Record) | None => {}
        }
        if self.open.is_empty() { State::Done } else { State::MemberEnd }
    }

    fn begin(&mut self, first: u8, place: Place) -> Result<State, Fault> {
        self.skipper = ValueSkipper::begin(first).ok_or(Fault::Malformed { at: 0 })?;
        self.text.clear();
        self.text.push(first);
        Ok(State::Inside(place))
    }

    /// Processes the part of the current value in `piece`; returns its length.
    fn rest_of_value(&mut self, place: Place, piece: &[u8]) -> Result<usize, Fault> {
        let end = self.skipper.feed(piece)?;
        let taken = end.unwrap_or(piece.len());
        if place != Place::Skipped {
            // A longer text is cut and then fails to parse, so the value counts as missing.
            let remaining = MAX_KEPT_BYTES.saturating_sub(self.text.len());
            self.text.extend_from_slice(&piece[..taken.min(remaining)]);
        }
        if end.is_some() {
            self.state = match place {
                Place::Name => {
                    self.name();
                    State::Colon
                }
                Place::Kept => {
                    self.kept();
                    State::MemberEnd
                }
                Place::Skipped => State::MemberEnd,
            };
        }
        Ok(taken)
    }

    /// Returns the complete string; `None` if it exceeds the limit or is not a string.
    fn string(&self) -> Option<String> {
        serde_json::from_slice(&self.text).ok()
    }

    /// Starts a member. As in `serde_json`, the last of several members with one name counts.
    fn name(&mut self) {
        let (level, name) = (self.open.last().copied(), self.string());
        self.member = match (level, name.as_deref().unwrap_or_default()) {
            (Some(Level::Record), "type") => Member::Type,
            (Some(Level::Record), "object") => Member::Object,
            (Some(Level::Object), "apiVersion") => Member::ApiVersion,
            (Some(Level::Object), "kind") => Member::Kind,
            (Some(Level::Object), "metadata") => Member::Metadata,
            (Some(Level::Metadata), "namespace") => Member::Namespace,
            (Some(Level::Metadata), "name") => Member::Name,
            (Some(Level::Metadata), "uid") => Member::Uid,
            (Some(Level::Metadata), "resourceVersion") => Member::Version,
            _ => Member::Other,
        };
        match self.member {
            Member::Object => self.found.object = ObjectScan::default(),
            Member::Metadata => {
                self.found.object.metadata = Metadata::default();
                (self.metadata, self.is_namespace_lost) = (Metadata::default(), false);
            }
            Member::Namespace => {
                self.is_namespace_lost = false;
                self.set(None);
            }
            _ => self.set(None),
        }
    }

    fn kept(&mut self) {
        let read = self.string();
        self.is_namespace_lost |= self.member == Member::Namespace && read.is_none();
        self.set(read.map(Cow::Owned));
    }

    fn set(&mut self, text: Option<Cow<'static, str>>) {
        match self.member {
            Member::Type => self.found.kind = text,
            Member::ApiVersion => self.found.object.api_version = text,
            Member::Kind => self.found.object.kind = text,
            Member::Namespace => self.metadata.namespace = text,
            Member::Name => self.metadata.name = text,
            Member::Uid => self.metadata.uid = text,
            Member::Version => self.metadata.version = text,
            Member::Object | Member::Metadata | Member::Other => {}
        }
    }
}
