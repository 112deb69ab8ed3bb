//! A connection as metrics see it: not kept alive by them.

use std::sync::{Arc, Weak};

use super::{Connection, Inner};
use crate::metrics::observed::Observed;
use crate::metrics::traffic::Totals;
use crate::transport::ConnectionReport;

/// A connection that may be gone.
pub(crate) struct WeakConnection {
    inner: Weak<Inner>,
    server: String,
}

impl WeakConnection {
    /// The connection, if it is still there.
    pub(crate) fn upgrade(&self) -> Option<Connection> {
        self.inner.upgrade().map(|inner| Connection { inner })
    }

    /// The server, as host and port: a URL may hold more.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }
}

impl Connection {
    /// This connection, not kept alive.
    pub(crate) fn downgrade(&self) -> WeakConnection {
        WeakConnection { inner: Arc::downgrade(&self.inner), server: self.inner.pool.server() }
    }

    /// The informers there are on this connection.
    pub(crate) fn observed(&self) -> &Observed {
        &self.inner.observed
    }

    /// The connections there are, how many were ever dialled, and what was counted of requests and of those gone.
    pub(crate) fn traffic(&self) -> (Vec<ConnectionReport>, u64, Totals) {
        self.inner.pool.traffic()
    }
}
