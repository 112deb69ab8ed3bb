//! A place on a connection, and whom to tell when it is free again.

use std::sync::{Arc, Weak};

use super::connection::Connection;
use super::error::TransportError;

/// What a connection belongs to, as its tasks and the requests on it know it: by a weak reference, for it may go first.
pub(super) trait Home: Send + Sync {
    /// There may be room: whoever waits for a place is to be given one.
    fn serve(self: Arc<Self>);

    /// A connection is suspect or draining, or is so no longer.
    fn unsettled(self: Arc<Self>);

    /// `connection` takes requests now.
    fn established(self: Arc<Self>, connection: &Connection);

    /// `gone` is gone; `error` says why it never came to be, if it did not.
    fn forget(self: Arc<Self>, gone: &Connection, error: Option<TransportError>);
}

/// The place of one request on a connection, until its answer has ended or was dropped.
pub(super) struct Lease {
    pub(super) connection: Arc<Connection>,
    home: Weak<dyn Home>,
}

impl Lease {
    /// A place that [`Connection::admit`] has just given.
    pub(super) fn new(connection: Arc<Connection>, home: Weak<dyn Home>) -> Self {
        Self { connection, home }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.connection.leave();
        if let Some(home) = self.home.upgrade() {
            home.serve();
        }
    }
}
