//! Identity of an object in a text that is too long to be held. The text is read once, in pieces of any size.
//!
//! Only the strings of the identity are kept, each up to a limit. The result equals that of [`RecordScan`] and
//! [`ObjectScan`](super::ObjectScan) for a complete text.

use std::borrow::Cow;

use super::object::{Metadata, ObjectScan, RecordScan};
use super::value_skipper::{ScanError, ValueSkipper};

/// Maximum length of a kept string, in encoded bytes. A longer one counts as missing. Names and UIDs have a few hundred
/// bytes.
const MAX_KEPT_BYTES: usize = 8 * 1024;

/// Scanner of a text that arrives in pieces.
pub(crate) struct JsonIdentityScanner {
    /// Open relevant objects, the outermost first: at most a record, its object and its metadata.
    open: Vec<ObjectLevel>,
    state: State,
    /// Scanner of the current or last value.
    skipper: ValueSkipper,
    /// Kept bytes of the current value, if it is a string.
    text: Vec<u8>,
    /// Current member.
    member: IdentityMember,
    /// Current metadata.
    metadata: Metadata<'static>,
    /// Set if the namespace cannot be read. A key without the namespace would denote another object.
    is_namespace_lost: bool,
    found: RecordScan<'static>,
}

/// Role of an open object in the text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ObjectLevel {
    Record,
    Object,
    Metadata,
}

/// Expected next token.
#[derive(Clone, Copy)]
enum State {
    /// Opening brace of the text.
    Begin(ObjectLevel),
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
    Inside(TextRole),
    /// No further relevant token.
    Done,
}

/// Role of a value in its object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextRole {
    Name,
    Kept,
    Skipped,
}

/// Relevant members.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IdentityMember {
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

impl JsonIdentityScanner {
    /// Creates a scanner for a record of a watch.
    pub(crate) fn of_record() -> Self {
        Self::new(ObjectLevel::Record)
    }

    /// Creates a scanner for an object.
    pub(crate) fn of_object() -> Self {
        Self::new(ObjectLevel::Object)
    }

    fn new(level: ObjectLevel) -> Self {
        Self {
            open: Vec::with_capacity(3),
            state: State::Begin(level),
            skipper: ValueSkipper::Scalar,
            text: Vec::new(),
            member: IdentityMember::Other,
            metadata: Metadata::default(),
            is_namespace_lost: false,
            found: RecordScan::default(),
        }
    }

    /// Processes the next piece. After a fault, later pieces are ignored and earlier results stay.
    pub(crate) fn feed(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() && !matches!(self.state, State::Done) {
            let taken = match self.state {
                State::Inside(role) => self.rest_of_value(role, piece),
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
    fn token(&mut self, byte: u8) -> Result<(), ScanError> {
        self.state = match (self.state, byte) {
            (state, b' ' | b'\t' | b'\r' | b'\n') => state,
            (State::Begin(level), b'{') => self.enter(level),
            (State::FirstMember | State::MemberEnd, b'}') => self.leave(),
            (State::FirstMember | State::Name, b'"') => self.start(byte, TextRole::Name)?,
            (State::Colon, b':') => State::Value,
            (State::Value, b'{') if self.member == IdentityMember::Object => self.enter(ObjectLevel::Object),
            (State::Value, b'{') if self.member == IdentityMember::Metadata => self.enter(ObjectLevel::Metadata),
            (State::Value, b'"') if self.member != IdentityMember::Other => self.start(byte, TextRole::Kept)?,
            (State::Value, _) => self.start(byte, TextRole::Skipped)?,
            (State::MemberEnd, b',') => State::Name,
            _ => return Err(ScanError::Malformed { at: 0 }),
        };
        Ok(())
    }

    fn enter(&mut self, level: ObjectLevel) -> State {
        self.open.push(level);
        State::FirstMember
    }

    fn leave(&mut self) -> State {
        match self.open.pop() {
            Some(ObjectLevel::Metadata) => {
                let mut metadata = std::mem::take(&mut self.metadata);
                metadata.name = metadata.name.filter(|_| !self.is_namespace_lost);
                self.found.object.metadata = metadata;
            }
            // Only the end of the object matters, not its position.
            Some(ObjectLevel::Object) => self.found.object.span = Some(0..0),
            Some(ObjectLevel::Record) | None => {}
        }
        if self.open.is_empty() { State::Done } else { State::MemberEnd }
    }

    fn start(&mut self, first: u8, role: TextRole) -> Result<State, ScanError> {
        self.skipper = ValueSkipper::start(first).ok_or(ScanError::Malformed { at: 0 })?;
        self.text.clear();
        self.text.push(first);
        Ok(State::Inside(role))
    }

    /// Processes the part of the current value in `piece`; returns its length.
    fn rest_of_value(&mut self, role: TextRole, piece: &[u8]) -> Result<usize, ScanError> {
        let end = self.skipper.feed(piece)?;
        let taken = end.unwrap_or(piece.len());
        if role != TextRole::Skipped {
            // A longer text is cut and then fails to parse, so the value counts as missing.
            let remaining = MAX_KEPT_BYTES.saturating_sub(self.text.len());
            self.text.extend_from_slice(&piece[..taken.min(remaining)]);
        }
        if end.is_some() {
            self.state = match role {
                TextRole::Name => {
                    self.name();
                    State::Colon
                }
                TextRole::Kept => {
                    self.kept();
                    State::MemberEnd
                }
                TextRole::Skipped => State::MemberEnd,
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
            (Some(ObjectLevel::Record), "type") => IdentityMember::Type,
            (Some(ObjectLevel::Record), "object") => IdentityMember::Object,
            (Some(ObjectLevel::Object), "apiVersion") => IdentityMember::ApiVersion,
            (Some(ObjectLevel::Object), "kind") => IdentityMember::Kind,
            (Some(ObjectLevel::Object), "metadata") => IdentityMember::Metadata,
            (Some(ObjectLevel::Metadata), "namespace") => IdentityMember::Namespace,
            (Some(ObjectLevel::Metadata), "name") => IdentityMember::Name,
            (Some(ObjectLevel::Metadata), "uid") => IdentityMember::Uid,
            (Some(ObjectLevel::Metadata), "resourceVersion") => IdentityMember::Version,
            _ => IdentityMember::Other,
        };
        match self.member {
            IdentityMember::Object => self.found.object = ObjectScan::default(),
            IdentityMember::Metadata => {
                self.found.object.metadata = Metadata::default();
                (self.metadata, self.is_namespace_lost) = (Metadata::default(), false);
            }
            IdentityMember::Namespace => {
                self.is_namespace_lost = false;
                self.set(None);
            }
            _ => self.set(None),
        }
    }

    fn kept(&mut self) {
        let read = self.string();
        self.is_namespace_lost |= self.member == IdentityMember::Namespace && read.is_none();
        self.set(read.map(Cow::Owned));
    }

    fn set(&mut self, text: Option<Cow<'static, str>>) {
        match self.member {
            IdentityMember::Type => self.found.kind = text,
            IdentityMember::ApiVersion => self.found.object.api_version = text,
            IdentityMember::Kind => self.found.object.kind = text,
            IdentityMember::Namespace => self.metadata.namespace = text,
            IdentityMember::Name => self.metadata.name = text,
            IdentityMember::Uid => self.metadata.uid = text,
            IdentityMember::Version => self.metadata.version = text,
            IdentityMember::Object | IdentityMember::Metadata | IdentityMember::Other => {}
        }
    }
}
