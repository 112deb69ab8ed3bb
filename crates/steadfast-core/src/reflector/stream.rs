//! Facts about the watch, for the activities that run alongside it (probes, comparisons, moves).

use super::request::RequestId;

/// Identity and state of the reflector's watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) id: RequestId,
    /// Set after the head of the response.
    pub(super) is_open: bool,
}

/// Returns whether a watch exists and is open.
pub(super) fn is_open(stream: Option<Stream>) -> bool {
    stream.is_some_and(|stream| stream.is_open)
}
