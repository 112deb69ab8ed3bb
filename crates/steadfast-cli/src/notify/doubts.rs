//! What rules look at, in doubt and fresh again, on standard error: what was sent before may not be all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::follow::Followed;
use crate::aside;

/// How often it is looked. A cache can go stale without anything happening.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A doubt that is over sooner than this was a healthy resume, and is not told.
const WORTH_TELLING: Duration = Duration::from_secs(1);

/// The doubts there are, by what they are about.
#[derive(Default)]
pub(super) struct Doubts(BTreeMap<String, (Instant, bool)>);

impl Doubts {
    /// Looks at all of `followed` and tells what has changed.
    pub(super) fn look(&mut self, followed: &[Followed]) {
        let now = Instant::now();
        let mut seen = BTreeSet::new();
        for Followed { source, informer, .. } in followed {
            let of = format!("{} of {}, {}", source.resource_name(), source.cluster, source.scope);
            let freshness = informer.freshness();
            if !seen.insert(of.clone()) {
                continue;
            }
            match (freshness.doubt(), self.0.get_mut(&of)) {
                (None, None) => {}
                (None, Some((since, told))) => {
                    if *told {
                        let lasted = now.duration_since(*since).as_secs_f64();
                        aside::say(format_args!("! {of}: fresh again after {lasted:.1} s"));
                    }
                    self.0.remove(&of);
                }
                (Some(_), None) => drop(self.0.insert(of, (now, false))),
                (Some(doubt), Some((since, told))) => {
                    if !*told && now.duration_since(*since) >= WORTH_TELLING {
                        *told = true;
                        aside::say(format_args!("! {of}: {}: {}", freshness.name(), doubt.why));
                    }
                }
            }
        }
        self.0.retain(|of, _| seen.contains(of));
    }
}
