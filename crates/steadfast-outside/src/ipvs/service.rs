//! What real servers are behind.

use std::net::SocketAddr;

use super::error::IpvsError;

/// A virtual service: an address and port of one protocol, and who is chosen for what comes to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub(super) protocol: Protocol,
    pub(super) address: SocketAddr,
    pub(super) scheduler: String,
    /// Whoever came goes to the same server again for so many seconds.
    pub(super) persistence: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

impl Service {
    /// What comes to `address` over TCP.
    ///
    /// # Errors
    ///
    /// Where a service cannot be there.
    pub fn tcp(address: SocketAddr) -> Result<Self, IpvsError> {
        Self::new(Protocol::Tcp, address)
    }

    /// What comes to `address` over UDP.
    ///
    /// # Errors
    ///
    /// Where a service cannot be there.
    pub fn udp(address: SocketAddr) -> Result<Self, IpvsError> {
        Self::new(Protocol::Udp, address)
    }

    fn new(protocol: Protocol, address: SocketAddr) -> Result<Self, IpvsError> {
        if address.port() == 0 || address.ip().is_unspecified() || !is_plain(address) {
            return Err(IpvsError::Service(address));
        }
        Ok(Self { protocol, address, scheduler: "wlc".to_owned(), persistence: None })
    }

    /// Who is chosen, by the name that the kernel's module `ip_vs_NAME` has: `rr`, `wrr`, `lc`, `wlc`, `sh`, `mh` and others.
    /// `wlc`, who has the fewest connections for its weight, where nothing is said.
    ///
    /// # Errors
    ///
    /// Where the name can be none.
    pub fn scheduler(self, name: &str) -> Result<Self, IpvsError> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !(1..=15).contains(&name.len()) || !name.bytes().all(is_plain) {
            return Err(IpvsError::Scheduler(name.to_owned()));
        }
        Ok(Self { scheduler: name.to_owned(), ..self })
    }

    /// Whoever came goes to the same server again for so many `seconds` after its last connection.
    #[must_use]
    pub fn persistent(self, seconds: u32) -> Self {
        Self { persistence: Some(seconds), ..self }
    }

    /// As `ipvsadm` is told which it is.
    pub(super) fn words(&self) -> String {
        let protocol = match self.protocol {
            Protocol::Tcp => "-t",
            Protocol::Udp => "-u",
        };
        format!("{protocol} {}", self.address)
    }

    /// As `ipvsadm` is told how it is.
    pub(super) fn settings(&self) -> String {
        let persistence = self.persistence.map(|seconds| format!(" -p {seconds}")).unwrap_or_default();
        format!("-s {}{persistence}", self.scheduler)
    }
}

/// Whether the kernel, which has no room for more, knows all of an address.
pub(super) fn is_plain(address: SocketAddr) -> bool {
    match address {
        SocketAddr::V4(_) => true,
        SocketAddr::V6(address) => address.scope_id() == 0 && address.flowinfo() == 0,
    }
}
