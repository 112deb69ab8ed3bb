//! What can go wrong before a request reaches the transport, and there.

use std::error::Error as _;
use std::io;

use kube::config::{InferConfigError, KubeconfigError};

use crate::transport::TransportError;

/// Why there is no [`Connection`](super::Connection).
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor a cluster around this program was found.
    #[error("no cluster configuration: {detail}; set KUBECONFIG, or run in a pod with a service account")]
    Infer {
        /// What is wrong; nothing of a kubeconfig's text is in it.
        detail: String,
    },
    /// The URL of the server.
    #[error("the server's URL {url:?} cannot be used: {detail}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        detail: String,
    },
    /// Certificates, keys, or the name to look for in the server's certificate.
    #[error("TLS with {server} cannot be set up: {detail}; check the certificates in the kubeconfig")]
    Tls {
        /// The server.
        server: String,
        /// What is wrong.
        detail: String,
    },
    /// Tokens, passwords, or the plugin that gives them.
    #[error("no credentials: {detail}")]
    Credentials {
        /// What is wrong; no secret is in it.
        detail: String,
    },
    /// A header that the configuration wants to be sent with each request.
    #[error("the configured headers cannot be sent: {detail}")]
    Headers {
        /// What is wrong.
        detail: String,
    },
    /// The server is to be reached through a proxy.
    #[error(
        "the proxy {proxy} is configured for {server}, and proxies cannot be used yet; unset proxy-url and https_proxy"
    )]
    Proxy {
        /// The proxy, without credentials.
        proxy: String,
        /// The server.
        server: String,
    },
    /// The operating system gives no threads.
    #[error("no threads for the connection: {0}; raise the limit of threads")]
    Threads(#[source] io::Error),
}

impl From<InferConfigError> for ConnectError {
    fn from(error: InferConfigError) -> Self {
        let detail = match error.source().and_then(|source| source.downcast_ref()) {
            Some(error) => unusable(error),
            None => "neither a kubeconfig nor a service account is there".to_owned(),
        };
        Self::Infer { detail }
    }
}

/// Why a kubeconfig cannot be used, without its text, which holds tokens and keys.
fn unusable(error: &KubeconfigError) -> String {
    let KubeconfigError::Parse(error) = error else { return error.to_string() };
    match error.location() {
        Some(at) => format!("the kubeconfig is none, from line {}, column {} on", at.line(), at.column()),
        None => "the kubeconfig is none".to_owned(),
    }
}

/// Why a request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SendError {
    /// No connection, no answer, or not in time.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// No credentials to send it with; the server has not seen it.
    #[error("no credentials for {server}: {detail}")]
    Credentials {
        /// The server.
        server: String,
        /// What is wrong; no secret is in it.
        detail: String,
    },
}

impl SendError {
    /// Whether the server may have acted on the request; if not, asking again is safe whatever it was.
    pub fn maybe_sent(&self) -> bool {
        match self {
            Self::Transport(error) => error.maybe_sent(),
            Self::Credentials { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn a_malformed_kubeconfig_is_named_by_its_place_and_not_quoted() {
        let text = "users:\n- name: admin\n  user: {token: s3cr3t-token, token: [}\n";
        let error = Kubeconfig::from_yaml(text).unwrap_err();
        assert!(error.to_string().contains("s3cr3t"), "kube quotes it: {error}");
        let told = unusable(&error);
        assert!(told.contains("line 3") && !told.contains("s3cr3t"), "{told}");
    }
}
