//! Content of records on the wire, before their objects are decoded.

use crate::key::ObjectKey;
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// Identity of an object with the version of one state.
// This order of the fields places the key where lookups read it first.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Key of the object.
    pub key: ObjectKey,
    /// UID, which distinguishes the object from earlier ones of the same name.
    pub uid: Uid,
    /// Version of this state.
    pub version: ResourceVersion,
}

/// Kind of a change in a watch record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// The object entered the scope of the watch.
    Added,
    /// The object changed within the scope.
    Modified,
    /// The object left the scope: it was deleted, or no longer matches.
    Deleted,
}

/// Bookmark: the stream contains all changes up to its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// Version that the stream has reached.
    pub version: ResourceVersion,
    /// Set for the bookmark that ends the initial events of a streamed list
    /// ([KEP-3157](https://github.com/kubernetes/enhancements/issues/3157)).
    pub initial_events_end: bool,
}

/// `Status` that the server returned instead of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// HTTP status code; 0 if the server provided none.
    pub code: u16,
    /// Machine-readable reason, such as `Expired`.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// Reasons of the causes, such as `ResourceVersionTooLarge`.
    pub causes: Vec<String>,
    /// Delay that the server requested, in seconds.
    pub retry_after_seconds: Option<u64>,
}

/// Metadata at the end of a list, or of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// Version of the collection; `None` if the server provided none.
    pub version: Option<ResourceVersion>,
    /// Token of the next page; `None` on the last page.
    pub continue_token: Option<String>,
}
