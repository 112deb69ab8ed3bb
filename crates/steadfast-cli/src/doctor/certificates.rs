//! Check `certificates`: validity periods of the server's certificate chain and of the client certificate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use steadfast::kube::Config;
use steadfast::unstable::proxy_name;
use steadfast_notify::validity::certificate_validity;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::context::CheckContext;
use super::finding::Finding;
use crate::server_address::resolve;

/// Name of the check.
pub(super) const CHECK: &str = "certificates";

/// Remaining validity below which an expiry is reported.
const EXPIRY_WARNING: SignedDuration = SignedDuration::from_hours(14 * 24);

/// Deadline of a handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// Checks the certificates of each address, and that of the client.
pub(super) async fn check(context: &CheckContext) -> Vec<Finding> {
    let mut findings = server_findings(context).await;
    findings.extend(client_finding(&context.config, Timestamp::now()));
    findings
}

async fn server_findings(context: &CheckContext) -> Vec<Finding> {
    let (host, port) = context.host_and_port();
    let server = format!("{host}:{port}");
    if !context.is_tls() {
        let is_local =
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        return vec![if is_local {
            Finding::ok(CHECK, server, "plain HTTP on this machine, without certificates")
        } else {
            Finding::warning(
                CHECK,
                server,
                "the connection uses plain HTTP",
                "everyone on the network path can read tokens and Secrets, and HTTP/1.1 needs a connection for each watch",
                "use an https:// URL in the kubeconfig",
            )
        }];
    }
    if context.config.accept_invalid_certs {
        return vec![Finding::warning(
            CHECK,
            server,
            "certificates are not verified (insecure-skip-tls-verify)",
            "another machine can pretend to be the API server, and receives the token",
            "set certificate-authority-data in the kubeconfig, and remove insecure-skip-tls-verify",
        )];
    }
    if proxy_name(&context.config).is_some() {
        return vec![Finding::not_checked(CHECK, server, "the server is behind a proxy")];
    }
    let Ok(addresses) = resolve(&host, port).await else {
        return vec![Finding::not_checked(CHECK, server, "the name cannot be resolved; see the check reachability")];
    };
    let name = context.config.tls_server_name.clone().unwrap_or(host);
    let Ok(name) = ServerName::try_from(name) else {
        return vec![Finding::not_checked(CHECK, server, "the name of the server is not valid in a certificate")];
    };
    let inspected = addresses.iter().map(async |address| match presented(*address, name.clone()).await {
        Ok(chain) => chain_finding(address, &chain, Timestamp::now()),
        Err(reason) => Finding::not_checked(CHECK, address, format!("no TLS handshake: {reason}")),
    });
    join_all(inspected).await
}

