//! Backends.

use std::net::SocketAddr;

use crate::entry::EntryValue;

/// Maximum length of the name of an entry: with its address it must fit into a comment of 128 bytes.
pub(super) const MAX_NAME_BYTES: usize = 64;

/// Maximum weight of a backend.
pub(super) const MAX_WEIGHT: u16 = 256;

/// Destination of connections to the address in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Address of the backend, in the family of the address in front.
    pub address: SocketAddr,
    /// Share of the traffic relative to the other backends: 1 to 256, or 0 for no new connections.
    pub weight: u16,
}

impl EntryValue for Backend {
    fn serves(&self) -> bool {
        self.weight > 0
    }
}
