//! Callbacks for diagnostics of an informer.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use parking_lot::Mutex;
use steadfast_core::reflector::Diagnostic;
use steadfast_executor::drop_contained;

/// Callback for each diagnostic.
pub(crate) type DiagnosticCallback = Arc<dyn Fn(&Diagnostic) + Send + Sync>;

/// Registered callbacks, in the order of their registration.
#[derive(Default)]
pub(crate) struct DiagnosticCallbacks(Mutex<Vec<DiagnosticCallback>>);

impl DiagnosticCallbacks {
    /// Adds a callback for later diagnostics.
    pub(crate) fn add(&self, callback: DiagnosticCallback) {
        self.0.lock().push(callback);
    }

    /// Calls the callbacks and catches their panics. `informer` names the informer in the log.
    pub(crate) fn report(&self, diagnostic: &Diagnostic, informer: &str) {
        // Cloned, so that a callback can register another callback.
        let callbacks = self.0.lock().clone();
        for callback in callbacks {
            if std::panic::catch_unwind(AssertUnwindSafe(|| callback(diagnostic))).is_err() {
                tracing::error!(%informer, "a diagnostic callback panicked");
            }
        }
    }

    /// Drops all callbacks, because they may hold a reference to the informer.
    pub(crate) fn clear(&self) {
        let callbacks = std::mem::take(&mut *self.0.lock());
        drop_contained(callbacks);
    }
}
