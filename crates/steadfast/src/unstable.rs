//! What this project's own tests look at beside what is promised. Nothing in here is: it may change or go with any release.

use tokio::sync::watch;

use crate::connection::Connection;

/// How many connections were ever dialled.
pub fn dialled(connection: &Connection) -> u64 {
    connection.dialled()
}

/// Counts how often the server was found to answer after a failure, at most every 2 s.
pub fn reachability(connection: &Connection) -> watch::Receiver<u64> {
    connection.reachability()
}
