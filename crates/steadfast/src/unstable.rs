//! Internals for this project's own crates and tests. They have no stability guarantee.

#[cfg(feature = "checkpoint")]
use std::path::Path;

pub use steadfast_core::reflector::encoded as percent_encoded;
pub use steadfast_core::{cause, hash, random};
use tokio::sync::watch;

use crate::Cacheable;
#[cfg(feature = "checkpoint")]
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::connection::Connection;

/// Credentials of a configuration.
pub mod credentials {
    pub use crate::connection::authorization_source::AuthorizationSource;
    pub use crate::connection::normal::normalize;
}

/// Lookup of a resource by any name that kubectl takes.
pub mod catalog {
    pub use crate::catalog::{Catalog, NotFound, ServedResource, fetch_catalog};
}

/// Returns the proxy through which requests to the server of `config` pass, without credentials; `None` without a proxy.
///
/// The proxy of the variable `HTTPS_PROXY` does not apply to loopback addresses and to servers in `NO_PROXY`.
pub fn proxy_name(config: &kube::Config) -> Option<String> {
    crate::connection::proxy_name(config)
}

/// Returns the memory in bytes that `objects` take in a cache of the form `K`, without keys and indexes; packed if
/// requested. Returns `None` if an object cannot be decoded as `K`.
pub fn cached_bytes<K: Cacheable>(objects: &[serde_json::Value], packed: bool) -> Option<usize> {
    crate::memory::cached_bytes::<K>(objects, packed)
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

/// Drops `checkpoint`, and waits until all of its other handles are dropped and all of its informers have ended.
///
/// Their changes are then written, and the file is unlocked.
#[cfg(feature = "checkpoint")]
pub fn checkpoint_released(checkpoint: Checkpoint) -> impl Future<Output = ()> + Send + 'static {
    checkpoint.until_released()
}
