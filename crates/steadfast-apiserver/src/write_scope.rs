//! Part of an object that a write changes, and the manager of the written fields.

/// Part of an object that a write can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteScope {
    /// The whole object, for writes that bypass the API.
    Whole,
    /// The object without its status, if the status is a subresource.
    Main,
    /// Only the status.
    Status,
}

/// Manager of a write.
#[derive(Clone, Debug)]
pub(crate) struct FieldManager {
    pub(crate) name: String,
    /// Subresource of the write, such as `scale`; empty for the object itself. Ignored for `WriteScope::Status`, which
    /// always means the subresource `status`.
    pub(crate) subresource: &'static str,
    /// True if conflicts transfer the fields instead of rejecting the apply.
    pub(crate) force: bool,
}
