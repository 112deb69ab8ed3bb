//! Health of the audit, and the source of its metrics.

use std::sync::Arc;

use hyper::StatusCode;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use steadfast::Connection;
use steadfast::metrics::Metrics;
use steadfast_audit::Audit;

use super::metrics::AuditMetrics;
use crate::endpoint::StatusSource;

/// The running audit, for the endpoints. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct AuditStatus(Arc<Mutex<Option<Arc<RunningAudit>>>>);

struct RunningAudit {
    audit: Audit,
    connections: Vec<Connection>,
}

impl AuditStatus {
    /// Records the start of the audit.
    pub(super) fn begin(&self, audit: Audit, connections: Vec<Connection>) {
        *self.0.lock() = Some(Arc::new(RunningAudit { audit, connections }));
    }

    /// Ends the audit.
    pub(super) fn end(&self) {
        let running = self.0.lock().take();
        drop(running);
    }

    /// Returns whether the audit has started and has ended unexpectedly.
    pub(super) fn has_ended(&self) -> bool {
        self.running().is_some_and(|running| running.audit.has_ended())
    }

    /// Returns the running audit. Requests must not hold the lock while they read statistics: `/livez` needs the lock.
    fn running(&self) -> Option<Arc<RunningAudit>> {
        self.0.lock().clone()
    }
}

impl StatusSource for AuditStatus {
    fn liveness(&self) -> Result<(), String> {
        if self.has_ended() { Err("the audit ended unexpectedly".to_owned()) } else { Ok(()) }
    }

    fn readiness(&self) -> (StatusCode, String) {
        match self.running() {
            Some(_) => (StatusCode::OK, "auditing\n".to_owned()),
            None => (StatusCode::SERVICE_UNAVAILABLE, "starting: the endpoints are not known yet\n".to_owned()),
        }
    }

    fn register(&self, registry: &mut Registry) {
        if let Some(running) = self.running() {
            registry.register_collector(Box::new(Metrics::new(running.connections.iter())));
            registry.register_collector(Box::new(AuditMetrics(running.audit.stats())));
        }
    }
}
