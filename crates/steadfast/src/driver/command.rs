//! Commands from an informer's handles to its driver.

use steadfast_core::decode::DecodeError;
use steadfast_core::{Instant, ResourceVersion};
use tokio::sync::oneshot;

/// Commands from an informer's handles to its driver.
pub(crate) enum Command {
    /// Request a proof of freshness.
    SeekProof,
    /// Request the server's current version, unless a request was sent since the given time.
    Newest(Instant, oneshot::Sender<Option<ResourceVersion>>),
    /// Process newly added handlers.
    Handlers,
    /// Record that a cached object failed to decode on a read.
    UndecodableRead(DecodeError),
    /// Schedule the drop of decoded forms that readers made.
    Decoded,
    /// Stop the watch. If `handlers` is true, the handlers end immediately; otherwise they continue with their queues.
    Stop { handlers: bool },
}
