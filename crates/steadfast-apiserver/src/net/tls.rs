//! TLS with a certificate authority made for this server.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use crate::builder::StartError;

/// The TLS side of all replicas.
#[derive(Clone)]
pub(crate) struct ServerTls {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) ca_pem: String,
}

impl ServerTls {
    /// Makes an authority and a certificate for `127.0.0.1` and `localhost`; HTTP/2 is offered first.
    pub(crate) fn generate(http2: bool) -> Result<Self, StartError> {
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "steadfast embedded CA");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        server.distinguished_name.push(DnType::CommonName, "steadfast embedded API server");
        server.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &authority)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let http1 = b"http/1.1".to_vec();
        config.alpn_protocols = if http2 { vec![b"h2".to_vec(), http1] } else { vec![http1] };
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), ca_pem: authority.pem() })
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}
