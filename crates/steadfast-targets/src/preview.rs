//! Preview of a mirror's next steps, without changing anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, timeout};

use crate::entry::{DesiredState, Step, Target};
use crate::guard::ApprovalRequest;
use crate::mirror_memory::MirrorMemory;
use crate::mirror_task::error_chain;
use crate::plan::{DrainState, PlanTime, SkipReason, plan};
use crate::settings::MirrorSettings;

/// Next steps of a mirror.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Preview<V> {
    /// Next steps. A serving entry is drained first, so its removal is missing here.
    pub steps: Vec<Step<V>>,
    /// Commands of the target's own tool for these steps.
    pub commands: Vec<String>,
    /// Skipped entries, each with the reason.
    pub skipped: BTreeMap<String, SkipReason>,
    /// First element of `approvals`, if any.
    pub first_approval: Option<ApprovalRequest>,
    /// Removals that would need approval.
    pub approvals: Vec<ApprovalRequest>,
}

/// Returns the steps that the mirror `name` would apply to reach `desired`, based on its state in `memory`.
///
/// # Errors
///
/// Returns an error if the target cannot be read within the deadline.
pub async fn preview<T: Target>(
    name: &str,
    target: &T,
    settings: &MirrorSettings,
    memory: &MirrorMemory,
    desired: &DesiredState<T::Value>,
) -> Result<Preview<T::Value>, Arc<str>> {
    let read = timeout(settings.deadline, target.read()).await;
    let found = read
        .map_err(|_| Arc::from(format!("no response within {:?}", settings.deadline)))?
        .map_err(|error| error_chain(&error))?;
    let unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now = PlanTime { unix_seconds, instant: Instant::now() };
    let (mut record, mut draining) = (memory.record(name), DrainState::default());
    let validate = |values: &mut BTreeMap<String, T::Value>| target.validate(values);
    let planned = plan(desired, &found, &validate, &settings.plan_settings(), (&mut record, &mut draining), now);
    let steps: Vec<_> = planned.additions.into_iter().chain(planned.removals).collect();
    let commands = if steps.is_empty() { Vec::new() } else { target.describe(&found, &steps) };
    Ok(Preview {
        steps,
        commands,
        skipped: planned.skipped,
        first_approval: planned.approvals.first().cloned(),
        approvals: planned.approvals,
    })
}
