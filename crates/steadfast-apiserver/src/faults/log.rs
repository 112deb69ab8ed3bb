//! When which fault was switched.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// One switching of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRecord {
    /// When, since the server's start.
    pub at: Duration,
    /// The replica; `None` for faults of the history.
    pub replica: Option<usize>,
    /// The fault's name, as its method is called.
    pub fault: &'static str,
    /// `Some(true)` on, `Some(false)` off, `None` for what happens at once and is over.
    pub on: Option<bool>,
}

/// All switchings, in order.
#[derive(Debug, Default)]
pub(crate) struct FaultLog(Mutex<Vec<FaultRecord>>);

impl FaultLog {
    pub(crate) fn push(&self, record: FaultRecord) {
        tracing::debug!(?record, "fault");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(record);
    }

    pub(crate) fn records(&self) -> Vec<FaultRecord> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
