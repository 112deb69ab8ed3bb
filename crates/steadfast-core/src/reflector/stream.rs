//! The watch, as the activities alongside it see it.

use super::request::RequestId;

/// Watch of the reflector.
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
