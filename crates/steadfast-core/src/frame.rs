//! Bodies cut into records as they arrive, chunk by chunk, wherever the chunks are cut.
//!
//! A record that lies whole in one chunk is a slice of it; one that does not is put together once. What is held is never
//! more than one record, and a record is never longer than the limit.

mod lines;
mod list;

pub use lines::LineFramer;
pub use list::{ListFramer, ListPart};

use crate::scan::Fault;
use crate::scan::skim::MAX_DEPTH;

/// Why a body cannot be read on. It says where, never what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A record is longer than the limit.
    #[error("a record is longer than the limit of {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The body ended inside a record or inside the list.
    #[error("the body ended early, {bytes} bytes into an unfinished record")]
    Truncated {
        /// How many bytes of the unfinished record there were.
        bytes: usize,
    },
    /// The body is not the JSON it should be.
    #[error("malformed JSON at byte {offset} of the body")]
    Malformed {
        /// Where in the body.
        offset: u64,
    },
    /// A record is nested too deep.
    #[error("a record is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl FrameError {
    /// The fault of a text that begins at `offset` of the body.
    fn of(fault: Fault, offset: u64) -> Self {
        match fault {
            Fault::Malformed { at } => Self::Malformed { offset: offset + at as u64 },
            Fault::TooDeep => Self::TooDeep,
        }
    }
}
