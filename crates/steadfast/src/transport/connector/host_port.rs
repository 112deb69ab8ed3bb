//! Address of a server or proxy.

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    /// Name or address, without brackets.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
}

impl HostPort {
    /// Returns the name for messages.
    pub(crate) fn name(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}
