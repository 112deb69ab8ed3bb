//! What a reflector answers.

use super::{Note, Request, RequestId};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// What to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a request and feed its answer back.
    Send(RequestId, Request),
    /// Drop a request and its answer.
    Cancel(RequestId),
    /// Wait for a place for a full transfer, then say [`Input::TransferGranted`](super::Input::TransferGranted).
    AwaitTransfer,
    /// Give the place back, or stop waiting for it.
    ReleaseTransfer,
    /// Begin to stage a list.
    BeginStaging {
        /// Whether it is of another history, in which a version held may represent another state.
        anew: bool,
    },
    /// Forget what is staged.
    DropStaging,
    /// Put what is staged in the store's place.
    Commit {
        /// The collection's version.
        version: Option<ResourceVersion>,
        /// Whether it is the first list.
        initial: bool,
        /// Whether versions begin anew, so that lower ones are no step back.
        new_epoch: bool,
    },
    /// The store holds everything up to this version.
    Advance(ResourceVersion),
    /// Collect the identities that are listed from here on, to compare what is held with them.
    BeginComparison,
    /// Compare, and say [`Input::Judged`](super::Input::Judged) before anything else.
    JudgeComparison,
    /// Name what was found to differ.
    NameLost,
    /// Forget what was collected.
    EndComparison,
    /// Streamed lists are no good for this resource on this server: remember it for a while.
    RememberPages {
        /// Until when.
        until: Instant,
    },
    /// Metadata alone are not to be had of this resource on this server, to relist by: remember it for a while.
    RememberFull {
        /// Until when.
        until: Instant,
    },
    /// Something to tell.
    Note(Note),
}
