//! What may be wrong with a record.

use super::encoding::Encoding;
use super::identity::PartialIdentity;
use crate::protobuf::wire;
use crate::record::RecordKind;
use crate::scan::Fault;

/// A record that cannot be understood, with what could be recognised of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{identity}: {problem}")]
pub struct RecordError {
    /// What happened to its object; none where that is unknown, and for a list's item.
    pub kind: Option<RecordKind>,
    /// Who its object is, as far as that is known.
    pub identity: Box<PartialIdentity>,
    /// What is wrong with it.
    pub problem: RecordProblem,
}

/// What is wrong with a record. It says where, never what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordProblem {
    /// It is not what it should be in its encoding.
    #[error("malformed {encoding} at byte {offset} of the record")]
    Malformed {
        /// The encoding.
        encoding: Encoding,
        /// Where in the record.
        offset: usize,
    },
    /// It is longer than the limit.
    #[error("{bytes} bytes, longer than the limit of {limit} bytes")]
    TooLarge {
        /// Its length, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: usize,
    },
    /// It has no `type`, or one that is not known.
    #[error("unknown type of watch record {name:?}")]
    UnknownType {
        /// The type, cut off where it is overlong; empty where there is none.
        name: String,
    },
    /// It has no `object`.
    #[error("a watch record without an object")]
    NoObject,
    /// Its object cannot be distinguished from others.
    #[error("an object without {missing}")]
    NoIdentity {
        /// The path that has no value.
        missing: &'static str,
    },
    /// Its object is none of those that were requested, but of another sort.
    #[error("a {told}, not the {wanted} that was requested")]
    OtherKind {
        /// What it says it is.
        told: String,
        /// What it was to be.
        wanted: String,
    },
}

impl From<Fault> for RecordProblem {
    fn from(fault: Fault) -> Self {
        let Fault::Malformed { at } = fault;
        Self::Malformed { encoding: Encoding::Json, offset: at }
    }
}

impl From<wire::Fault> for RecordProblem {
    fn from(fault: wire::Fault) -> Self {
        Self::Malformed { encoding: Encoding::Protobuf, offset: fault.at }
    }
}
