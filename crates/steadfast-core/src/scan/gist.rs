//! Who an object is, found in a text that is too long to be held: read once as it passes, in whatever pieces it comes.
//!
//! What is kept of it are the few strings that say who it is, each up to a limit. It finds what [`RecordScan`] and
//! [`ObjectScan`](super::ObjectScan) find of a text that lies whole in memory.

use std::borrow::Cow;

use super::object::{Metadata, ObjectScan, RecordScan};
use super::skim::{Fault, Skim};

/// The longest string that is kept, in bytes as it is written; a longer one is as good as none. Names and UIDs have a few
/// hundred bytes.
const LONGEST_KEPT: usize = 8 * 1024;

/// A text of which a part has passed.
pub(crate) struct Gist {
    /// The objects that are open and mean something, the outermost first: at most a record, its object, its metadata.
    open: Vec<Level>,
    state: State,
    /// The value that is under way, or the last one.
    skim: Skim,
    /// What is kept of it, should it be a string.
    text: Vec<u8>,
    /// The member under way.
    member: Member,
    /// The metadata under way.
    metadata: Metadata<'static>,
    /// Whether they have a namespace that cannot be read: the object's key is another's without it.
    astray: bool,
    found: RecordScan<'static>,
}

/// What an object that is open is to the text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Record,
    Object,
    Metadata,
}

/// What has to come next.
#[derive(Clone, Copy)]
enum State {
    /// The text's opening brace.
    Begin(Level),
    /// A member, or the object's end.
    FirstMember,
    /// A member.
    Name,
    /// The colon after a member's name.
    Colon,
    /// A member's value.
    Value,
    /// A comma, or the object's end.
    MemberEnd,
    /// The rest of a value.
    Inside(Place),
    /// Nothing that matters.
    Done,
}

/// What a value is to the object that is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Name,
    Kept,
    Skipped,
}

/// The members that mean something.
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

impl Gist {
    /// Of a watch's record.
    pub(crate) fn of_record() -> Self {
        Self::new(Level::Record)
    }

    /// Of an object.
    pub(crate) fn of_object() -> Self {
        Self::new(Level::Object)
    }

    fn new(level: Level) -> Self {
        Self {
            open: Vec::with_capacity(3),
            state: State::Begin(level),
            skim: Skim::Scalar,
            text: Vec::new(),
            member: Member::Other,
            metadata: Metadata::default(),
            astray: false,
            found: RecordScan::default(),
        }
    }

    /// Takes in the next piece. After a fault nothing more is learned; what was found before stays.
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

    /// What was found.
    pub(crate) fn end(self) -> RecordScan<'static> {
        self.found
    }

    /// Looks at the byte between two values, or at the first of one.
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
                metadata.name = metadata.name.filter(|_| !self.astray);
                self.found.object.metadata = metadata;
            }
            // Where it lies is no matter; that it ended is.
            Some(Level::Object) => self.found.object.span = Some(0..0),
            Some(Level::Record) | None => {}
        }
        if self.open.is_empty() { State::Done } else { State::MemberEnd }
    }

    fn begin(&mut self, first: u8, place: Place) -> Result<State, Fault> {
        self.skim = Skim::begin(first).ok_or(Fault::Malformed { at: 0 })?;
        self.text.clear();
        self.text.push(first);
        Ok(State::Inside(place))
    }

    /// Takes what `piece` has of the value under way; tells how much that is.
    fn rest_of_value(&mut self, place: Place, piece: &[u8]) -> Result<usize, Fault> {
        let end = self.skim.feed(piece)?;
        let taken = end.unwrap_or(piece.len());
        if place != Place::Skipped {
            let room = LONGEST_KEPT.saturating_sub(self.text.len());
            self.text.extend_from_slice(&piece[..taken.min(room)]);
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

    /// The string that ended; none where it is longer than any that is kept, or none after all.
    fn string(&self) -> Option<String> {
        serde_json::from_slice(&self.text).ok()
    }

    /// A member begins; as in `serde_json`, the last of several of one name counts.
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
                (self.metadata, self.astray) = (Metadata::default(), false);
            }
            Member::Namespace => {
                self.astray = false;
                self.set(None);
            }
            _ => self.set(None),
        }
    }

    fn kept(&mut self) {
        let read = self.string();
        self.astray |= self.member == Member::Namespace && read.is_none();
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
