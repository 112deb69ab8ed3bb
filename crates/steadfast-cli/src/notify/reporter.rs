//! Status of the program, for monitoring and for the command `status`: rules, sources, sinks and mirrors.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use hyper::StatusCode;
use kube::core::DynamicObject;
use parking_lot::{Mutex, MutexGuard};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use steadfast::metrics::Metrics;
use steadfast::{Informer, Lazy};
use steadfast_notify::engine_event::escaped;
use steadfast_notify::{Engine, MirrorSinkStatus, MirrorState, SettledVersions, Supervisor};

use super::cluster::{Cluster, ClusterState, ClusterStatus};
use super::connections::MissingResource;
use super::follow::WatchedSource;
use super::metrics::{NotifyMetrics, state_name};
use super::page;
use super::replicas::Role;
use super::shared::Progress;
use crate::endpoint::StatusSource;

/// Function that returns the current status of a mirror.
pub(super) type MirrorStatusFn = Box<dyn Fn() -> MirrorSinkStatus + Send + Sync>;

/// State of the program, for reports. Cheap to clone.
#[derive(Clone)]
pub(super) struct StatusReporter {
    components: Arc<Mutex<Option<Components>>>,
    supervisor: Supervisor,
}

/// The running parts of the program.
pub(super) struct Components {
    pub(super) engine: Engine,
    pub(super) clusters: Vec<Arc<Cluster>>,
    pub(super) mirrors: Vec<(String, MirrorStatusFn)>,
    /// Function that returns the role of this process. Absent without replicas.
    pub(super) role: Option<Arc<dyn Fn() -> Role + Send + Sync>>,
}

/// A watched source of a rule.
pub(super) struct SourceReport {
    rule: String,
    description: String,
    informer: Informer<Lazy<DynamicObject>>,
}

impl From<&WatchedSource> for SourceReport {
    fn from(WatchedSource { source, informer, .. }: &WatchedSource) -> Self {
        let description = format!("{} of {}, {}", source.resource_name(), source.cluster, source.scope);
        Self { rule: source.rule.clone(), description, informer: informer.clone() }
    }
}

impl SourceReport {
    /// Returns the state of the cache and the reason; `None` if the cache is synced and fresh.
    fn doubt(&self) -> Option<(&'static str, String)> {
        let freshness = self.informer.freshness();
        let reason = freshness.doubt().map(|doubt| doubt.reason.to_string());
        // A cache before its first list may have no doubt yet, but its contents are incomplete.
        let reason = reason.or_else(|| (!self.informer.has_synced()).then(|| "it was not listed yet".to_owned()))?;
        Some((freshness.name(), reason))
    }
}

impl StatusReporter {
    pub(super) fn new(supervisor: &Supervisor) -> Self {
        Self { components: Arc::default(), supervisor: supervisor.clone() }
    }

    /// Replaces the running parts after a start or a reload.
    pub(super) fn set_components(&self, components: Components) {
        *self.components() = Some(components);
    }

    /// Returns the watched clusters of the configuration, including clusters that are not connected yet.
    pub(super) fn clusters(&self) -> Vec<Arc<Cluster>> {
        self.components().as_ref().map(|components| components.clusters.clone()).unwrap_or_default()
    }

    /// Returns the settled and the reached versions, and a counter that increases with each evaluated change and each
    /// finished message.
    pub(super) fn progress(&self) -> Progress {
        let stats = self.components().as_ref().map(|components| components.engine.stats()).unwrap_or_default();
        // A message is finished once it is delivered or a dead letter. If the sum has changed, the leader publishes its
        // progress at once instead of after up to ten seconds.
        let finished_messages = stats.sinks.values().map(|sink| sink.delivered.saturating_add(sink.dead_letters));
        let activity = finished_messages.fold(stats.changes, u64::saturating_add);
        let (mut settled, mut reached) = (SettledVersions::new(), SettledVersions::new());
        let mut unrecorded_rules = BTreeSet::new();
        for cluster in self.clusters() {
            cluster.visit(|followed, _| {
                settled.extend(followed.iter().flat_map(WatchedSource::settled_progress));
                reached.extend(followed.iter().flat_map(WatchedSource::reached_versions));
                let unrecorded_sources = followed.iter().filter(|watched| watched.is_unrecorded());
                unrecorded_rules.extend(unrecorded_sources.map(|watched| watched.source.rule.clone()));
            });
        }
        Progress { settled, reached, activity, unrecorded_rules }
    }

    fn components(&self) -> MutexGuard<'_, Option<Components>> {
        self.components.lock()
    }
}

/// Returns the watched sources of all `clusters`.
fn source_reports(clusters: &[Arc<Cluster>]) -> Vec<SourceReport> {
    let mut sources = Vec::new();
    for cluster in clusters {
        cluster.visit(|followed, _| sources.extend(followed.iter().map(SourceReport::from)));
    }
    sources
}

impl StatusSource for StatusReporter {
    /// Queries only the supervisor, which holds its lock just for a copy. A blocked part of the program cannot delay
    /// the response.
    fn liveness(&self) -> Result<(), String> {
        let unhealthy = self.supervisor.unhealthy();
        if unhealthy.is_empty() {
            return Ok(());
        }
        let lines = unhealthy.iter().map(|(task, reason)| format!("task {task} ends repeatedly: {reason}\n"));
        Err(lines.collect())
    }

