//! Who an object is, learned while its protobuf passes that is too long to be held.

use std::borrow::Cow;

use super::envelope::MARK;
use super::heads::{Head, Heads};
use super::scan::{METADATA, numbers};
use super::text::plain;
use super::wire::{Fault, Wire};
use crate::scan::{Metadata, ObjectScan, RecordScan};

/// The longest text that is kept, in bytes.
const LONGEST_KEPT: u64 = 8 * 1024;

/// Learns from pieces, cut anywhere; what it holds has a bound.
pub(crate) struct Gist {
    /// The messages that are open, each with where it ends.
    open: Vec<(Level, u64)>,
    /// How much has passed.
    at: u64,
    heads: Heads,
    state: State,
    text: Vec<u8>,
    metadata: Metadata<'static>,
    /// Whether they have a namespace that was not kept: the object's key is another's without it.
    astray: bool,
    found: RecordScan<'static>,
}

/// What a message that is open is to the record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Record,
    Extension,
    /// The mark before an envelope, and that.
    Marked,
    Envelope,
    TypeMeta,
    Object,
    Metadata,
}

#[derive(Clone, Copy)]
enum State {
    /// A field comes next.
    Head,
    /// A text, which ends there.
    Text(Member, u64),
    /// What does not matter, to there.
    Skipped(u64),
    /// Nothing that matters.
    Done,
}

/// The texts that mean something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Type,
    Mark,
    ApiVersion,
    Kind,
    Name,
    Namespace,
    Uid,
    Version,
}

impl Gist {
    /// Of a watch's record of so many bytes.
    pub(crate) fn of_record(length: u64) -> Self {
        Self::new(Level::Record, length)
    }

    /// Of a list's item of so many bytes.
    pub(crate) fn of_object(length: u64) -> Self {
        Self::new(Level::Object, length)
    }

    fn new(level: Level, length: u64) -> Self {
        Self {
            open: vec![(level, length)],
            at: 0,
            heads: Heads::default(),
            state: State::Head,
            text: Vec::new(),
            metadata: Metadata::default(),
            astray: false,
            found: RecordScan::default(),
        }
    }

    /// Takes in the next piece. After a fault nothing more is learned; what was found before stays.
    pub(crate) fn feed(&mut self, mut piece: &[u8]) {
        while !matches!(self.state, State::Done) {
            self.close();
            if piece.is_empty() {
                return;
            }
            match self.step(piece) {
                Ok(taken) => {
                    self.at += taken as u64;
                    piece = &piece[taken..];
                }
                Err(_) => self.state = State::Done,
            }
        }
    }

    /// What was found.
    pub(crate) fn end(mut self) -> RecordScan<'static> {
        self.close();
        self.found
    }

    /// Ends what ends here.
    fn close(&mut self) {
        match self.state {
            State::Text(member, end) if end == self.at => self.keep(member),
            State::Skipped(end) if end == self.at => self.state = State::Head,
            _ => {}
        }
        while matches!(self.state, State::Head) && self.heads.count() == 0 {
            let Some(&(level, end)) = self.open.last() else {
                self.state = State::Done;
                return;
            };
            if end != self.at {
                return;
            }
            self.open.pop();
            match level {
                Level::Metadata => {
                    let mut metadata = std::mem::take(&mut self.metadata);
                    metadata.name = metadata.name.filter(|_| !self.astray);
                    self.found.object.metadata = metadata;
                }
                // Where it lies is no matter; that it ended is.
                Level::Object => self.found.object.span = Some(0..0),
                _ => {}
            }
        }
    }

    /// Takes in the beginning of `piece`; tells how much of it.
    fn step(&mut self, piece: &[u8]) -> Result<usize, Fault> {
        let within = |end: u64| usize::try_from(end - self.at).unwrap_or(usize::MAX).min(piece.len());
        match self.state {
            State::Text(_, end) => {
                let taken = within(end);
                self.text.extend_from_slice(&piece[..taken]);
                Ok(taken)
            }
            State::Skipped(end) => Ok(within(end)),
            State::Done => Ok(piece.len()),
            State::Head => {
                let Some(&(level, end)) = self.open.last() else { return Ok(piece.len()) };
                if level == Level::Marked {
                    self.begin(Member::Mark, MARK.len() as u64, end)?;
                    return Ok(0);
                }
                let room = end - self.at + self.heads.count() as u64;
                let (head, taken) = self.heads.next(piece, room)?;
                if let Some(head) = head {
                    self.field(level, head, self.at + taken as u64)?;
                }
                Ok(taken)
            }
        }
    }

    /// Begins the value of a field, which comes at `at`.
    fn field(&mut self, level: Level, head: Head, at: u64) -> Result<(), Fault> {
        let Head { number, wire, length } = head;
        let end = at + length;
        let inner = match (level, number) {
            (Level::Record, 2) => Some(Level::Extension),
            (Level::Extension, 1) => Some(Level::Marked),
            (Level::Envelope, 1) => Some(Level::TypeMeta),
            (Level::Envelope, 2) => Some(Level::Object),
            (Level::Object, METADATA) => Some(Level::Metadata),
            _ => None,
        };
        let member = match (level, number) {
            (Level::Record, 1) => Some(Member::Type),
            (Level::TypeMeta, 1) => Some(Member::ApiVersion),
            (Level::TypeMeta, 2) => Some(Member::Kind),
            (Level::Metadata, numbers::NAME) => Some(Member::Name),
            (Level::Metadata, numbers::NAMESPACE) => Some(Member::Namespace),
            (Level::Metadata, numbers::UID) => Some(Member::Uid),
            (Level::Metadata, numbers::VERSION) => Some(Member::Version),
            _ => None,
        };
        if (inner.is_some() || member.is_some()) && wire != Wire::Delimited {
            return Err(Fault { at: 0 });
        }
        if let Some(inner) = inner {
            if inner == Level::Metadata {
                (self.metadata, self.astray) = (Metadata::default(), false);
            }
            if inner == Level::Extension {
                self.found.object = ObjectScan::default();
            }
            self.open.push((inner, end));
            return Ok(());
        }
        match member {
            Some(member) if length <= LONGEST_KEPT => {
                self.text.clear();
                self.state = State::Text(member, end);
            }
            _ => {
                self.astray |= member == Some(Member::Namespace);
                self.state = State::Skipped(end);
            }
        }
        Ok(())
    }

    /// Begins a text of that length, which has to end before `end`.
    fn begin(&mut self, member: Member, length: u64, end: u64) -> Result<(), Fault> {
        if length > end - self.at {
            return Err(Fault { at: 0 });
        }
        self.text.clear();
        self.state = State::Text(member, self.at + length);
        Ok(())
    }

    /// The text of `member` has ended.
    fn keep(&mut self, member: Member) {
        self.state = State::Head;
        let text = Some(Cow::Owned(plain(&self.text).into_owned()));
        match member {
            Member::Mark if self.text != MARK => self.state = State::Done,
            Member::Mark => {
                if let Some((level, _)) = self.open.last_mut() {
                    *level = Level::Envelope;
                }
            }
            Member::Type => self.found.kind = text,
            Member::ApiVersion => self.found.object.api_version = text,
            Member::Kind => self.found.object.kind = text,
            Member::Name => self.metadata.name = text,
            Member::Namespace => self.metadata.namespace = text,
            Member::Uid => self.metadata.uid = text,
            Member::Version => self.metadata.version = text,
        }
    }
}
