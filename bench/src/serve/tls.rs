//! A certificate, and the kubeconfig that trusts it.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::BenchError;

/// Server side of TLS.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) acceptor: TlsAcceptor,
    authority: String,
}

impl Tls {
    /// Generates an authority and a certificate for the loopback interface. HTTP/2 is preferred.
    pub(super) fn generate() -> Result<Self, BenchError> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &authority)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        // The provider is explicit, because a process-wide default may be missing or ambiguous.
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        // The order is the preference of the server.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), authority: authority.pem() })
    }
}

/// Returns the kubeconfig for the server at `address`.
pub(super) fn kubeconfig(address: SocketAddr, tls: Option<&Tls>) -> String {
    let cluster = match tls {
        None => serde_json::json!({ "server": format!("http://{address}") }),
        Some(tls) => serde_json::json!({
            "server": format!("https://{address}"),
            "certificate-authority-data": base64(tls.authority.as_bytes()),
        }),
    };
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "bench", "cluster": cluster }],
        "users": [{ "name": "bench", "user": {} }],
        "contexts": [{ "name": "bench", "context": { "cluster": "bench", "user": "bench" } }],
        "current-context": "bench",
    })
    .to_string()
}

/// Encodes base64 (RFC 4648, section 4), as the API's type for bytes does.
fn base64(bytes: &[u8]) -> serde_json::Value {
    serde_json::json!(k8s_openapi::ByteString(bytes.to_vec()))
}