    fn readiness(&self) -> (StatusCode, String) {
        let components = self.components();
        let Some(components) = &*components else {
            return (StatusCode::SERVICE_UNAVAILABLE, "starting\n".to_owned());
        };
        let mut text = String::new();
        for source in source_reports(&components.clusters) {
            if let Some((state, reason)) = source.doubt() {
                let _ = writeln!(text, "rule {}: {}: {state}: {reason}", source.rule, source.description);
            }
        }
        for ClusterStatus { name, state, missing } in components.clusters.iter().map(|cluster| cluster.status()) {
            match &state {
                ClusterState::Unreachable { reason, since } => {
                    let (reason, seconds) = (escaped(reason), since.as_secs_f64());
                    let _ = writeln!(text, "cluster {name}: unreachable for {seconds:.1} s: {reason}");
                }
                ClusterState::Connecting => {
                    let _ = writeln!(text, "cluster {name}: connecting: it has not responded yet");
                }
                ClusterState::Incomplete | ClusterState::Watching => {}
            }
            for MissingResource { rule, resource, problem } in missing {
                let _ = writeln!(text, "rule {rule}: {resource} of {name}: missing: {}", escaped(&problem.description));
            }
        }
        for (name, read_status) in &components.mirrors {
            let status = read_status();
            // A standby does not read its target, so a missing read is not a failure.
            let is_standby = status.state == MirrorState::Standby;
            if !is_standby && (status.failing.is_some() || status.last_read.is_none()) {
                let _ = writeln!(text, "mirror {name}: {}", escaped(&status.state.to_string()));
            }
        }
        if text.is_empty() { (StatusCode::OK, "fresh\n".to_owned()) } else { (StatusCode::SERVICE_UNAVAILABLE, text) }
    }

    fn register(&self, registry: &mut Registry) {
        if let Some(components) = &*self.components() {
            let connections: Vec<_> = components.clusters.iter().filter_map(|cluster| cluster.connection()).collect();
            registry.register_collector(Box::new(Metrics::new(&connections)));
            registry.register_collector(Box::new(NotifyMetrics {
                stats: components.engine.stats(),
                mirrors: components.mirrors.iter().map(|(name, read_status)| (name.clone(), read_status())).collect(),
                clusters: components.clusters.iter().map(|cluster| cluster.status()).collect(),
                restarts: self.supervisor.restarts(),
                is_leader: components.role.as_ref().map(|role| role().is_leader),
            }));
        }
    }

    fn status(&self) -> Option<String> {
        Some(self.status_json().to_string())
    }

    fn overview(&self) -> Option<String> {
        Some(page::render_page(&self.status_json()))
    }
}

impl StatusReporter {
    /// Returns the document of `/status`.
    fn status_json(&self) -> Value {
        let components = self.components();
        let Some(components) = &*components else { return json!({"starting": true}) };
        let engine_stats = components.engine.stats();
        let source_json = |source: &SourceReport| {
            let doubt = source.doubt();
            let (state, reason) = doubt.unwrap_or_else(|| (source.informer.freshness().name(), String::new()));
            let version = source.informer.snapshot().version().map(ToString::to_string);
            json!({"rule": source.rule, "of": source.description, "state": state, "reason": reason, "version": version})
        };
        let clusters = components.clusters.iter().map(|cluster| {
            let ClusterStatus { name, state, missing } = cluster.status();
            let (reason, since) = match &state {
                ClusterState::Unreachable { reason, since } => (Some(reason), Some(since.as_secs_f64())),
                _ => (None, None),
            };
            let missing = missing.iter().map(|MissingResource { rule, resource, problem }| {
                json!({"rule": rule, "resource": resource, "reason": problem.description, "place": problem.position.to_string()})
            });
            json!({
                "cluster": name, "state": state.name(), "reason": reason, "since_seconds": since,
                "missing": missing.collect::<Vec<Value>>(),
            })
        });
        let sinks = engine_stats.sinks.iter().map(|(name, sink)| {
            json!({
                "sink": name, "delivered": sink.delivered, "dead_letters": sink.dead_letters, "waiting": sink.waiting,
                "throttled": sink.throttled, "throttled_total": sink.throttled_total,
                "oldest_seconds": sink.oldest.map(|oldest| oldest.as_secs_f64()),
                "failed_attempts": sink.failed_attempts, "failing": sink.failing, "restarts": sink.restarts,
                "paused_seconds": sink.paused.map(|paused| paused.as_secs_f64()),
            })
        });
        let mirrors = components.mirrors.iter().map(|(name, read_status)| {
            let status = read_status();
            let MirrorSinkStatus {
                entries,
                is_settled,
                skipped,
                entries_pending_approval,
                failing,
                last_read,
                pending_approvals,
                ..
            } = &status;
            json!({
                "mirror": name, "state": state_name(&status.state), "reason": status.state.to_string(),
                "entries": entries, "settled": is_settled, "skipped": skipped, "entries_pending_approval": entries_pending_approval,
                "skipped_entries": status.skipped_entries, "pending_approvals": pending_approvals, "restarts": status.restarts,
                "failing": failing.as_deref(), "last_read_seconds": last_read.map(|last_read| last_read.as_secs_f64()),
            })
        });
        let role = components.role.as_ref().map(|role| {
            let Role { is_leader, identity, holder, since, failure, .. } = role();
            let role = if is_leader { "leader" } else { "standby" };
            json!({
                "role": role, "identity": identity, "holder": holder, "since_seconds": since.elapsed().as_secs_f64(),
                "failing": failure,
            })
        });
        json!({
            "replica": role, "changes": engine_stats.changes, "messages": engine_stats.messages, "unchanged": engine_stats.unchanged,
            "failed": engine_stats.failed,
            "clusters": clusters.collect::<Vec<Value>>(),
            "sources": source_reports(&components.clusters).iter().map(source_json).collect::<Vec<Value>>(),
            "sinks": sinks.collect::<Vec<Value>>(), "mirrors": mirrors.collect::<Vec<Value>>(),
            "restarts": self.supervisor.restarts(),
        })
    }
}
