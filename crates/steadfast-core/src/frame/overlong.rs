//! Records above the limit: their bytes pass and are not held, but who they are about is read on the way (R8).

use std::fmt;

use crate::protobuf;
use crate::scan::{Gist, RecordScan};

/// So many times the limit a record may have before it is said that it has not ended yet.
const TOLD_AT: u64 = 16;

/// A record that is longer than the limit: what was learned of it while it passed.
#[derive(Clone, PartialEq, Eq)]
pub struct Overlong {
    limit: usize,
    bytes: u64,
    found: Box<RecordScan<'static>>,
}

impl Overlong {
    /// The limit, in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How long it was, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn found(&self) -> &RecordScan<'static> {
        &self.found
    }
}

// Who it is about is told by the error that it becomes.
impl fmt::Debug for Overlong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overlong({} bytes)", self.bytes)
    }
}

/// What learns who a record is about, by its encoding.
pub(super) enum Learner {
    Json(Gist),
    Protobuf(protobuf::Gist),
}

impl From<Gist> for Learner {
    fn from(gist: Gist) -> Self {
        Self::Json(gist)
    }
}

impl From<protobuf::Gist> for Learner {
    fn from(gist: protobuf::Gist) -> Self {
        Self::Protobuf(gist)
    }
}

impl Learner {
    fn feed(&mut self, piece: &[u8]) {
        match self {
            Self::Json(gist) => gist.feed(piece),
            Self::Protobuf(gist) => gist.feed(piece),
        }
    }

    fn end(self) -> RecordScan<'static> {
        match self {
            Self::Json(gist) => gist.end(),
            Self::Protobuf(gist) => gist.end(),
        }
    }
}

/// A record above the limit that is on its way.
pub(super) struct Passing {
    limit: usize,
    bytes: u64,
    gist: Learner,
    told: bool,
}

impl Passing {
    /// One that began with `begun`; `gist` learns who it is about.
    pub(super) fn new(limit: usize, gist: impl Into<Learner>, begun: &[u8]) -> Self {
        let mut passing = Self { limit, bytes: 0, gist: gist.into(), told: false };
        passing.pass(begun);
        passing
    }

    /// Takes in the next piece of it.
    pub(super) fn pass(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.gist.feed(piece);
    }

    /// How many bytes have passed.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// It has ended.
    pub(super) fn end(self) -> Overlong {
        Overlong { limit: self.limit, bytes: self.bytes, found: Box::new(self.gist.end()) }
    }

    /// How many bytes have passed, reported once, when that is far too many.
    pub(super) fn endless(&mut self) -> Option<u64> {
        let endless = self.bytes > (self.limit as u64).saturating_mul(TOLD_AT);
        (endless && !std::mem::replace(&mut self.told, true)).then_some(self.bytes)
    }
}
