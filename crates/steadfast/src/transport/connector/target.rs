//! Where a server or a proxy is.

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its name or address, without brackets.
    pub(crate) host: String,
    /// Its port.
    pub(crate) port: u16,
}

impl Target {
    /// As messages name it.
    pub(crate) fn name(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}
