//! Who is told the notes of a controller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::diagnostic::ControllerDiagnostic;
use crate::panics;

/// Tells notes to the program's log, and to whoever wants them. Cheap to clone.
#[derive(Clone)]
pub(super) struct Notes {
    controller: Arc<str>,
    told: Option<Told>,
}

pub(super) type Told = Arc<dyn Fn(&ControllerDiagnostic) + Send + Sync>;

impl Notes {
    pub(super) fn new(controller: Arc<str>, told: Option<Told>) -> Self {
        Self { controller, told }
    }

    pub(super) fn tell(&self, note: &ControllerDiagnostic) {
        let controller = &*self.controller;
        if note.is_grave() {
            tracing::warn!(controller, "{note}");
        } else {
            tracing::info!(controller, "{note}");
        }
        if let Some(told) = &self.told {
            // What listens is the user's, and nothing of the controller may end by it.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| told(note))) {
                tracing::error!(controller, "the callback for notes panicked: {}", panics::told(panic));
            }
        }
    }
}
