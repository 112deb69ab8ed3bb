//! Errors of records.

use super::encoding::Encoding;
use super::identity::PartialIdentity;
use crate::protobuf::wire;
use crate::record::RecordKind;
use crate::scan::ScanError;

/// Error for a record that cannot be understood, with its recognized parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{identity}: {problem}")]
pub struct RecordError {
    /// Kind of the change; `None` if unknown, and for a list item.
    pub kind: Option<RecordKind>,
    /// Known parts of the object's identity.
    pub identity: Box<PartialIdentity>,
    /// Problem of the record.
    pub problem: RecordProblem,
}

/// Problem of a record: its position, without the content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordProblem {
    /// The record is not valid in its encoding.
    #[error("malformed {encoding} at byte {offset} of the record")]
    Malformed {
        /// Encoding of the record.
        encoding: Encoding,
        /// Offset in the record, in bytes.
        offset: usize,
    },
    /// The record exceeds the limit.
    #[error("{bytes} bytes, longer than the limit of {limit} bytes")]
    TooLarge {
        /// Length of the record in bytes.
        bytes: u64,
        /// Limit in bytes.
        limit: usize,
    },
    /// The record has no `type`, or an unknown one.
    #[error("unknown type of watch record {name:?}")]
    UnknownType {
        /// The type; overlong types are shortened, a missing type is empty.
        name: String,
    },
    /// The record has no `object`.
    #[error("a watch record without an object")]
    NoObject,
    /// The object cannot be distinguished from others.
    #[error("an object without {missing}")]
    NoIdentity {
        /// Path of the missing value.
        missing: &'static str,
    },
    /// The object has another kind than the requested one.
    #[error("a {found}, not the {wanted} that was requested")]
    OtherKind {
        /// Kind of the object.
        found: String,
        /// Requested kind.
        wanted: String,
    },
}

impl From<ScanError> for RecordProblem {
    fn from(fault: ScanError) -> Self {
        let ScanError::Malformed { at } = fault;
        Self::Malformed { encoding: Encoding::Json, offset: at }
    }
}

impl From<wire::WireError> for RecordProblem {
    fn from(fault: wire::WireError) -> Self {
        Self::Malformed { encoding: Encoding::Protobuf, offset: fault.at }
    }
}
