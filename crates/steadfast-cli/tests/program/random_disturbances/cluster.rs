//! The first cluster of the scenario: the embedded API server, or with `STEADFAST_SERVER=reference` a real one with its
//! etcd.

use std::time::Duration;

use serde_json::{Value, json};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule};
use steadfast_testing::cluster::ServerKind;
use tokio::runtime::Runtime;

use super::disturbance::Disturbance;
use super::real::Real;

/// A cluster whose API server, store and network can be made to fail.
pub(super) enum Cluster {
    Embedded(ApiServer),
    Real(Box<Real>),
}

impl Cluster {
    /// Starts the server of `STEADFAST_SERVER`. Returns `None`, with the reason on standard error, if the server was
    /// not built.
    pub(super) fn start(runtime: &Runtime) -> Option<Self> {
        match ServerKind::from_env() {
            ServerKind::Reference => Some(Self::Real(Box::new(Real::start(runtime)?))),
            _ => Some(Self::Embedded(runtime.block_on(ApiServer::start()).expect("the server starts"))),
        }
    }

    /// Returns a kubeconfig with which the program reaches the server.
    pub(super) fn kubeconfig(&self) -> String {
        match self {
            Self::Embedded(server) => server.kubeconfig(),
            Self::Real(real) => real.kubeconfig(),
        }
    }

    /// Creates or replaces an object with its status.
    ///
    /// # Errors
    ///
    /// Returns an error if the server rejects the object.
    pub(super) fn apply(&self, object: &Value, resource: &str) -> Result<(), String> {
        match self {
            Self::Embedded(server) => {
                let apply_result = server.create(object).or_else(|_| server.replace(object));
                apply_result.map(drop).map_err(|error| error.to_string())
            }
            Self::Real(real) => real.apply(object, resource),
        }
    }

    /// Changes the status of a pod in the namespace `default`.
    pub(super) fn set_status(&self, name: &str, status: &Value) {
        match self {
            Self::Embedded(server) => {
                let patch = json!({"status": status});
                server.merge_patch("pods", "default", name, patch).map(drop).expect("the pod exists");
            }
            Self::Real(real) => real.set_status("default", name, status).expect("the pod exists"),
        }
    }

    /// The pod in the namespace `default`, if it exists.
    pub(super) fn pod(&self, name: &str) -> Option<Value> {
        match self {
            Self::Embedded(server) => server.get("pods", "default", name).ok(),
            Self::Real(real) => real.get("pods", "default", name),
        }
    }

    /// Deletes an object at once.
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not exist.
    pub(super) fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<(), String> {
        match self {
            Self::Embedded(server) => {
                server.delete_named(resource, namespace, name).map(drop).map_err(|error| error.to_string())
            }
            Self::Real(real) => real.delete(resource, namespace, name),
        }
    }

    /// Returns whether the server accepts writes during `disturbance`.
    pub(super) fn is_writable_during(&self, disturbance: Disturbance) -> bool {
        matches!(self, Self::Embedded(_))
            || !matches!(disturbance, Disturbance::Frozen | Disturbance::ServiceUnavailable)
    }

    /// Additional recovery time after a disturbance, compared with the embedded server.
    pub(super) fn extra_recovery_time(&self) -> Duration {
        if matches!(self, Self::Embedded(_)) { Duration::ZERO } else { Duration::from_secs(60) }
    }
}

/// Phase of a disturbance: its start, a second step after some changes, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Start,
    Worsen,
    End,
}

impl Cluster {
    /// Applies this phase of `disturbance` to the server. Disturbances of other parts have no effect.
    pub(super) fn disturb(&mut self, disturbance: Disturbance, phase: Phase) {
        match self {
            Self::Embedded(server) => apply_to_embedded(server, disturbance, phase),
            Self::Real(real) => real.disturb(disturbance, phase),
        }
    }
}

fn apply_to_embedded(server: &ApiServer, disturbance: Disturbance, phase: Phase) {
    let faults = server.faults();
    let pods = RequestRule::any().resource("pods");
    match (disturbance, phase) {
        (Disturbance::Restart, Phase::Start) => faults.restart(),
        (Disturbance::ConnectionsRefused, Phase::Start) => faults.stop(),
        (Disturbance::ConnectionsRefused, Phase::End) => faults.start(),
        (Disturbance::BlackHole, Phase::Start | Phase::End) => faults.black_hole(phase == Phase::Start),
        (Disturbance::Frozen, Phase::Start | Phase::End) => faults.freeze(phase == Phase::Start),
        (Disturbance::CacheLagging | Disturbance::CacheLaggingThenReset, Phase::Start | Phase::End) => {
            faults.lag(phase == Phase::Start);
        }
        (Disturbance::CacheLaggingThenReset, Phase::Worsen) => {
            faults.reset();
            faults.expire_events();
        }
        (Disturbance::VersionExpired, Phase::Start) => faults.cut(),
        (Disturbance::VersionExpired, Phase::Worsen) => {
            server.compact();
            faults.heal();
        }
        (Disturbance::ConnectionsReset, Phase::Start) => faults.reset(),
        (Disturbance::ServiceUnavailable, Phase::Start) => faults.respond(pods, InjectedResponse::code(503)),
        (Disturbance::Forbidden, Phase::Start) => {
            faults.respond(pods, InjectedResponse::code(403));
            faults.end_watches();
        }
        (Disturbance::ServiceUnavailable | Disturbance::Forbidden, Phase::End) => faults.clear_rules(),
        _ => {}
    }
}
