//! What a mirror would do now, for who only wants to see it: nothing is done, and nothing is remembered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, timeout};

use crate::entry::{Step, Target, Wanted};
use crate::guard::Ask;
use crate::memory::Memory;
use crate::plan::{Draining, Kept, Now, plan};
use crate::settings::Settings;
use crate::work::told;

/// What a mirror would do now.
#[derive(Clone, Debug)]
pub struct Preview<V> {
    /// Its next steps. What serves is drained before it is removed, so that its removal is not among them.
    pub steps: Vec<Step<V>>,
    /// The same in the words of the target's own tool.
    pub words: Vec<String>,
    /// What would not be as it is wanted, and why.
    pub kept: BTreeMap<String, Kept>,
    /// The first of `asks`.
    pub ask: Option<Ask>,
    /// Removals that would need approval.
    pub asks: Vec<Ask>,
}

/// What the mirror of this name would do to have `target` as it is `wanted`, by what `memory` has of it.
///
/// # Errors
///
/// Where it cannot be seen what there is.
pub async fn preview<T: Target>(
    name: &str,
    target: &T,
    settings: &Settings,
    memory: &Memory,
    wanted: &Wanted<T::Value>,
) -> Result<Preview<T::Value>, Arc<str>> {
    let looked = timeout(settings.deadline, target.look()).await;
    let found = looked
        .map_err(|_| Arc::from(format!("no answer in {:?}", settings.deadline)))?
        .map_err(|error| told(&error))?;
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now = Now { unix, instant: Instant::now() };
    let (mut record, mut draining) = (memory.record(name), Draining::default());
    let settle = |values: &mut BTreeMap<String, T::Value>| target.settle(values);
    let planned = plan(wanted, &found, &settle, &settings.terms(), (&mut record, &mut draining), now);
    let steps: Vec<_> = planned.more.into_iter().chain(planned.less).collect();
    let words = if steps.is_empty() { Vec::new() } else { target.describe(&found, &steps) };
    Ok(Preview { steps, words, kept: planned.kept, ask: planned.asks.first().cloned(), asks: planned.asks })
}
