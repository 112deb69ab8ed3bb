//! Records above the limit: their bytes are not buffered, but their identity is read as the bytes arrive (R8).

use std::fmt;

use crate::protobuf::MessageIdentityScanner;
use crate::scan::{JsonIdentityScanner, RecordScan};

/// Multiple of the limit at which an unfinished record is reported.
const REPORT_FACTOR: u64 = 16;

/// Record above the limit, with the identity found so far.
#[derive(Clone, PartialEq, Eq)]
pub struct Overlong {
    limit: usize,
    bytes: u64,
    found: Box<RecordScan<'static>>,
}

impl Overlong {
    /// Returns the limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the length of the record in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn found(&self) -> &RecordScan<'static> {
        &self.found
    }
}

// Not derived: the error that is created from this value already contains the identity.
impl fmt::Debug for Overlong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overlong({} bytes)", self.bytes)
    }
}

/// Identity scanner, by encoding.
pub(super) enum IdentityReader {
    Json(JsonIdentityScanner),
    Protobuf(MessageIdentityScanner),
}

impl From<JsonIdentityScanner> for IdentityReader {
    fn from(scanner: JsonIdentityScanner) -> Self {
        Self::Json(scanner)
    }
}

impl From<MessageIdentityScanner> for IdentityReader {
    fn from(scanner: MessageIdentityScanner) -> Self {
        Self::Protobuf(scanner)
    }
}

impl IdentityReader {
    fn feed(&mut self, piece: &[u8]) {
        match self {
            Self::Json(scanner) => scanner.feed(piece),
            Self::Protobuf(scanner) => scanner.feed(piece),
        }
    }

    fn end(self) -> RecordScan<'static> {
        match self {
            Self::Json(scanner) => scanner.end(),
            Self::Protobuf(scanner) => scanner.end(),
        }
    }
}

/// Record above the limit that has not ended.
pub(super) struct SkippedRecord {
    limit: usize,
    bytes: u64,
    scanner: IdentityReader,
    reported: bool,
}

impl SkippedRecord {
    /// Creates the state for a record from its first bytes, `partial`. `scanner` finds the identity of the record.
    pub(super) fn new(limit: usize, scanner: impl Into<IdentityReader>, partial: &[u8]) -> Self {
        let mut skipped = Self { limit, bytes: 0, scanner: scanner.into(), reported: false };
        skipped.pass(partial);
        skipped
    }

    /// Processes the next piece of the record.
    pub(super) fn pass(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.scanner.feed(piece);
    }

    /// Returns the number of processed bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the record.
    pub(super) fn end(self) -> Overlong {
        Overlong { limit: self.limit, bytes: self.bytes, found: Box::new(self.scanner.end()) }
    }

    /// Returns the number of processed bytes if they far exceed the limit; at most once per record.
    pub(super) fn take_overlong_length(&mut self) -> Option<u64> {
        let is_overlong = self.bytes > (self.limit as u64).saturating_mul(REPORT_FACTOR);
        (is_overlong && !std::mem::replace(&mut self.reported, true)).then_some(self.bytes)
    }
}
