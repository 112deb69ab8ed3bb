//! What an entry is.

use crate::entry::Value;

/// What comes to a virtual service is given to: a real server, which is called by its address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// How much it is given beside the others: 0 for nothing new.
    pub weight: u16,
    /// How packets reach it.
    pub forward: Forward,
    pub(super) askew: Askew,
}

/// How packets reach a real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forward {
    /// With its address and port written into them; the answers come back this way (`-m`).
    Masquerade,
    /// As they are, on the network that it shares with this machine; it has the service's address too (`-g`).
    Direct,
    /// As they are, inside of others, by IPIP; it has the service's address too (`-i`).
    Tunnel,
}

/// What there is that no mirror has put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Askew {
    Nothing,
    /// A limit of connections, another tunnel.
    Server,
    /// The service before it: it has another scheduler, perhaps.
    Service,
}

impl Server {
    /// One that is given `weight` beside the others.
    pub fn new(weight: u16, forward: Forward) -> Self {
        Self { weight, forward, askew: Askew::Nothing }
    }
}

impl Value for Server {
    fn serves(&self) -> bool {
        self.weight > 0
    }

    fn drained(&self) -> Option<Self> {
        Some(Self::new(0, self.forward))
    }
}
