//! Readiness of `watch` for monitoring: ready when all watched resources are synced and fresh.

use std::fmt::Write;
use std::sync::Arc;

use hyper::StatusCode;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use steadfast::metrics::Metrics;
use steadfast::{Connection, InformerFactory};

use crate::endpoint::StatusSource;

const STARTING: &str = "starting: the resources of the server are not known yet\n";

/// The watched resources, for the endpoints.
#[derive(Clone)]
pub(crate) struct WatchReadiness {
    connection: Connection,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    /// Informers of the found resources; absent before discovery.
    factory: Option<InformerFactory>,
    /// Kinds that the server does not serve yet.
    awaited: Vec<String>,
}

impl WatchReadiness {
    /// Creates the state before discovery.
    pub(crate) fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone(), known: Arc::default() }
    }

    /// Records the result of discovery: the informers of `factory`, and the kinds that are still missing.
    pub(crate) fn begin(&self, factory: InformerFactory, awaited: Vec<String>) {
        *self.known() = Known { factory: Some(factory), awaited };
    }

    /// Records that the missing kind `awaited` is watched now.
    pub(crate) fn arrived(&self, awaited: &str) {
        self.known().awaited.retain(|name| name != awaited);
    }

    fn known(&self) -> parking_lot::MutexGuard<'_, Known> {
        // No code panics under this lock.
        self.known.lock()
    }
}

impl StatusSource for WatchReadiness {
    fn readiness(&self) -> (StatusCode, String) {
        let known = self.known();
        let Some(freshness) = known.factory.as_ref().map(InformerFactory::freshness) else {
            return (StatusCode::SERVICE_UNAVAILABLE, STARTING.to_owned());
        };
        // A missing kind has no informer yet, so the freshness of the informers alone would report success.
        if known.awaited.is_empty() {
            return (freshness.status(), freshness.to_string());
        }
        let mut text = String::new();
        for kind in &known.awaited {
            let _ = writeln!(text, "{kind}: the server does not have this kind yet");
        }
        for (name, state) in freshness.informers().filter(|(_, state)| !state.is_fresh()) {
            let _ = writeln!(text, "{name}: {state}");
        }
        (StatusCode::SERVICE_UNAVAILABLE, text)
    }

    fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(Metrics::new([&self.connection])));
    }
}
