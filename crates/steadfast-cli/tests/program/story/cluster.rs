//! The first cluster of the scenario: the embedded API server, or with `STEADFAST_SERVER=reference` a real one with its etcd.

use std::time::Duration;

use serde_json::{Value, json};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule};
use steadfast_testing::cluster::ServerKind;
use tokio::runtime::Runtime;

use super::real::Real;
use super::trouble::Trouble;

/// A cluster whose API server, store and network can be made to fail.
pub(super) enum Cluster {
    Embedded(ApiServer),
    Real(Box<Real>),
}

impl Cluster {
    /// Starts the server of `STEADFAST_SERVER`. Returns `None`, with the reason on standard error, if the server was not built.
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
                let applied = server.create(object).or_else(|_| server.replace(object));
                applied.map(drop).map_err(|error| error.to_string())
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

    /// Returns whether the server accepts writes during `trouble`.
    pub(super) fn is_writable_during(&self, trouble: Trouble) -> bool {
        matches!(self, Self::Embedded(_)) || !matches!(trouble, Trouble::Frozen | Trouble::Errors)
    }

    /// Additional recovery time after a trouble, compared with the embedded server.
    pub(super) fn patience(&self) -> Duration {
        if matches!(self, Self::Embedded(_)) { Duration::ZERO } else { Duration::from_secs(60) }
    }
}

/// Phase of a trouble: its start, a second step after some changes, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Begin,
    Worsen,
    End,
}

impl Cluster {
    /// Applies this phase of `trouble` to the server. Troubles of other parts have no effect.
    pub(super) fn suffer(&mut self, trouble: Trouble, phase: Phase) {
        match self {
            Self::Embedded(server) => suffer_embedded(server, trouble, phase),
            Self::Real(real) => real.suffer(trouble, phase),
        }
    }
}

fn suffer_embedded(server: &ApiServer, trouble: Trouble, phase: Phase) {
    let faults = server.faults();
    let pods = RequestRule::any().resource("pods");
    match (trouble, phase) {
        (Trouble::Restart, Phase::Begin) => faults.restart(),
        (Trouble::Away, Phase::Begin) => faults.stop(),
        (Trouble::Away, Phase::End) => faults.start(),
        (Trouble::BlackHole, Phase::Begin | Phase::End) => faults.black_hole(phase == Phase::Begin),
        (Trouble::Frozen, Phase::Begin | Phase::End) => faults.freeze(phase == Phase::Begin),
        (Trouble::Stale | Trouble::StaleAfterRestart, Phase::Begin | Phase::End) => faults.lag(phase == Phase::Begin),
        (Trouble::StaleAfterRestart, Phase::Worsen) => {
            faults.reset();
            faults.expire_events();
        }
        (Trouble::Expired, Phase::Begin) => faults.cut(),
        (Trouble::Expired, Phase::Worsen) => {
            server.compact();
            faults.heal();
        }
        (Trouble::Resets, Phase::Begin) => faults.reset(),
        (Trouble::Errors, Phase::Begin) => faults.respond(pods, InjectedResponse::code(503)),
        (Trouble::Forbidden, Phase::Begin) => {
            faults.respond(pods, InjectedResponse::code(403));
            faults.end_watches();
        }
        (Trouble::Errors | Trouble::Forbidden, Phase::End) => faults.clear_rules(),
        _ => {}
    }
}
