//! What this project's own tests look at beside what is promised. Nothing in here is: it may change or go with any release.

#[cfg(feature = "checkpoint")]
use std::path::Path;

use tokio::sync::watch;

#[cfg(feature = "checkpoint")]
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::connection::Connection;

/// How many connections were ever dialled.
pub fn dialled(connection: &Connection) -> u64 {
    connection.dialled()
}

/// Counts how often the server was found to answer after a failure, at most every 2 s.
pub fn reachability(connection: &Connection) -> watch::Receiver<u64> {
    connection.reachability()
}

/// A checkpoint on a disk on which each change fails that `fails` says is to.
///
/// # Errors
///
/// As [`Checkpoint::open`].
#[cfg(feature = "checkpoint")]
pub fn failing_checkpoint(
    path: &Path,
    fails: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<Checkpoint, CheckpointError> {
    Checkpoint::open_failing(path, fails)
}