/// Returns the certificates that the server at `address` presents, its own first. Sends no credentials.
async fn presented(address: SocketAddr, name: ServerName<'static>) -> Result<Vec<CertificateDer<'static>>, String> {
    let provider = Arc::new(default_provider());
    let recorder = Arc::new(ChainRecorder { chain: Mutex::default(), provider: provider.clone() });
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    let config = config.dangerous().with_custom_certificate_verifier(recorder.clone()).with_no_client_auth();
    let handshake = async {
        let socket = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(name, socket).await
    };
    let ended = timeout(HANDSHAKE_DEADLINE, handshake).await;
    let chain = std::mem::take(&mut *recorder.chain.lock());
    // The chain is complete even if the server ends the handshake later, for example without a client certificate.
    match ended {
        _ if !chain.is_empty() => Ok(chain),
        Ok(Ok(_)) => Err("the server presented no certificate".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no response within {} s", HANDSHAKE_DEADLINE.as_secs())),
    }
}

/// Verifier that records the certificates. It accepts every certificate, since its connection carries no request. The
/// connection that all other checks use verifies the certificates.
#[derive(Debug)]
struct ChainRecorder {
    chain: Mutex<Vec<CertificateDer<'static>>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ChainRecorder {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        issuers: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        *self.chain.lock() = [own].into_iter().chain(issuers).map(|one| one.clone().into_owned()).collect();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Judges the certificate that expires first in the chain of a server.
fn chain_finding(address: &SocketAddr, chain: &[CertificateDer<'_>], now: Timestamp) -> Finding {
    let validities: Option<Vec<_>> = chain.iter().map(|certificate| certificate_validity(certificate)).collect();
    let Some((from, until)) = validities.and_then(|all| all.into_iter().min_by_key(|(_, until)| *until)) else {
        return Finding::not_checked(CHECK, address, "a certificate of the server is not X.509");
    };
    let remedy = "renew the serving certificate of the API server, with kubeadm by `kubeadm certs renew apiserver` and a \
                  restart of the API server";
    let effect = "from the expiry on, no client can connect; open watches end with their connections";
    validity_finding(address, "the server's certificate", (from, until), now, effect, remedy)
}

/// Judges the client certificate of the kubeconfig; `None` without one.
fn client_finding(config: &Config, now: Timestamp) -> Option<Finding> {
    let user = &config.auth_info;
    let pem = match (&user.client_certificate_data, &user.client_certificate) {
        (Some(data), _) => {
            let joined: String = data.split_whitespace().collect();
            STANDARD.decode(joined).map_err(|_| "client-certificate-data is not base64".to_owned())
        }
        (None, Some(file)) => std::fs::read(file).map_err(|error| format!("{file} cannot be read: {error}")),
        (None, None) => return None,
    };
    let subject = "client certificate";
    let certificate = pem.and_then(|pem| CertificateDer::from_pem_slice(&pem).map_err(|error| format!("{error:?}")));
    let validity = certificate.and_then(|certificate| {
        certificate_validity(&certificate).ok_or_else(|| "the certificate is not X.509".to_owned())
    });
    Some(match validity {
        Ok(validity) => validity_finding(
            &subject,
            "it",
            validity,
            now,
            "from the expiry on, the server rejects each request with 401",
            "get a new certificate for the kubeconfig, for example by `kubeadm certs renew admin.conf`",
        ),
        Err(reason) => Finding::not_checked(CHECK, subject, reason),
    })
}

fn validity_finding(
    subject: &dyn std::fmt::Display,
    certificate: &str,
    (from, until): (Timestamp, Timestamp),
    now: Timestamp,
    effect: &'static str,
    remedy: &str,
) -> Finding {
    if until <= now {
        Finding::failure(CHECK, subject, format!("{certificate} expired on {until}"), effect, remedy)
    } else if from > now {
        let remedy = "set the clock of this machine, or wait; see the check clock";
        Finding::failure(CHECK, subject, format!("{certificate} is not valid before {from}"), effect, remedy)
    } else if until.duration_since(now) < EXPIRY_WARNING {
        let days = until.duration_since(now).as_hours() / 24;
        Finding::warning(CHECK, subject, format!("{certificate} expires on {until}, in {days} days"), effect, remedy)
    } else {
        Finding::ok(CHECK, subject, format!("{certificate} is valid until {until}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingSeverity;
    use super::*;

    #[test]
    fn validity_is_judged_by_remaining_time() {
        let now: Timestamp = "2026-11-27T00:00:00Z".parse().expect("a time");
        let days = |days: i64| now + SignedDuration::from_hours(days * 24);
        for (from, until, severity, part) in [
            (-10, 100, FindingSeverity::Ok, "valid until"),
            (-10, 3, FindingSeverity::Warning, "in 3 days"),
            (-10, -1, FindingSeverity::Failure, "expired on 2026-11-26"),
            (1, 10, FindingSeverity::Failure, "not valid before"),
        ] {
            let finding = validity_finding(&"c", "it", (days(from), days(until)), now, "effect", "renew it");
            assert_eq!(finding.severity, severity, "{finding:?}");
            assert!(finding.message.contains(part), "{finding:?}");
        }
    }
}
