//! Internals for this project's own crates and tests. They have no stability guarantee.

#[cfg(feature = "checkpoint")]
use std::path::Path;

pub use steadfast_core::{cause, hash, random};
use tokio::sync::watch;

#[cfg(feature = "checkpoint")]
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::connection::Connection;

/// Lookup of a resource by any name that kubectl takes.
pub mod catalog {
    pub use crate::catalog::{Catalog, NotFound, ServedResource, fetch_catalog};
}

/// Returns the number of connections ever dialled.
pub fn dial_count(connection: &Connection) -> u64 {
    connection.dial_count()
}

/// Returns a counter of recoveries: responses of the server after a failure, at most one every 2 s.
pub fn reachability(connection: &Connection) -> watch::Receiver<u64> {
    connection.reachability()
}

/// Opens a checkpoint on a disk whose changes fail if `fails` returns true.
///
/// # Errors
///
/// Returns the errors of [`Checkpoint::open`].
#[cfg(feature = "checkpoint")]
pub fn failing_checkpoint(
    path: &Path,
    fails: impl Fn() -> bool + Send + Sync + 'static,
) -> Result<Checkpoint, CheckpointError> {
    Checkpoint::open_failing(path, fails)
}
