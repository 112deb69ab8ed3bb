//! Metrics of the engine and the mirrors, for Prometheus.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType::{Counter, Gauge};
use prometheus_client::registry::Unit;
use steadfast_notify::{EngineStats, MirrorSinkStatus, MirrorState};

use super::cluster::{ClusterState, ClusterStatus};
use crate::metric_family::{Family, Sample, encode_family};

/// All values of the label `state`.
const STATE_NAMES: [&str; 6] = ["synced", "converging", "blocked", "needs approval", "uncertain", "standby"];

/// Returns the value of the label `state`.
pub(super) fn state_name(state: &MirrorState) -> &'static str {
    match state {
        MirrorState::Standby => "standby",
        MirrorState::Synced => "synced",
        MirrorState::Converging => "converging",
        MirrorState::Blocked(_) => "blocked",
        MirrorState::NeedsApproval(_) => "needs approval",
        MirrorState::Uncertain(_) => "uncertain",
    }
}

/// Snapshot of the state for one scrape.
#[derive(Debug)]
pub(super) struct NotifyMetrics {
    pub(super) stats: EngineStats,
    pub(super) mirrors: Vec<(String, MirrorSinkStatus)>,
    pub(super) clusters: Vec<ClusterStatus>,
    /// Restarts of supervised tasks, by their names.
    pub(super) restarts: BTreeMap<String, u64>,
    /// Leadership of this process; `None` without replicas.
    pub(super) is_leader: Option<bool>,
}

