//! What can go wrong before a request reaches the transport, and there.

use std::io;

use crate::transport::TransportError;

/// Why there is no [`Connection`](super::Connection).
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor a cluster around this program was found.
    #[error("no cluster configuration: {0}; set KUBECONFIG, or run in a pod with a service account")]
    Infer(#[source] Box<kube::config::InferConfigError>),
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
