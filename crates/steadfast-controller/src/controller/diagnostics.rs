//! Reporting of a controller's diagnostics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::diagnostic::ControllerDiagnostic;
use crate::panics;

/// Reports diagnostics to the log and to the user's callback. Cheap to clone.
#[derive(Clone)]
pub(super) struct Diagnostics {
    controller: Arc<str>,
    callback: Option<DiagnosticCallback>,
}

pub(super) type DiagnosticCallback = Arc<dyn Fn(&ControllerDiagnostic) + Send + Sync>;

impl Diagnostics {
    pub(super) fn new(controller: Arc<str>, callback: Option<DiagnosticCallback>) -> Self {
        Self { controller, callback }
    }

    /// Returns the name of the controller.
    pub(super) fn controller(&self) -> &Arc<str> {
        &self.controller
    }

    pub(super) fn report(&self, diagnostic: &ControllerDiagnostic) {
        let controller = &*self.controller;
        if diagnostic.is_warning() {
            tracing::warn!(controller, "{diagnostic}");
        } else {
            tracing::info!(controller, "{diagnostic}");
        }
        if let Some(callback) = &self.callback {
            // A panic in the user's callback must not end any task of the controller.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| callback(diagnostic))) {
                tracing::error!(controller, "the diagnostic callback panicked: {}", panics::message(panic));
            }
        }
    }
}
