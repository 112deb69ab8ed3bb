//! Virtual services.

use std::net::SocketAddr;

use super::error::IpvsError;

/// Virtual service: an address and port of one protocol, with a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualService {
    pub(super) protocol: ServiceProtocol,
    pub(super) address: SocketAddr,
    pub(super) scheduler: String,
    /// Persistence timeout in seconds.
    pub(super) persistence: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceProtocol {
    Tcp,
    Udp,
}

impl VirtualService {
    /// Creates a TCP service at `address`.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not valid for a service.
    pub fn tcp(address: SocketAddr) -> Result<Self, IpvsError> {
        Self::new(ServiceProtocol::Tcp, address)
    }

    /// Creates a UDP service at `address`.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is not valid for a service.
    pub fn udp(address: SocketAddr) -> Result<Self, IpvsError> {
        Self::new(ServiceProtocol::Udp, address)
    }

    fn new(protocol: ServiceProtocol, address: SocketAddr) -> Result<Self, IpvsError> {
        if address.port() == 0 || address.ip().is_unspecified() || !is_plain(address) {
            return Err(IpvsError::Service(address));
        }
        Ok(Self { protocol, address, scheduler: "wlc".to_owned(), persistence: None })
    }

    /// Sets the scheduler by the name in the kernel's module `ip_vs_NAME`: `rr`, `wrr`, `lc`, `wlc`, `sh`, `mh` and
    /// others. Defaults to `wlc`, weighted least connections.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is invalid.
    pub fn scheduler(self, name: &str) -> Result<Self, IpvsError> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !(1..=15).contains(&name.len()) || !name.bytes().all(is_plain) {
            return Err(IpvsError::Scheduler(name.to_owned()));
        }
        Ok(Self { scheduler: name.to_owned(), ..self })
    }

    /// Binds a client to its server until `seconds` after the client's last connection. Off by default.
    #[must_use]
    pub fn persistent(self, seconds: u32) -> Self {
        Self { persistence: Some(seconds), ..self }
    }

    /// Returns the arguments of `ipvsadm` that identify the service.
    pub(super) fn command_line(&self) -> String {
        let protocol = match self.protocol {
            ServiceProtocol::Tcp => "-t",
            ServiceProtocol::Udp => "-u",
        };
        format!("{protocol} {}", self.address)
    }

    /// Returns the arguments of `ipvsadm` with the settings.
    pub(super) fn settings(&self) -> String {
        let persistence = self.persistence.map(|seconds| format!(" -p {seconds}")).unwrap_or_default();
        format!("-s {}{persistence}", self.scheduler)
    }
}

/// Returns true if the kernel can represent the whole address.
pub(super) fn is_plain(address: SocketAddr) -> bool {
    match address {
        SocketAddr::V4(_) => true,
        SocketAddr::V6(address) => address.scope_id() == 0 && address.flowinfo() == 0,
    }
}
