//! Address of a server or proxy.

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Name or address, without brackets.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
}

impl Target {
    /// Returns the name for messages.
    pub(crate) fn name(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}
