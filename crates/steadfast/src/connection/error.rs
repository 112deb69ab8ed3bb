//! Errors before a request reaches the transport, and errors of the transport.

use std::error::Error as _;
use std::io;

use kube::client::AuthError;
use kube::config::{InferConfigError, KubeconfigError, LoadDataError};
use tower::BoxError;

use crate::transport::TransportError;

/// Error of creating a [`Connection`](super::Connection).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Neither a kubeconfig nor a cluster around this program was found.
    #[error("no cluster configuration: {detail}; set KUBECONFIG, or run in a pod with a service account")]
    Infer {
        /// The reason, without any text of a kubeconfig.
        detail: String,
    },
    /// A kubeconfig cannot be used.
    #[error("the kubeconfig cannot be used: {detail}")]
    Kubeconfig {
        /// The reason and its position, without any text of the kubeconfig.
        detail: String,
    },
    /// The URL of the server cannot be used.
    #[error("the server's URL {url:?} cannot be used: {detail}")]
    Url {
        /// The URL.
        url: String,
        /// The reason.
        detail: String,
    },
    /// Certificates, keys, or the expected name in the server's certificate cannot be used.
    #[error("TLS with {server} cannot be set up: {detail}; check the certificates in the kubeconfig")]
    Tls {
        /// The server.
        server: String,
        /// The reason.
        detail: String,
    },
    /// Tokens, passwords, or the plugin that returns them cannot be used.
    #[error("no credentials: {detail}")]
    Credentials {
        /// The reason, without any secret.
        detail: String,
    },
    /// A configured header of all requests cannot be used.
    #[error("the configured headers cannot be sent: {detail}")]
    Headers {
        /// The reason.
        detail: String,
    },
    /// The proxy before the server cannot be used.
    #[error("the proxy {proxy} for {server} cannot be used: {detail}; check proxy-url and https_proxy")]
    Proxy {
        /// The proxy, without credentials.
        proxy: String,
        /// The server.
        server: String,
        /// The reason.
        detail: String,
    },
    /// The operating system cannot start a thread.
    #[error("cannot start a thread for the connection: {0}; raise the limit of threads")]
    Threads(#[source] io::Error),
}

impl From<InferConfigError> for ConnectError {
    fn from(error: InferConfigError) -> Self {
        let detail = match error.source().and_then(|source| source.downcast_ref()) {
            Some(error) => unusable(error),
            None => "neither a kubeconfig nor a service account exists".to_owned(),
        };
        Self::Infer { detail }
    }
}

impl From<KubeconfigError> for ConnectError {
    fn from(error: KubeconfigError) -> Self {
        Self::Kubeconfig { detail: unusable(&error) }
    }
}

/// Describes why a kubeconfig cannot be used, and where. Never quotes its text, which holds tokens and keys.
fn unusable(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, path) => format!("{} cannot be read: {error}", path.display()),
        KubeconfigError::FindPath => "no home directory is known, so no kubeconfig was found".to_owned(),
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("it is not a kubeconfig: syntax error at line {}, column {}", at.line(), at.column()),
            None => "it is not a kubeconfig".to_owned(),
        },
        KubeconfigError::KindMismatch | KubeconfigError::ApiVersionMismatch => {
            "the kubeconfig files differ in kind or apiVersion".to_owned()
        }
        KubeconfigError::CurrentContextNotSet => "no current context is set".to_owned(),
        KubeconfigError::LoadContext(name) => format!("the context {name:?} does not exist"),
        KubeconfigError::LoadClusterOfContext(name) => format!("the context's cluster {name:?} does not exist"),
        KubeconfigError::MissingClusterUrl => "the cluster has no server".to_owned(),
        KubeconfigError::ParseClusterUrl(error) => format!("the cluster's server is not a URL: {error}"),
        KubeconfigError::ParseProxyUrl(error) => format!("proxy-url, or https_proxy, is not a URL: {error}"),
        KubeconfigError::LoadCertificateAuthority(error) => unusable_data("certificate-authority", error),
        KubeconfigError::LoadClientCertificate(error) => unusable_data("client-certificate", error),
        KubeconfigError::LoadClientKey(error) => unusable_data("client-key", error),
        KubeconfigError::ParseCertificates(_) => "the certificate-authority is not PEM".to_owned(),
        // Further variants exist only with features of `kube` that other crates of the program may enable.
        #[allow(unreachable_patterns)]
        other => other.to_string(),
    }
}

