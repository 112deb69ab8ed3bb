//! Records above the limit: their bytes are not held, but their identity is read while they pass (R8).

use std::fmt;

use crate::protobuf;
use crate::scan::{IdentityScanner, RecordScan};

/// Multiple of the limit at which an unfinished record is reported.
const TOLD_AT: u64 = 16;

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

// The identity is part of the error that is created from this value.
impl fmt::Debug for Overlong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overlong({} bytes)", self.bytes)
    }
}

/// Identity scanner, by encoding.
pub(super) enum Learner {
    Json(IdentityScanner),
    Protobuf(protobuf::IdentityScanner),
}

impl From<IdentityScanner> for Learner {
    fn from(scanner: IdentityScanner) -> Self {
        Self::Json(scanner)
    }
}

impl From<protobuf::IdentityScanner> for Learner {
    fn from(scanner: protobuf::IdentityScanner) -> Self {
        Self::Protobuf(scanner)
    }
}

impl Learner {
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
pub(super) struct Passing {
    limit: usize,
    bytes: u64,
    scanner: Learner,
    told: bool,
}

impl Passing {
    /// Creates the state for a record from its first bytes, `begun`. `scanner` finds the identity of the record.
    pub(super) fn new(limit: usize, scanner: impl Into<Learner>, begun: &[u8]) -> Self {
        let mut passing = Self { limit, bytes: 0, scanner: scanner.into(), told: false };
        passing.pass(begun);
        passing
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
    pub(super) fn endless(&mut self) -> Option<u64> {
        let endless = self.bytes > (self.limit as u64).saturating_mul(TOLD_AT);
        (endless && !std::mem::replace(&mut self.told, true)).then_some(self.bytes)
    }
}
