//! Log of fault switches.

use std::time::Duration;

use parking_lot::Mutex;

/// Switch of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultRecord {
    /// Time since the server's start.
    pub at: Duration,
    /// Replica; `None` for faults of the history, and for rules of all replicas.
    pub replica: Option<usize>,
    /// Name of the fault: the name of its method.
    pub fault: &'static str,
    /// `Some(true)` for on, `Some(false)` for off, `None` for a fault without a duration.
    pub on: Option<bool>,
}

/// All switches, in order.
#[derive(Debug, Default)]
pub(crate) struct FaultLog(Mutex<Vec<FaultRecord>>);

impl FaultLog {
    pub(crate) fn push(&self, record: FaultRecord) {
        tracing::debug!(?record, "fault");
        self.0.lock().push(record);
    }

    pub(crate) fn records(&self) -> Vec<FaultRecord> {
        self.0.lock().clone()
    }
}
