//! What has been written to a file.

use std::sync::Arc;

/// What has been written to a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointCounts {
    /// The transactions, each of all that was due at the time, and on the disk when it was over.
    pub commits: u64,
    /// The rows that were written or removed.
    pub rows: u64,
    /// The bytes of what was written, before the file's own layout.
    pub bytes: u64,
    /// The transactions that failed.
    pub failures: u64,
    /// Why the last one failed, where none has succeeded since: what is held is not kept now.
    pub failing: Option<Arc<str>>,
}
