//! Inputs of a reflector.

use std::sync::Arc;

use super::{ClusterMatch, Failure, RequestId};
use crate::record::{Identity, ListMeta};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Event that a reflector processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The informer starts.
    Start,
    /// The informer starts from a [checkpoint](super::Reflector::restore) of an earlier run.
    Restart(ClusterMatch),
    /// The time of [`Reflector::wake_at`](super::Reflector::wake_at) was reached.
    Tick,
    /// The requested permit for a full transfer is available.
    TransferGranted,
    /// The server is reachable again after a failure.
    Reachable,
    /// The head of a successful response arrived.
    Opened(RequestId),
    /// A list, or a page of it, is complete.
    ListEnded(RequestId, ListMeta),
    /// A probe returned the version of the collection. The last field is the time at which the probe was sent, perhaps
    /// by another informer.
    Probed(RequestId, Option<ResourceVersion>, Instant),
    /// The cache was compared with the listed identities ([`Output::CompareListed`](super::Output::CompareListed)).
    Compared(Differences),
    /// A list of metadata contains an object that the cache does not have in this version
    /// ([`RecordAction::StageUnchanged`](super::RecordAction::StageUnchanged)).
    Differs(RequestId, Identity),
    /// A list entry or record arrived that belongs to no identifiable object.
    Unidentified(RequestId, Arc<str>),
    /// A record of a stream contains an unknown state, although its version is below the cached one.
    Contradicted(RequestId, Arc<str>),
    /// The versions do not come from one counter. They are opaque from here on.
    VersionsUnordered,
    /// A stream reached its regular end.
    Ended(RequestId),
    /// The connection of a stream will end, or may be dead. The stream should move to another connection.
    ConnectionEnding(RequestId),
    /// The connection of a stream is healthy after all.
    ConnectionHealthy(RequestId),
    /// Reports whether the server responds to other requests on the connection of a silent stream, or of a watch
    /// without a response head (R2a).
    ResponsivenessChanged(RequestId, bool),
    /// A request failed, or its response ended early.
    Failed(RequestId, Failure),
    /// A caller needs to know whether the cache is current.
    SeekProof,
    /// The process did not run for some time, for example after `SIGSTOP` or a suspend of the machine. Unread records
    /// may be as old as this time.
    Frozen,
    /// The informer stops.
    Stop,
}

/// Result of a comparison. Objects cached at versions above the list's version are not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Number of objects that differ: missing on one side, or present in another version.
    pub count: usize,
    /// Cached and listed version of an object whose cached version is higher than the listed version. This is
    /// impossible within one history.
    pub backwards: Option<(ResourceVersion, ResourceVersion)>,
}
