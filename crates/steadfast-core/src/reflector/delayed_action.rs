//! Next action after a delay.

use super::list_plan::ListPlan;

/// Action after a delay.
#[derive(Clone, Debug)]
pub(super) enum DelayedAction {
    /// Watch from the version of the cache.
    Watch,
    /// Request a full transfer.
    List(ListPlan),
    /// Send the probe that distinguishes a lagging replica from another history.
    ProbeEpoch(ListPlan),
}
