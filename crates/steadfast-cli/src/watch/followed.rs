//! What `watch` follows, for a monitor: ready when all of it is synced and fresh.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::StatusCode;
use prometheus_client::registry::Registry;
use steadfast::metrics::Metrics;
use steadfast::{Connection, InformerFactory};

use crate::endpoint::Told;

const STARTING: &str = "starting: the server has not said yet what it has\n";

/// What is to be synced and fresh before the program is ready.
#[derive(Clone)]
pub(crate) struct Followed {
    connection: Connection,
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    /// Whose informers; nothing before the server has said what it has.
    factory: Option<InformerFactory>,
    /// The kinds that the server does not have yet.
    awaited: Vec<String>,
}

impl Followed {
    /// Nothing yet, of what is at the other end of `connection`.
    pub(crate) fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone(), known: Arc::default() }
    }

    /// The server has said what it has: the informers of `factory` follow that, and these kinds are waited for.
    pub(crate) fn begin(&self, factory: InformerFactory, awaited: Vec<String>) {
        *self.known() = Known { factory: Some(factory), awaited };
    }

    /// The server has `awaited` now, and it is followed.
    pub(crate) fn arrived(&self, awaited: &str) {
        self.known().awaited.retain(|name| name != awaited);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        // Nothing panics under this lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told for Followed {
    fn readiness(&self) -> (StatusCode, String) {
        let known = self.known();
        let Some(freshness) = known.factory.as_ref().map(InformerFactory::freshness) else {
            return (StatusCode::SERVICE_UNAVAILABLE, STARTING.to_owned());
        };
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
