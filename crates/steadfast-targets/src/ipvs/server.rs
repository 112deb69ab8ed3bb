//! Real servers.

use crate::entry::EntryValue;

/// Settings of a real server. The name of the entry contains the address and the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealServer {
    /// Share of the traffic relative to the other servers: 0 for no new connections.
    pub weight: u16,
    /// Forwarding method.
    pub forward: ForwardingMethod,
    pub(super) drift: Drift,
}

/// Forwarding method for packets to a real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardingMethod {
    /// Masquerading: the kernel rewrites address and port, and responses return through this machine (`-m`).
    Masquerade,
    /// Direct routing: packets are unchanged, in a shared network. The server has the service's address too (`-g`).
    Direct,
    /// Tunneling: packets are wrapped by IPIP. The server has the service's address too (`-i`).
    Tunnel,
}

/// Difference between a listed server and every state that a mirror creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drift {
    None,
    /// The server has a connection limit or an unsupported tunnel.
    Server,
    /// The service differs, for example in its scheduler.
    Service,
}

impl RealServer {
    /// Creates a server with the share `weight` of the traffic.
    pub fn new(weight: u16, forward: ForwardingMethod) -> Self {
        Self { weight, forward, drift: Drift::None }
    }
}

impl EntryValue for RealServer {
    fn serves(&self) -> bool {
        self.weight > 0
    }

    fn drained(&self) -> Option<Self> {
        Some(Self::new(0, self.forward))
    }
}
