//! Freshness reports on standard error: caches of rules that become stale, and fresh again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::Cluster;
use super::follow::WatchedSource;
use crate::console;

/// Interval between checks. A cache can become stale without an event that would trigger a check.
pub(super) const FRESHNESS_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Shortest reported doubt. A shorter doubt is a regular reconnect.
const MIN_REPORTED_DOUBT: Duration = Duration::from_secs(1);

/// Start of each current doubt, and whether the doubt was reported, by the description of its source.
#[derive(Default)]
pub(super) struct FreshnessReporter(BTreeMap<String, (Instant, bool)>);

impl FreshnessReporter {
    /// Checks all watched sources of `clusters`, and reports changes of their freshness.
    pub(super) fn check(&mut self, clusters: &[Arc<Cluster>]) {
        let now = Instant::now();
        let (mut seen_names, mut freshness_by_source) = (BTreeSet::new(), Vec::new());
        for cluster in clusters {
            cluster.visit(|followed, _| {
                freshness_by_source.extend(followed.iter().map(|WatchedSource { source, informer, .. }| {
                    let source_name = format!("{} of {}, {}", source.resource_name(), source.cluster, source.scope);
                    (source_name, informer.freshness())
                }));
            });
        }
        // Reports are written without the lock of a cluster: standard error may block.
        for (source_name, freshness) in freshness_by_source {
            // Rules with equal sources share an informer, reported once.
            if !seen_names.insert(source_name.clone()) {
                continue;
            }
            match (freshness.doubt(), self.0.get_mut(&source_name)) {
                (None, None) => {}
                (None, Some((since, is_reported))) => {
                    if *is_reported {
                        let lasted = now.duration_since(*since).as_secs_f64();
                        console::report(format_args!("! {source_name}: fresh again after {lasted:.1} s"));
                    }
                    self.0.remove(&source_name);
                }
                (Some(_), None) => drop(self.0.insert(source_name, (now, false))),
                (Some(doubt), Some((since, is_reported))) => {
                    if !*is_reported && now.duration_since(*since) >= MIN_REPORTED_DOUBT {
                        *is_reported = true;
                        console::report(format_args!("! {source_name}: {}: {}", freshness.name(), doubt.reason));
                    }
                }
            }
        }
        // A source that a reload has removed must not report its end later.
        self.0.retain(|source_name, _| seen_names.contains(source_name));
    }
}
