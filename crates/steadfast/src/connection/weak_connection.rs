//! Weak reference to a connection for metrics, which must not keep it alive.

use std::sync::{Arc, Weak};

use super::{Connection, Inner};
use crate::metrics::pool_counters::Totals;
use crate::transport::ConnectionReport;

/// Weak reference to a connection.
pub(crate) struct WeakConnection {
    inner: Weak<Inner>,
    server: String,
}

impl WeakConnection {
    /// Returns the connection, unless it was dropped.
    pub(crate) fn upgrade(&self) -> Option<Connection> {
        self.inner.upgrade().map(|inner| Connection { inner })
    }

    /// Returns the server as host and port, since a URL may hold credentials.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }
}

impl Connection {
    /// Returns a weak reference to this connection.
    pub(crate) fn downgrade(&self) -> WeakConnection {
        WeakConnection { inner: Arc::downgrade(&self.inner), server: self.inner.pool.server() }
    }

    /// Returns the open connections, the number of dials, and the totals of requests and of closed connections.
    pub(crate) fn traffic(&self) -> (Vec<ConnectionReport>, u64, Totals) {
        self.inner.pool.traffic()
    }
}
