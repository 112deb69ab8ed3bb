//! Identity of an object in a protobuf message that is too long to be held in memory.

use std::borrow::Cow;

use super::envelope::MAGIC_PREFIX;
use super::field_header::{FieldHeader, FieldHeaderReader};
use super::scan::{METADATA, numbers};
use super::text::lossy_text;
use super::wire::{Wire, WireError};
use crate::scan::{Metadata, ObjectScan, RecordScan};

/// Maximum length of a kept text, in bytes.
const MAX_KEPT_BYTES: u64 = 8 * 1024;

/// Scanner for pieces of any size, with bounded memory.
pub(crate) struct MessageIdentityScanner {
    /// Open messages, each with its end.
    open: Vec<(MessageLevel, u64)>,
    /// Number of processed bytes.
    at: u64,
    headers: FieldHeaderReader,
    state: State,
    text: Vec<u8>,
    metadata: Metadata<'static>,
    /// Set if the namespace was not kept. A key without the namespace would denote another object.
    is_namespace_lost: bool,
    found: RecordScan<'static>,
}

/// Role of an open message in the record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageLevel {
    Record,
    Extension,
    /// The magic prefix and the envelope.
    Prefixed,
    Envelope,
    TypeMeta,
    Object,
    Metadata,
}

#[derive(Clone, Copy)]
enum State {
    /// A field header follows.
    FieldHeader,
    /// A text that ends at the offset.
    Text(IdentityText, u64),
    /// Irrelevant bytes up to the offset.
    Skipped(u64),
    /// No further relevant bytes.
    Done,
}

/// Relevant texts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IdentityText {
    Type,
    MagicPrefix,
    ApiVersion,
    Kind,
    Name,
    Namespace,
    Uid,
    Version,
}

impl MessageIdentityScanner {
    /// Creates a scanner for a watch record of `length` bytes.
    pub(crate) fn of_record(length: u64) -> Self {
        Self::new(MessageLevel::Record, length)
    }

    /// Creates a scanner for a list item of `length` bytes.
    pub(crate) fn of_object(length: u64) -> Self {
        Self::new(MessageLevel::Object, length)
    }

    fn new(level: MessageLevel, length: u64) -> Self {
        Self {
            open: vec![(level, length)],
            at: 0,
            headers: FieldHeaderReader::default(),
            state: State::FieldHeader,
            text: Vec::new(),
            metadata: Metadata::default(),
            is_namespace_lost: false,
            found: RecordScan::default(),
        }
    }

    /// Processes the next piece. After a fault, later pieces are ignored and earlier results stay.
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

