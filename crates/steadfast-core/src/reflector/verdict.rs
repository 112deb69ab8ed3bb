//! What a reflector is asked of each record, and what it answers.

use super::Output;
use crate::record::{Bookmark, Identity, RecordKind, Status};

/// What a record of a stream says.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// An object's state.
    Object(RecordKind, &'a Identity),
    /// A version reached.
    Bookmark(&'a Bookmark),
    /// A refusal in the stream.
    Error(&'a Status),
}

/// What to do with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Apply the object to the store.
    Apply,
    /// Stage the object; a `DELETED` one is taken from what is staged.
    Stage,
    /// Stage what is held under its name, if it is of this UID in this version; if not, say
    /// [`Input::Differs`](super::Input::Differs) before anything else.
    Offer,
    /// Collect its identity, to compare what is held with it.
    Compare,
    /// Nothing: it says what is known.
    Skip,
    /// The same, if one counter gives the versions: it is not above what is held.
    Older {
        /// Whether this very stream has brought something above it before.
        unbroken: bool,
    },
    /// These.
    Do(Vec<Output>),
}
