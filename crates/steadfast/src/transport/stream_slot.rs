//! Slot of a request on a connection, and the interface to the pool.

use std::sync::{Arc, Weak};

use super::connection::TransportConnection;
use super::error::TransportError;

/// Interface of a pool for its connections and requests. Both hold weak references, because the pool may be dropped
/// first.
pub(super) trait PoolHandle: Send + Sync {
    /// Assigns free slots to waiting requests.
    fn serve(self: Arc<Self>);

    /// Processes a change of a connection to or from suspect or draining.
    fn state_changed(self: Arc<Self>);

    /// Processes the established `connection`.
    fn established(self: Arc<Self>, connection: &TransportConnection);

    /// Removes the closed `connection`. `error` is set after a failed dial.
    fn forget(self: Arc<Self>, connection: &TransportConnection, error: Option<TransportError>);
}

/// Slot of one request on a connection, until the response has ended or was dropped.
pub(super) struct StreamSlot {
    pub(super) connection: Arc<TransportConnection>,
    pool_handle: Weak<dyn PoolHandle>,
}

impl StreamSlot {
    /// Wraps a slot reserved by [`TransportConnection::admit`].
    pub(super) fn new(connection: Arc<TransportConnection>, pool_handle: Weak<dyn PoolHandle>) -> Self {
        Self { connection, pool_handle }
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        // The slot is released before the pool is notified, because `serve` must find the slot free.
        self.connection.release();
        if let Some(pool_handle) = self.pool_handle.upgrade() {
            pool_handle.serve();
        }
    }
}
