//! Statistics of a checkpoint.

use std::sync::Arc;

/// Statistics of writes to a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointStats {
    /// Completed transactions. Each contains all changes that were pending, and is durable on the disk.
    pub commits: u64,
    /// Rows written or removed.
    pub rows: u64,
    /// Bytes of the written rows, without the overhead of the file format.
    pub bytes: u64,
    /// Failed transactions.
    pub failures: u64,
    /// Reason of the last failure, if no transaction has succeeded since. The file is then out of date.
    pub failing: Option<Arc<str>>,
}
