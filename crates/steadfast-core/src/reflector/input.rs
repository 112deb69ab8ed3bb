//! What a reflector is given.

use std::sync::Arc;

use super::{Begun, Failure, RequestId};
use crate::record::{Identity, ListMeta};
use crate::time::Instant;
use crate::version::ResourceVersion;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The informer begins.
    Start,
    /// The informer begins with what was [kept](super::Reflector::restore) in an earlier life of its program.
    Restart(Begun),
    /// The moment of [`Reflector::wake_at`](super::Reflector::wake_at) has come.
    Tick,
    /// There is a place for the full transfer that was requested.
    TransferGranted,
    /// The server was seen to answer after it did not.
    Reachable,
    /// The head of an answer came, and it is a good one.
    Opened(RequestId),
    /// A list, or a page of it, is complete.
    ListEnded(RequestId, ListMeta),
    /// A probe is answered with the collection's version; it was sent at that moment, perhaps for another informer.
    Probed(RequestId, Option<ResourceVersion>, Instant),
    /// What is held was compared with the identities listed ([`Output::JudgeComparison`](super::Output::JudgeComparison)).
    Judged(Differences),
    /// Metadata list an object that is not held so ([`Verdict::Offer`](super::Verdict::Offer)).
    Differs(RequestId, Identity),
    /// A list entry or record arrived that belongs to no object that can be named.
    Unidentified(RequestId, Arc<str>),
    /// A record of a stream says what is not known, though it is below the version that is held.
    Contradicted(RequestId, Arc<str>),
    /// It is known that one counter does not give the versions: they are opaque from here on.
    Disordered,
    /// A stream came to its regular end.
    Ended(RequestId),
    /// The connection of a stream is to end, or may be dead: the stream is to move to another one.
    Unsettled(RequestId),
    /// The connection of a stream is well after all.
    Settled(RequestId),
    /// Whether the server answers other requests on the connection of a stream that is silent, or of a watch that waits for
    /// the head of its answer (R2a).
    Answering(RequestId, bool),
    /// A request failed or its answer broke off.
    Failed(RequestId, Failure),
    /// Someone needs to know whether the cache has reached the present.
    SeekProof,
    /// The informer ends.
    Stop,
}

/// What a comparison found, as far as objects held at versions above that of the list are no matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// How many objects differ: absent on one side, or there in another version.
    pub count: usize,
    /// The versions held and listed of an object that is held in the higher one: impossible in one history.
    pub backwards: Option<(ResourceVersion, ResourceVersion)>,
}