fn unusable_data(field: &str, error: &LoadDataError) -> String {
    match error {
        LoadDataError::DecodeBase64(_) => format!("{field}-data is not base64"),
        LoadDataError::ReadFile(error, path) => {
            format!("the file of {field}, {}, cannot be read: {error}", path.display())
        }
        LoadDataError::NoBase64DataOrFile => format!("{field} is missing"),
    }
}

/// Describes an error of `kube` without secrets.
pub(super) fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(error) => describe_auth(error),
        kube::Error::InferKubeconfig(error) => unusable(error),
        error => error.to_string(),
    }
}

pub(super) fn describe_boxed(error: &BoxError) -> String {
    match error.downcast_ref::<AuthError>() {
        Some(error) => describe_auth(error),
        None => "their source failed".to_owned(),
    }
}

/// Describes an error of authentication. The text of `kube` is not used: it quotes a plugin's output, which may hold a
/// token.
fn describe_auth(error: &AuthError) -> String {
    match error {
        // The plugin's arguments, environment and output may hold secrets.
        AuthError::AuthExecRun { out, .. } => {
            format!("the credential plugin failed ({}); run the plugin in a shell to see the reason", out.status)
        }
        AuthError::AuthExecParse(_) => {
            "the output of the credential plugin is not an ExecCredential; run the plugin in a shell to see its output"
                .to_owned()
        }
        AuthError::ParseTokenKey(_) | AuthError::AuthExecSerialize(_) => {
            "the credential plugin's input or output is not the expected JSON; run the plugin in a shell to see its output"
                .to_owned()
        }
        AuthError::AuthExec(_) => "the configured auth provider cannot be used; use an exec plugin instead".to_owned(),
        AuthError::InvalidBasicAuth(_)
        | AuthError::InvalidBearerToken(_)
        | AuthError::UnrefreshableTokenResponse
        | AuthError::ExecPluginFailed
        | AuthError::MalformedTokenExpirationDate(_)
        | AuthError::AuthExecStart(_)
        | AuthError::ReadTokenFile(..)
        | AuthError::MissingCommand
        | AuthError::ExecMissingClusterInfo
        | AuthError::NoValidNativeRootCA(_) => error.to_string(),
        // Further variants exist only with features of `kube` that other crates of the program may enable.
        #[allow(unreachable_patterns)]
        _ => "their source failed".to_owned(),
    }
}

/// Error of a request without a response.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No connection, no response, or a timeout.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// No credentials are available; the request was not sent.
    #[error("no credentials for {server}: {detail}")]
    Credentials {
        /// The server.
        server: String,
        /// The reason, without any secret.
        detail: String,
    },
    /// A layer of the connection failed.
    #[error("a layer of the connection failed: {detail}")]
    Layer {
        /// Error of the layer.
        detail: String,
        /// True if the layer may have sent the request.
        maybe_sent: bool,
    },
}

/// Errors of layers, for [`ConnectionBuilder::layer`](super::ConnectionBuilder::layer). Errors of the connection that a
/// layer passes on stay unchanged.
impl From<tower::BoxError> for SendError {
    fn from(error: tower::BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => *own,
            // A layer, such as a timeout, can fail before or after its inner service.
            Err(error) => Self::Layer { detail: error.to_string(), maybe_sent: true },
        }
    }
}

impl SendError {
    /// Returns true if the server may have acted on the request. If false, a retry is safe even for a write.
    pub fn maybe_sent(&self) -> bool {
        match self {
            Self::Transport(error) => error.maybe_sent(),
            Self::Credentials { .. } => false,
            Self::Layer { maybe_sent, .. } => *maybe_sent,
        }
    }

    /// Describes the cause, without advice about a write.
    pub fn cause(&self) -> String {
        match self {
            Self::Transport(error) => error.cause(),
            Self::Credentials { .. } | Self::Layer { .. } => self.to_string(),
        }
    }
}

debug_as_message!(ConnectError, SendError);

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn malformed_kubeconfig_error_has_line_but_no_content() {
        let text = "users:\n- name: admin\n  user: {token: s3cr3t-token, token: [}\n";
        let error = Kubeconfig::from_yaml(text).unwrap_err();
        assert!(error.to_string().contains("s3cr3t"), "kube quotes it: {error}");
        let message = unusable(&error);
        assert!(message.contains("line 3") && !message.contains("s3cr3t"), "{message}");
    }
}
