//! Errors of an encoded snapshot.

use super::{FORMAT_NAME, FORMAT_VERSION};

/// Reason why an encoded snapshot cannot be read. The text contains no part of the objects, which may be Secrets.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The snapshot has no bytes.
    #[error("it is empty")]
    Empty,
    /// The first line is not that of a snapshot.
    #[error("it is not a snapshot: its first line is not `{FORMAT_NAME} {FORMAT_VERSION}`")]
    Foreign,
    /// A newer release has written the snapshot.
    #[error("it has format {0} of a newer release, and this release reads format {FORMAT_VERSION} only")]
    Newer(u32),
    /// The snapshot ends too early.
    #[error("it ends too early, at line {line} (byte {offset}): {missing}")]
    Truncated {
        /// Line at which the snapshot ends, from 1.
        line: usize,
        /// Number of bytes before the end.
        offset: usize,
        /// The missing part.
        missing: String,
    },
    /// A line is damaged.
    #[error("it is corrupt at line {line} (byte {offset}): {reason}")]
    Corrupt {
        /// Damaged line, from 1.
        line: usize,
        /// Number of bytes before the line.
        offset: usize,
        /// Reason why the line is invalid.
        reason: &'static str,
    },
}

debug_as_message!(SnapshotError);
