//! What can go wrong before a request reaches the transport, and there.

use std::error::Error as _;
use std::io;

use kube::client::AuthError;
use kube::config::{InferConfigError, KubeconfigError, LoadDataError};
use tower::BoxError;

use crate::transport::TransportError;

/// Why there is no [`Connection`](super::Connection).
#[derive(thiserror::Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor a cluster around this program was found.
    #[error("no cluster configuration: {detail}; set KUBECONFIG, or run in a pod with a service account")]
    Infer {
        /// What is wrong; nothing of a kubeconfig's text is in it.
        detail: String,
    },
    /// A kubeconfig.
    #[error("the kubeconfig cannot be used: {detail}")]
    Kubeconfig {
        /// What is wrong, and where; nothing of its text is in it.
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
    /// The proxy before the server.
    #[error("the proxy {proxy} for {server} cannot be used: {detail}; check proxy-url and https_proxy")]
    Proxy {
        /// The proxy, without credentials.
        proxy: String,
        /// The server.
        server: String,
        /// What is wrong.
        detail: String,
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

impl From<KubeconfigError> for ConnectError {
    fn from(error: KubeconfigError) -> Self {
        Self::Kubeconfig { detail: unusable(&error) }
    }
}

/// Why a kubeconfig cannot be used: what is wrong and where, never its text, which holds tokens and keys.
fn unusable(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, path) => format!("{} cannot be read: {error}", path.display()),
        KubeconfigError::FindPath => "there is no home directory to look for one in".to_owned(),
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("it is no kubeconfig, from line {}, column {} on", at.line(), at.column()),
            None => "it is no kubeconfig".to_owned(),
        },
        KubeconfigError::KindMismatch | KubeconfigError::ApiVersionMismatch => {
            "the files that it is made of differ in kind or apiVersion".to_owned()
        }
        KubeconfigError::CurrentContextNotSet => "no context is current".to_owned(),
        KubeconfigError::LoadContext(name) => format!("there is no context {name:?}"),
        KubeconfigError::LoadClusterOfContext(name) => format!("the context's cluster {name:?} is not there"),
        KubeconfigError::MissingClusterUrl => "the cluster has no server".to_owned(),
        KubeconfigError::ParseClusterUrl(error) => format!("the cluster's server is no URL: {error}"),
        KubeconfigError::ParseProxyUrl(error) => format!("proxy-url, or https_proxy, is no URL: {error}"),
        KubeconfigError::LoadCertificateAuthority(error) => unusable_data("certificate-authority", error),
        KubeconfigError::LoadClientCertificate(error) => unusable_data("client-certificate", error),
        KubeconfigError::LoadClientKey(error) => unusable_data("client-key", error),
        KubeconfigError::ParseCertificates(_) => "its certificate-authority is no PEM".to_owned(),
        // Compiled in only with features that other crates of a program may ask of `kube`.
        #[allow(unreachable_patterns)]
        other => other.to_string(),
    }
}

fn unusable_data(field: &str, error: &LoadDataError) -> String {
    match error {
        LoadDataError::DecodeBase64(_) => format!("{field}-data is no base64"),
        LoadDataError::ReadFile(error, path) => {
            format!("the file of {field}, {}, cannot be read: {error}", path.display())
        }
        LoadDataError::NoBase64DataOrFile => format!("{field} is not there"),
    }
}

/// An error of `kube` in words in which no secret can be.
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

/// The library prints what a plugin has printed, a token among it; this says only what is known to be none.
fn describe_auth(error: &AuthError) -> String {
    match error {
        // Its arguments and environment may hold secrets as well as its output.
        AuthError::AuthExecRun { out, .. } => {
            format!("the credential plugin failed ({}); run it by hand to see why", out.status)
        }
        AuthError::AuthExecParse(_) => {
            "what the credential plugin printed is no ExecCredential; run it by hand to see it".to_owned()
        }
        AuthError::ParseTokenKey(_) | AuthError::AuthExecSerialize(_) => {
            "the credential plugin's input or output is not the JSON it should be; run it by hand to see it".to_owned()
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
        // Compiled in only with features that other crates of a program may ask of `kube`.
        #[allow(unreachable_patterns)]
        _ => "their source failed".to_owned(),
    }
}

/// Why a request has no answer.
#[derive(Clone, thiserror::Error)]
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

    /// What happened, without what to do next about a write.
    pub fn cause(&self) -> String {
        match self {
            Self::Transport(error) => error.cause(),
            Self::Credentials { .. } => self.to_string(),
        }
    }
}

debug_as_message!(ConnectError, SendError);

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
