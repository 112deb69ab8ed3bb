//! Outputs of a reflector.

use super::{Diagnostic, Request, RequestId};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Actions, to be performed in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a request and pass its response back.
    Send(RequestId, Request),
    /// Cancel a request and drop its response.
    Cancel(RequestId),
    /// Wait for a permit for a full transfer, then pass [`Input::TransferGranted`](super::Input::TransferGranted).
    AwaitTransfer,
    /// Return the permit, or stop waiting for it.
    ReleaseTransfer,
    /// Start to stage a list.
    BeginStaging {
        /// Set for a list of another history, in which a cached version may denote another state.
        new_epoch: bool,
    },
    /// Drop the staged list.
    DropStaging,
    /// Replace the content of the store by the staged list.
    Commit {
        /// Version of the collection.
        version: Option<ResourceVersion>,
        /// Set for the first list.
        initial: bool,
        /// Set if the versions restart, so that lower versions are not a step back.
        new_epoch: bool,
    },
    /// Advance the store: it contains all changes up to this version.
    Advance(ResourceVersion),
    /// Collect the listed identities from here on, to compare the cache with them.
    BeginComparison,
    /// Compare, and pass [`Input::Compared`](super::Input::Compared) before any other input.
    CompareListed,
    /// Report the objects that differ.
    ReportDifferences,
    /// Drop the collected identities.
    EndComparison,
    /// Remember until a deadline that the server does not stream lists of this resource.
    RememberPages {
        /// Deadline.
        until: Instant,
    },
    /// Remember until a deadline that the server does not serve metadata of this resource for relists.
    RememberFull {
        /// Deadline.
        until: Instant,
    },
    /// Report a diagnostic.
    Diagnostic(Diagnostic),
}
