//! Phase of a reflector, by the event for which it waits.

use super::delayed_action::DelayedAction;
use super::delta_list::DeltaList;
use super::epoch_probe::EpochProbe;
use super::list::List;
use super::list_plan::ListPlan;
use super::request::RequestId;
use super::stream::Stream;
use super::watch::Watch;
use crate::time::Instant;

/// Phase of a reflector. The table of [`reflector`](super) lists the end of each phase and the next phase.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    Idle,
    Waiting { until: Instant, then: DelayedAction, unreachable: bool },
    AwaitingTransfer(ListPlan),
    Listing(List),
    DeltaListing(DeltaList),
    ProbingEpoch(EpochProbe),
    Watching(Watch),
    Stopped,
}

impl Phase {
    /// Returns the facts about the watch that probes, comparisons and the other activities alongside the watch read.
    pub(super) fn stream(&self) -> Option<Stream> {
        match self {
            Self::Watching(watch) => Some(watch.stream()),
            _ => None,
        }
    }

    /// Returns whether `id` is the watch, or the list that becomes it.
    pub(super) fn is_watch(&self, id: RequestId) -> bool {
        match self {
            Self::Watching(watch) => watch.id == id,
            Self::Listing(list) => list.is_streamed && list.id == id,
            _ => false,
        }
    }

    /// Returns whether the server has responded to the current request.
    pub(super) fn has_response(&self) -> bool {
        match self {
            Self::Watching(watch) => watch.is_open(),
            Self::Listing(list) => list.has_head,
            Self::DeltaListing(list) => list.has_head,
            _ => false,
        }
    }
}
