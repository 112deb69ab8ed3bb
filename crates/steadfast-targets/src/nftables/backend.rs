//! Backends.

use std::net::SocketAddr;

use crate::entry::EntryValue;

/// Maximum length of the name of an entry. Name and address must fit together into a comment of 128 bytes.
pub(super) const MAX_NAME_BYTES: usize = 64;

/// Maximum weight of a backend.
pub(super) const MAX_WEIGHT: u16 = 256;

/// Server to which nftables forwards connections to the front address of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Address of the backend, of the same IP version as the front address.
    pub address: SocketAddr,
    /// Share of the traffic relative to the other backends: 1 to 256, or 0 for no new connections.
    pub weight: u16,
}

impl EntryValue for Backend {
    fn serves(&self) -> bool {
        self.weight > 0
    }
}