impl Collector for NotifyMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self { stats, mirrors, clusters, restarts, is_leader } = self;
        let mut write =
            |family: Family, samples: Vec<Sample>| encode_family(&mut encoder, "steadfast_notify", family, samples);
        let single_sample = |value: u64| vec![Sample { labels: Vec::new(), value: value as f64 }];
        write(("changes", None, "Changes that rules evaluated", Counter), single_sample(stats.changes))?;
        write(("messages", None, "Messages that rules created", Counter), single_sample(stats.messages))?;
        let help = "Changes whose message would have been unchanged";
        write(("unchanged", None, help, Counter), single_sample(stats.unchanged))?;
        let failed = stats
            .failed
            .iter()
            .map(|(rule, &value)| Sample { labels: vec![("rule", rule.clone())], value: value as f64 });
        write(("failed", None, "Changes for which a rule could not be evaluated", Counter), failed.collect())?;
        let per_sink = |value: fn(&steadfast_notify::SinkStats) -> f64| {
            let sinks = stats.sinks.iter();
            sinks
                .map(|(name, sink)| Sample { labels: vec![("sink", name.clone())], value: value(sink) })
                .collect::<Vec<_>>()
        };
        write(("delivered", None, "Messages that were delivered", Counter), per_sink(|sink| sink.delivered as f64))?;
        let help = "Messages that became dead letters";
        write(("dead_letters", None, help, Counter), per_sink(|sink| sink.dead_letters as f64))?;
        write(("waiting", None, "Messages that are not settled", Gauge), per_sink(|sink| sink.waiting as f64))?;
        let help = "Changes that wait because their namespace has reached its share of the sink's queue";
        write(
            ("throttled_changes", None, help, Gauge),
            per_sink(|sink| sink.throttled.values().sum::<usize>() as f64),
        )?;
        let help = "Changes that have waited because their namespace had reached its share of the sink's queue";
        write(("throttled", None, help, Counter), per_sink(|sink| sink.throttled_total as f64))?;
        let help = "Waiting time of the oldest message that is not settled; 0 without one";
        let oldest = per_sink(|sink| sink.oldest.map_or(0.0, |oldest| oldest.as_secs_f64()));
        write(("oldest_waiting", Some(Unit::Seconds), help, Gauge), oldest)?;
        let help = "Attempts to deliver messages that failed";
        write(("failed_attempts", None, help, Counter), per_sink(|sink| sink.failed_attempts as f64))?;
        let help = "Whether the last attempt of a sink failed";
        write(("sink_failing", None, help, Gauge), per_sink(|sink| f64::from(u8::from(sink.failing.is_some()))))?;
        let help = "Remaining time that a sink pauses because its receiver limits requests (HTTP 429)";
        let paused = per_sink(|sink| sink.paused.map_or(0.0, |paused| paused.as_secs_f64()));
        write(("sink_paused", Some(Unit::Seconds), help, Gauge), paused)?;
        let mirror_samples = |value: fn(&MirrorSinkStatus) -> f64| {
            let mirrors = mirrors.iter();
            mirrors
                .map(|(name, mirror)| Sample { labels: vec![("mirror", name.clone())], value: value(mirror) })
                .collect::<Vec<_>>()
        };
        let help = "Entries of a mirror in its target";
        write(("mirror_entries", None, help, Gauge), mirror_samples(|mirror| mirror.entries as f64))?;
        let help = "Whether the target matched at the last comparison";
        write(("mirror_settled", None, help, Gauge), mirror_samples(|mirror| f64::from(u8::from(mirror.is_settled))))?;
        let help = "Entries that differ and are skipped";
        write(("mirror_skipped_entries", None, help, Gauge), mirror_samples(|mirror| mirror.skipped as f64))?;
        let help = "Entries whose removal needs approval";
        write(
            ("mirror_entries_pending_approval", None, help, Gauge),
            mirror_samples(|mirror| mirror.entries_pending_approval as f64),
        )?;
        let help = "Whether the target cannot be read or written";
        write(
            ("mirror_failing", None, help, Gauge),
            mirror_samples(|mirror| f64::from(u8::from(mirror.failing.is_some()))),
        )?;
        let states = self.mirrors.iter().flat_map(|(mirror, status)| {
            let current_state = state_name(&status.state);
            // One sample per state, so that no series vanishes when the state changes.
            STATE_NAMES.map(|state| Sample {
                labels: vec![("mirror", mirror.clone()), ("state", state.to_owned())],
                value: f64::from(u8::from(state == current_state)),
            })
        });
        let help = "State of a mirror: 1 for the one that it is in";
        write(("mirror_state", None, help, Gauge), states.collect())?;
        let help = "Time since the last read of the target; infinite before the first read";
        // The age is infinite instead of absent, so that an alert on the age also fires if the first read never
        // succeeds.
        let last_read =
            mirror_samples(|mirror| mirror.last_read.map_or(f64::INFINITY, |elapsed| elapsed.as_secs_f64()));
        write(("mirror_last_read_age", Some(Unit::Seconds), help, Gauge), last_read)?;
        let cluster_samples = |value: fn(&ClusterStatus) -> f64| {
            let clusters = clusters.iter();
            clusters
                .map(|cluster| Sample { labels: vec![("cluster", cluster.name.clone())], value: value(cluster) })
                .collect::<Vec<_>>()
        };
        let help = "Time since a cluster could not be reached to attach its rules; 0 if it could";
        let unreachable = cluster_samples(|cluster| match &cluster.state {
            ClusterState::Unreachable { since, .. } => since.as_secs_f64(),
            _ => 0.0,
        });
        write(("cluster_unreachable", Some(Unit::Seconds), help, Gauge), unreachable)?;
        let help = "Whether all that rules watch in a cluster is attached";
        let attached = cluster_samples(|cluster| f64::from(u8::from(cluster.state == ClusterState::Watching)));
        write(("cluster_attached", None, help, Gauge), attached)?;
        let help = "Resources that rules name and a cluster does not serve";
        write(("missing_resources", None, help, Gauge), cluster_samples(|cluster| cluster.missing.len() as f64))?;
        let help = "Restarts of long-lived tasks that ended unexpectedly";
        let restarts =
            restarts.iter().map(|(task, &value)| Sample { labels: vec![("task", task.clone())], value: value as f64 });
        write(("task_restarts", None, help, Counter), restarts.collect())?;
        let help = "Whether this replica is the leader; absent without replicas";
        let leader =
            is_leader.iter().map(|is_leader| Sample { labels: Vec::new(), value: f64::from(u8::from(*is_leader)) });
        write(("leader", None, help, Gauge), leader.collect())
    }
}
