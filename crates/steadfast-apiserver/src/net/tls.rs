//! TLS with certificate authorities that are created for this server.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::error::StartError;

/// Names in the server's certificate; the last one is the name of a service in a cluster.
const CERTIFICATE_NAMES: [&str; 4] = ["127.0.0.1", "::1", "localhost", "kubernetes.default.svc"];

/// TLS configuration of all replicas.
#[derive(Clone)]
pub(crate) struct ServerTls {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) ca_pem: String,
    clients: Arc<Clients>,
    offers_http2: bool,
}

/// Certificate and key of a client, in PEM.
#[derive(Clone)]
pub struct ClientIdentity {
    /// Certificate in PEM.
    pub certificate_pem: String,
    /// Private key in PEM.
    pub key_pem: String,
}

/// Clients that authenticate with a certificate.
struct Clients {
    authority: CertifiedIssuer<'static, KeyPair>,
    /// Accepted certificates and their users.
    user_by_certificate: Mutex<BTreeMap<Vec<u8>, String>>,
}

impl ServerTls {
    /// Creates the authorities and a server certificate. With `offers_http2`, HTTP/2 is offered first.
    pub(crate) fn generate(offers_http2: bool) -> Result<Self, StartError> {
        let clients =
            Clients { authority: authority("steadfast embedded client CA")?, user_by_certificate: Mutex::default() };
        Self::with_clients(offers_http2, Arc::new(clients))
    }

    /// Creates a new server authority and certificate, and keeps the clients.
    pub(crate) fn with_new_authority(&self) -> Result<Self, StartError> {
        Self::with_clients(self.offers_http2, self.clients.clone())
    }

    fn with_clients(offers_http2: bool, clients: Arc<Clients>) -> Result<Self, StartError> {
        let authority = authority("steadfast embedded CA")?;
        let mut server = CertificateParams::new(CERTIFICATE_NAMES.map(str::to_owned))?;
        server.distinguished_name.push(DnType::CommonName, "steadfast embedded API server");
        server.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &authority)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut trusted = RootCertStore::empty();
        trusted.add(clients.authority.der().clone())?;
        // As in the real server, a client without a certificate may have a token.
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| StartError::Tls(rustls::Error::General(error.to_string())))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let http1 = b"http/1.1".to_vec();
        // The order is the preference of the server.
        config.alpn_protocols = if offers_http2 { vec![b"h2".to_vec(), http1] } else { vec![http1] };
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), ca_pem: authority.pem(), clients, offers_http2 })
    }

    /// Issues a client certificate for the user `name`.
    pub(crate) fn issue(&self, name: &str) -> Result<ClientIdentity, StartError> {
        let mut client = CertificateParams::default();
        client.distinguished_name.push(DnType::CommonName, name);
        client.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = client.signed_by(&key, &self.clients.authority)?;
        // Only listed certificates are accepted, so a revocation removes the entry.
        self.clients.lock_users().insert(certificate.der().to_vec(), name.to_owned());
        Ok(ClientIdentity { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// Revokes the certificates of the user `name`.
    pub(crate) fn revoke(&self, name: &str) {
        self.clients.lock_users().retain(|_, user| user != name);
    }

    /// Returns the user of `certificate`.
    pub(crate) fn user_of_certificate(&self, certificate: &[u8]) -> Option<String> {
        self.clients.lock_users().get(certificate).cloned()
    }
}

impl Clients {
    fn lock_users(&self) -> parking_lot::MutexGuard<'_, BTreeMap<Vec<u8>, String>> {
        self.user_by_certificate.lock()
    }
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>, StartError> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, name);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    Ok(CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?)
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientIdentity").finish_non_exhaustive()
    }
}
