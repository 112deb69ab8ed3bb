//! Readiness of `watch` for monitoring: ready when all watched resources are synced and fresh.

use std::fmt::Write;
use std::sync::Arc;

use hyper::StatusCode;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use steadfast::metrics::Metrics;
use steadfast::{Connection, InformerFactory};

use crate::endpoint::StatusSource;

const STARTING_TEXT: &str = "starting: the resources of the server are not known yet\n";

/// The watched resources, for the endpoints.
#[derive(Clone)]
pub(crate) struct WatchReadiness {
    connections: Arc<[Connection]>,
    /// State of each cluster.
    states: Arc<Mutex<Vec<ClusterReadiness>>>,
}

#[derive(Clone, Default)]
struct ClusterReadiness {
    /// Informers of the found resources; absent before discovery.
    factory: Option<InformerFactory>,
    /// Kinds that the server does not serve yet.
    awaited: Vec<String>,
}

impl WatchReadiness {
    /// Creates the state of the clusters before discovery.
    pub(crate) fn new(connections: Vec<Connection>) -> Self {
        let states = vec![ClusterReadiness::default(); connections.len()];
        Self { connections: connections.into(), states: Arc::new(Mutex::new(states)) }
    }

    /// Records the result of discovery in a cluster: the informers of `factory`, and the kinds that are still missing.
    pub(crate) fn begin(&self, cluster: usize, factory: InformerFactory, awaited: Vec<String>) {
        self.states.lock()[cluster] = ClusterReadiness { factory: Some(factory), awaited };
    }

    /// Records that the missing kind `awaited` is watched now in a cluster.
    pub(crate) fn arrived(&self, cluster: usize, awaited: &str) {
        self.states.lock()[cluster].awaited.retain(|name| name != awaited);
    }
}

impl StatusSource for WatchReadiness {
    fn readiness(&self) -> (StatusCode, String) {
        let clusters: Vec<_> = self.states.lock().iter().map(ClusterReadiness::readiness).collect();
        let unready = clusters.iter().find(|(status, _)| *status != StatusCode::OK);
        let status = unready.map_or(StatusCode::OK, |(status, _)| *status);
        (status, clusters.into_iter().map(|(_, text)| text).collect())
    }

    fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(Metrics::new(self.connections.iter())));
    }
}

impl ClusterReadiness {
    fn readiness(&self) -> (StatusCode, String) {
        let Some(freshness) = self.factory.as_ref().map(InformerFactory::freshness) else {
            return (StatusCode::SERVICE_UNAVAILABLE, STARTING_TEXT.to_owned());
        };
        // A missing kind has no informer yet, so the freshness of the informers alone would report success.
        if self.awaited.is_empty() {
            return (freshness.status(), freshness.to_string());
        }
        let mut text = String::new();
        for kind in &self.awaited {
            let _ = writeln!(text, "{kind}: the server does not have this kind yet");
        }
        for (name, state) in freshness.informers().filter(|(_, state)| !state.is_fresh()) {
            let _ = writeln!(text, "{name}: {state}");
        }
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }
}
