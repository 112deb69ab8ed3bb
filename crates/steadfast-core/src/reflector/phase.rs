//! Phases of a reflector.

use super::RequestId;
use super::delta::Delta;
use super::list_plan::ListPlan;
use crate::time::Instant;

/// Phase of a reflector. The table of [`reflector`](super) lists the end of each phase and the next phase.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    Idle,
    Waiting { until: Instant, then: Next, unreachable: bool },
    Queued(ListPlan),
    Listing { id: RequestId, plan: ListPlan, streamed: bool, sent: Instant, opened: bool, progress: Instant },
    DeltaListing(Delta),
    Deciding { id: RequestId, plan: ListPlan, deadline: Instant },
    Watching { id: RequestId, sent: Instant, opened: Option<Instant>, proven: bool },
    Stopped,
}

/// Action after a delay.
#[derive(Clone, Debug)]
pub(super) enum Next {
    Watch,
    List(ListPlan),
    Decide(ListPlan),
}
