//! The phases of a reflector.

use super::RequestId;
use super::delta::Delta;
use super::full::Full;
use crate::time::Instant;

/// Where a reflector is; the table of [`reflector`](super) says what ends each phase, and what follows.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    Idle,
    Waiting { until: Instant, then: Next, unreachable: bool },
    Queued(Full),
    Listing { id: RequestId, full: Full, streamed: bool, sent: Instant, opened: bool, progress: Instant },
    Sparing(Delta),
    Deciding { id: RequestId, full: Full, deadline: Instant },
    Watching { id: RequestId, sent: Instant, opened: Option<Instant>, proven: bool },
    Stopped,
}

/// What follows a wait.
#[derive(Clone, Debug)]
pub(super) enum Next {
    Watch,
    List(Full),
    Decide(Full),
}
