//! Probe that distinguishes a lagging replica from another history (R5).

use super::cache_state::CacheState;
use super::delayed_action::DelayedAction;
use super::effect::{Effect, Effects};
use super::failure::Failure;
use super::list_plan::ListPlan;
use super::request::{Request, RequestId};
use super::requester::Requester;
use super::settings::ReflectorSettings;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Probe in flight, and the list that follows.
#[derive(Clone, Debug)]
pub(super) struct EpochProbe {
    pub(super) id: RequestId,
    pub(super) deadline: Instant,
    plan: ListPlan,
}

impl EpochProbe {
    /// Requests the probe at `now`. The list `plan` follows if the server only lags.
    pub(super) fn start(
        now: Instant,
        plan: ListPlan,
        settings: &ReflectorSettings,
        requester: &mut Requester,
    ) -> (Self, Request) {
        let epoch_probe = Self { id: requester.next_id(), plan, deadline: now + settings.probe_deadline };
        (epoch_probe, Request::Probe { since: now - settings.probe_deadline })
    }

    /// Handles the response to the probe that was sent at `sent`.
    pub(super) fn probed(&self, version: Option<ResourceVersion>, sent: Instant, cache: &CacheState) -> Effects {
        // A probe that was sent before the cache reached its version may return a lower version of the same history.
        let proof = version.filter(|_| cache.reached_at <= sent);
        match (cache.reached_version(), proof) {
            // A consistent read below the cached version proves another history. A read from a
            // cache would prove nothing.
            (Some(held), Some(proof)) if proof.is_older_than(held) => Effect::HistoryChanged(proof).into(),
            _ => Effect::RetryList(self.plan.clone()).into(),
        }
    }

    /// Handles a failed probe: sends another probe after a delay, or requests a list instead.
    pub(super) fn failed(&self, now: Instant, failure: &Failure, settings: &ReflectorSettings) -> Effects {
        let mut plan = self.plan.clone();
        // A list can replace the probe. The list is requested once per period, or if the server rejects probes.
        let prefers_list = failure.is_rejection() || plan.has_lagged_for(settings.period, now);
        let then = if prefers_list { DelayedAction::List(plan) } else { DelayedAction::ProbeEpoch(plan) };
        Effect::Wait { failure: failure.clone(), then }.into()
    }
}
