//! The TLS configuration of a connection: `kube`'s for the server, with our own handling of the client certificate.

use std::sync::Arc;

use kube::client::ConfigExt;
use rustls::crypto::CryptoProvider;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::error;

/// Error message if no rustls crypto provider is available.
const NO_PROVIDER: &str = "no rustls crypto provider: build `steadfast` with its feature `ring` or `aws-lc-rs`, or install \
                           one with `rustls::crypto::CryptoProvider::install_default` before connecting";

/// Returns the rustls crypto provider: the program's own choice, or the provider that this library was built with.
pub(super) fn provider() -> Result<Arc<CryptoProvider>, String> {
    // The program's own choice has precedence. With two compiled-in providers and no default, rustls panics.
    if CryptoProvider::get_default().is_none() {
        install_provider();
    }
    CryptoProvider::get_default().cloned().ok_or_else(|| NO_PROVIDER.to_owned())
}

/// Returns the TLS configuration for the server of `config`. The client authenticates with `certificate`, if any.
pub(super) fn client_config(
    config: &kube::Config,
    certificate: Option<Arc<CertifiedKey>>,
) -> Result<rustls::ClientConfig, String> {
    provider()?;
    // An empty trust store fails only in the first handshake, so the error is reported here.
    let has_no_roots = config.root_cert.as_ref().is_some_and(Vec::is_empty);
    if has_no_roots && config.root_cert_file.is_none() && !config.accept_invalid_certs {
        return Err("the certificate-authority holds no certificate".to_owned());
    }
    // The configuration is built without credentials. With credentials, `kube` would run a credential plugin here, and
    // would reject certificates that a server may accept.
    let mut anonymous = config.clone();
    anonymous.auth_info = kube::config::AuthInfo::default();
    let mut tls = anonymous.rustls_client_config().map_err(|problem| error::describe(&problem))?;
    if let Some(certificate) = certificate {
        tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certificate));
    }
    Ok(tls)
}

/// Installs the compiled-in crypto provider, if any, as the default of the process.
fn install_provider() {
    // An error means that another thread has just installed a default, which is suitable too.
    #[cfg(feature = "aws-lc-rs")]
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    drop(rustls::crypto::ring::default_provider().install_default());
}
