//! How things stand, for a monitor and for `status`: rules, what they look at, sinks and mirrors.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::StatusCode;
use kube::core::DynamicObject;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use steadfast::metrics::Metrics;
use steadfast::{Connection, Informer, Lazy};
use steadfast_notify::notice::escaped;
use steadfast_notify::{Engine, MirrorStanding, MirrorState};

use super::figures::Figures;
use super::follow::Followed;
use crate::endpoint::Told;

/// What tells how a mirror stands.
pub(super) type Asking = Box<dyn Fn() -> MirrorStanding + Send + Sync>;

/// How things stand. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Standing(Arc<Mutex<Option<Known>>>);

/// All that is at work.
pub(super) struct Known {
    pub(super) engine: Engine,
    pub(super) connections: Vec<Connection>,
    pub(super) sources: Vec<Looking>,
    pub(super) mirrors: Vec<(String, Asking)>,
}

/// What a rule looks at in one place.
pub(super) struct Looking {
    rule: String,
    of: String,
    informer: Informer<Lazy<DynamicObject>>,
}

impl From<&Followed> for Looking {
    fn from(Followed { source, informer, .. }: &Followed) -> Self {
        let of = format!("{} of {}, {}", source.resource_name(), source.cluster, source.scope);
        Self { rule: source.rule.clone(), of, informer: informer.clone() }
    }
}

impl Looking {
    /// Why it may not be how things are, if it may not.
    fn doubt(&self) -> Option<(&'static str, String)> {
        let freshness = self.informer.freshness();
        let why = freshness.doubt().map(|doubt| doubt.why.to_string());
        let why = why.or_else(|| (!self.informer.has_synced()).then(|| "it was not listed yet".to_owned()))?;
        Some((freshness.name(), why))
    }
}

impl Standing {
    /// From now on it is these that are at work.
    pub(super) fn is(&self, known: Known) {
        *self.known() = Some(known);
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        // Nothing panics under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names of all states.
pub(super) const STATES: [&str; 5] = ["synced", "converging", "blocked", "needs approval", "uncertain"];

/// Returns the name of a state, for programs.
pub(super) fn state_name(state: &MirrorState) -> &'static str {
    match state {
        MirrorState::Synced => "synced",
        MirrorState::Converging => "converging",
        MirrorState::Blocked(_) => "blocked",
        MirrorState::NeedsApproval(_) => "needs approval",
        MirrorState::Uncertain(_) => "uncertain",
    }
}

impl Told for Standing {
    fn readiness(&self) -> (StatusCode, String) {
        let known = self.known();
        let Some(known) = &*known else {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                "starting: the clusters have not said yet what they have\n".to_owned(),
            );
        };
        let mut text = String::new();
        for looking in &known.sources {
            if let Some((state, why)) = looking.doubt() {
                let _ = writeln!(text, "rule {}: {}: {state}: {why}", looking.rule, looking.of);
            }
        }
        for (name, asking) in &known.mirrors {
            let standing = asking();
            if standing.failing.is_some() || standing.seen.is_none() {
                let _ = writeln!(text, "mirror {name}: {}", escaped(&standing.state.to_string()));
            }
        }
        if text.is_empty() { (StatusCode::OK, "fresh\n".to_owned()) } else { (StatusCode::SERVICE_UNAVAILABLE, text) }
    }

    fn register(&self, registry: &mut Registry) {
        if let Some(known) = &*self.known() {
            registry.register_collector(Box::new(Metrics::new(&known.connections)));
            let mirrors = known.mirrors.iter().map(|(name, asking)| (name.clone(), asking())).collect();
            registry.register_collector(Box::new(Figures { counts: known.engine.counts(), mirrors }));
        }
    }

    fn status(&self) -> Option<String> {
        let known = self.known();
        let Some(known) = &*known else { return Some(json!({"starting": true}).to_string()) };
        let counts = known.engine.counts();
        let looking = |looking: &Looking| {
            let doubt = looking.doubt();
            let (state, why) = doubt.unwrap_or_else(|| (looking.informer.freshness().name(), String::new()));
            let version = looking.informer.snapshot().version().map(ToString::to_string);
            json!({"rule": looking.rule, "of": looking.of, "state": state, "why": why, "version": version})
        };
        let sinks = counts.sinks.iter().map(|(name, sink)| {
            json!({
                "sink": name, "delivered": sink.delivered, "dead_letters": sink.given_up, "waiting": sink.waiting,
                "oldest_seconds": sink.oldest.map(|oldest| oldest.as_secs_f64()),
            })
        });
        let mirrors = known.mirrors.iter().map(|(name, asking)| {
            let standing = asking();
            let MirrorStanding { entries, is_settled, kept, asks, failing, seen, pending, .. } = &standing;
            json!({
                "mirror": name, "state": state_name(&standing.state), "why": standing.state.to_string(),
                "entries": entries, "settled": is_settled, "kept": kept, "asks": asks,
                "left_alone": standing.left_alone, "pending": pending, "restarts": standing.restarts,
                "failing": failing.as_deref(), "seen_seconds": seen.map(|seen| seen.as_secs_f64()),
            })
        });
        let status = json!({
            "changes": counts.changes, "fired": counts.fired, "unchanged": counts.unchanged, "failed": counts.failed,
            "sources": known.sources.iter().map(looking).collect::<Vec<Value>>(),
            "sinks": sinks.collect::<Vec<Value>>(), "mirrors": mirrors.collect::<Vec<Value>>(),
        });
        Some(status.to_string())
    }
}
