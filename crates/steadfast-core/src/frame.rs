//! Bodies cut into records as they arrive, chunk by chunk, wherever the chunks are cut.
//!
//! A record that lies whole in one chunk is a slice of it; one that does not is put together once. What is held is never
//! more than one record, and never more of it than the limit: one that is longer passes, and is known by what was read of it
//! on the way ([`Overlong`]). What comes after it is read as ever.

mod by_encoding;
mod item;
mod lengths;
mod lines;
mod list;
mod messages;
mod overlong;

pub use by_encoding::{ItemFramer, StreamFramer};
pub use item::Item;
pub use lengths::LengthFramer;
pub use lines::{Line, LineFramer};
pub use list::{ListFramer, ListPart};
pub use messages::MessageFramer;
pub use overlong::Overlong;

use crate::decode::Encoding;
use crate::scan::Fault;

/// Why a body cannot be read on. It says where, never what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A list has a member beside its items that is longer than the limit.
    #[error("a member of the list is longer than the limit of {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The body ended inside a record or inside the list.
    #[error("the body ended early, {bytes} bytes into an unfinished record")]
    Truncated {
        /// How many bytes of the unfinished record there were.
        bytes: u64,
    },
    /// The body is not what it should be in its encoding.
    #[error("malformed {encoding} at byte {offset} of the body")]
    Malformed {
        /// The encoding.
        encoding: Encoding,
        /// Where in the body.
        offset: u64,
    },
}

impl FrameError {
    /// The fault of a text that begins at `offset` of the body.
    fn of(fault: Fault, offset: u64) -> Self {
        let Fault::Malformed { at } = fault;
        Self::Malformed { encoding: Encoding::Json, offset: offset + at as u64 }
    }
}
