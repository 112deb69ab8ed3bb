//! What one record on the wire says, before anyone decodes the object in it.

use crate::key::ObjectKey;
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// Who an object is, and in which of its versions.
// In this order, so that the key lies where a search looks at it.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where it is found.
    pub key: ObjectKey,
    /// What makes it this object and not the one that had its name before.
    pub uid: Uid,
    /// The version of this state of it.
    pub version: ResourceVersion,
}

/// What a watch record says of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// The object entered the watch's scope.
    Added,
    /// The object changed within the scope.
    Modified,
    /// The object left the scope: deleted, or no longer selected.
    Deleted,
}

/// A bookmark: nothing up to its version is missing from the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// The version that the stream has reached.
    pub version: ResourceVersion,
    /// Whether it closes the initial events of a streamed list
    /// ([KEP-3157](https://github.com/kubernetes/enhancements/issues/3157)).
    pub initial_events_end: bool,
}

/// A `Status` that the server sent in place of what was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status code; 0 where the server gave none.
    pub code: u16,
    /// The machine-readable reason, as `Expired`.
    pub reason: String,
    /// The sentence for people.
    pub message: String,
    /// The reasons of its causes, as `ResourceVersionTooLarge`.
    pub causes: Vec<String>,
    /// How long the server asks us to wait, in seconds.
    pub retry_after_seconds: Option<u64>,
}

/// The end of a list, or of one page of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// The collection's version; none where the server gave none.
    pub version: Option<ResourceVersion>,
    /// What to ask for the next page with; none on the last.
    pub continue_token: Option<String>,
}
