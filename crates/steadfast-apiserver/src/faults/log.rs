//! Log of the faults that were switched on and off.

use std::time::Duration;

use parking_lot::Mutex;

/// Record of a fault that was switched on or off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultRecord {
    /// Time since the server's start.
    pub at: Duration,
    /// Replica; `None` for a restore, for tokens and interceptors, and for rules of all replicas.
    pub replica: Option<usize>,
    /// Name of the fault, usually that of its method. The end of a fault has the name of its start:
    /// [`start`](crate::Faults::start) is recorded as `stop`, and [`heal`](crate::Faults::heal) as `cut`.
    pub fault: &'static str,
    /// `Some(true)` for on, `Some(false)` for off, `None` for a fault without a duration.
    pub on: Option<bool>,
}

/// All records, in order.
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