    /// Returns the result.
    pub(crate) fn end(mut self) -> RecordScan<'static> {
        self.close();
        self.found
    }

    /// Closes the messages that end at the current offset.
    fn close(&mut self) {
        match self.state {
            State::Text(member, end) if end == self.at => self.keep(member),
            State::Skipped(end) if end == self.at => self.state = State::FieldHeader,
            _ => {}
        }
        while matches!(self.state, State::FieldHeader) && self.headers.count() == 0 {
            let Some(&(level, end)) = self.open.last() else {
                self.state = State::Done;
                return;
            };
            if end != self.at {
                return;
            }
            self.open.pop();
            match level {
                MessageLevel::Metadata => {
                    let mut metadata = std::mem::take(&mut self.metadata);
                    // A name without its namespace would denote another object.
                    metadata.name = metadata.name.filter(|_| !self.is_namespace_lost);
                    self.found.object.metadata = metadata;
                }
                // A span marks the object as complete. Callers do not use the position.
                MessageLevel::Object => self.found.object.span = Some(0..0),
                _ => {}
            }
        }
    }

    /// Processes the start of `piece`; returns the number of processed bytes.
    fn step(&mut self, piece: &[u8]) -> Result<usize, WireError> {
        let within = |end: u64| usize::try_from(end - self.at).unwrap_or(usize::MAX).min(piece.len());
        match self.state {
            State::Text(_, end) => {
                let taken = within(end);
                self.text.extend_from_slice(&piece[..taken]);
                Ok(taken)
            }
            State::Skipped(end) => Ok(within(end)),
            State::Done => Ok(piece.len()),
            State::FieldHeader => {
                let Some(&(level, end)) = self.open.last() else { return Ok(piece.len()) };
                if level == MessageLevel::Prefixed {
                    self.start(IdentityText::MagicPrefix, MAGIC_PREFIX.len() as u64, end)?;
                    return Ok(0);
                }
                let remaining = end - self.at + self.headers.count() as u64;
                let (header, taken) = self.headers.next(piece, remaining)?;
                if let Some(header) = header {
                    self.field(level, header, self.at + taken as u64)?;
                }
                Ok(taken)
            }
        }
    }

    /// Starts the value of a field at the offset `at`.
    fn field(&mut self, level: MessageLevel, header: FieldHeader, at: u64) -> Result<(), WireError> {
        let FieldHeader { number, wire, length } = header;
        let end = at + length;
        let inner = match (level, number) {
            (MessageLevel::Record, 2) => Some(MessageLevel::Extension),
            (MessageLevel::Extension, 1) => Some(MessageLevel::Prefixed),
            (MessageLevel::Envelope, 1) => Some(MessageLevel::TypeMeta),
            (MessageLevel::Envelope, 2) => Some(MessageLevel::Object),
            (MessageLevel::Object, METADATA) => Some(MessageLevel::Metadata),
            _ => None,
        };
        let member = match (level, number) {
            (MessageLevel::Record, 1) => Some(IdentityText::Type),
            (MessageLevel::TypeMeta, 1) => Some(IdentityText::ApiVersion),
            (MessageLevel::TypeMeta, 2) => Some(IdentityText::Kind),
            (MessageLevel::Metadata, numbers::NAME) => Some(IdentityText::Name),
            (MessageLevel::Metadata, numbers::NAMESPACE) => Some(IdentityText::Namespace),
            (MessageLevel::Metadata, numbers::UID) => Some(IdentityText::Uid),
            (MessageLevel::Metadata, numbers::VERSION) => Some(IdentityText::Version),
            _ => None,
        };
        if (inner.is_some() || member.is_some()) && wire != Wire::Delimited {
            return Err(WireError { at: 0 });
        }
        if let Some(inner) = inner {
            // For repeated metadata, the last occurrence counts.
            if inner == MessageLevel::Metadata {
                (self.metadata, self.is_namespace_lost) = (Metadata::default(), false);
            }
            if inner == MessageLevel::Extension {
                self.found.object = ObjectScan::default();
            }
            self.open.push((inner, end));
            return Ok(());
        }
        match member {
            Some(member) if length <= MAX_KEPT_BYTES => {
                self.text.clear();
                self.state = State::Text(member, end);
            }
            _ => {
                self.is_namespace_lost |= member == Some(IdentityText::Namespace);
                self.state = State::Skipped(end);
            }
        }
        Ok(())
    }

    /// Starts a text of `length` bytes, which must end before `end`.
    fn start(&mut self, member: IdentityText, length: u64, end: u64) -> Result<(), WireError> {
        if length > end - self.at {
            return Err(WireError { at: 0 });
        }
        self.text.clear();
        self.state = State::Text(member, self.at + length);
        Ok(())
    }

    /// Stores the complete text of `member`.
    fn keep(&mut self, member: IdentityText) {
        self.state = State::FieldHeader;
        let text = Some(Cow::Owned(lossy_text(&self.text).into_owned()));
        match member {
            IdentityText::MagicPrefix if self.text != MAGIC_PREFIX => self.state = State::Done,
            IdentityText::MagicPrefix => {
                if let Some((level, _)) = self.open.last_mut() {
                    *level = MessageLevel::Envelope;
                }
            }
            IdentityText::Type => self.found.kind = text,
            IdentityText::ApiVersion => self.found.object.api_version = text,
            IdentityText::Kind => self.found.object.kind = text,
            IdentityText::Name => self.metadata.name = text,
            IdentityText::Namespace => self.metadata.namespace = text,
            IdentityText::Uid => self.metadata.uid = text,
            IdentityText::Version => self.metadata.version = text,
        }
    }
}
