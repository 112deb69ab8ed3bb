//! Input of a reflector for each record of a stream, and its decision.

use super::Output;
use crate::record::{Bookmark, Identity, RecordKind, Status};

/// Content of a stream's record.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// State of an object.
    Object(RecordKind, &'a Identity),
    /// Bookmark with a version.
    Bookmark(&'a Bookmark),
    /// Error status within the stream.
    Error(&'a Status),
}

/// Action for a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordAction {
    /// Apply the object to the store.
    Apply,
    /// Stage the object. A `DELETED` object is removed from the staged ones.
    Stage,
    /// Stage the cached object of this name, if it has this UID and version. Otherwise pass
    /// [`Input::Differs`](super::Input::Differs) before any other input.
    StageUnchanged,
    /// Collect the identity, to compare the cache with it.
    Compare,
    /// Ignore the record: the cache already has its state.
    Skip,
    /// The version of the record does not exceed the cached version. Ignore the record, provided that one counter
    /// assigns all versions.
    Older {
        /// Set if the same stream has delivered a higher version before.
        reached_higher: bool,
    },
    /// Perform these actions.
    Perform(Vec<Output>),
}
