//! Client certificates: from base64 or files, through PEM, to a key that signs TLS handshakes.
//!
//! Go's `tls.X509KeyPair` is the model, since kubectl accepts what Go accepts: unrelated PEM sections are skipped, and
//! the certificate itself is not validated. The server decides whether it accepts the certificate, also for X.509
//! version 1.

use std::sync::Arc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use kube::config::AuthInfo;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use secrecy::ExposeSecret;

/// Base64 decoder with the rules of Go's `encoding/json`.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The object identifier of the curve P-521, DER-encoded.
const P521: &[u8] = &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23];

/// Decodes base64 that may be wrapped over several lines.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let joined: String = text.chars().filter(|character| !matches!(character, '\r' | '\n')).collect();
    BASE64.decode(joined).ok()
}

/// Returns the readable sections of a PEM text. Skips broken sections, and text between sections.
pub(super) fn sections(pem: &[u8]) -> Vec<(SectionKind, Vec<u8>)> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

/// Returns the client certificate and key that `info` itself names, as data or as files. Reads files, and so may block.
pub(super) fn of_user(info: &AuthInfo, provider: &CryptoProvider) -> Result<Option<Arc<CertifiedKey>>, String> {
    let certificate =
        read("client-certificate", info.client_certificate_data.as_deref(), info.client_certificate.as_deref())?;
    let key_data = info.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let key = read("client-key", key_data, info.client_key.as_deref())?;
    match (certificate, key) {
        // A key without a certificate identifies no client, and kubectl ignores it as well.
        (None, _) => Ok(None),
        (Some(_), None) => Err("client-key is missing, and client-certificate is present".to_owned()),
        (Some(certificate), Some(key)) => certified(&certificate, &key, provider).map(Some),
    }
}

fn read(field: &str, data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    match (data, file) {
        (Some(data), _) => decode_base64(data).map(Some).ok_or_else(|| format!("{field}-data is not base64")),
        (None, Some(file)) => std::fs::read(file)
            .map(Some)
            .map_err(|error| format!("the file of {field}, {file}, cannot be read: {error}")),
        (None, None) => Ok(None),
    }
}

/// Parses a certificate chain and its key, both in PEM.
pub(super) fn certified(
    certificate: &[u8],
    key: &[u8],
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, String> {
    let chain: Vec<CertificateDer<'static>> = sections(certificate)
        .into_iter()
        .filter(|(kind, _)| *kind == SectionKind::Certificate)
        .map(|(_, der)| der.into())
        .collect();
    if chain.is_empty() {
        return Err("client-certificate holds no certificate in PEM".to_owned());
    }
    if is_encrypted(key) {
        return Err(
            "client-key is encrypted with a passphrase; decrypt it with `openssl pkey`, or name a plugin (exec) \
                    that returns the certificate and the decrypted key"
                .to_owned(),
        );
    }
    // The first usable section counts, as in Go: a file may start with `EC PARAMETERS`, for example.
    let keys = sections(key).into_iter().find_map(|(kind, der)| match kind {
        SectionKind::PrivateKey => Some(PrivateKeyDer::Pkcs8(der.into())),
        SectionKind::RsaPrivateKey => Some(PrivateKeyDer::Pkcs1(der.into())),
        SectionKind::EcPrivateKey => Some(PrivateKeyDer::Sec1(der.into())),
        _ => None,
    });
    let key = keys.ok_or("client-key holds no private key in PEM")?;
    let signer = provider.key_provider.load_private_key(key.clone_key()).map_err(|error| {
        if contains(key.secret_der(), P521) || contains(&chain[0], P521) {
            return "client-key is on the curve P-521, and this rustls crypto provider cannot sign with it; build \
                    `steadfast` with its feature `aws-lc-rs`, or use a key on the curve P-256 or P-384"
                .to_owned();
        }
        // The error describes the structure of the key, and holds nothing of its content.
        format!("client-key cannot be used: {error}")
    })?;
    let certified = CertifiedKey::new(chain, signer);
    match certified.keys_match() {
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err("client-key does not belong to client-certificate".to_owned())
        }
        // A certificate that cannot be parsed here, of version 1 for example, may still be accepted by the server.
        _ => Ok(Arc::new(certified)),
    }
}

/// Returns true if `key` is encrypted, as PKCS #8 or in the older form of OpenSSL.
fn is_encrypted(key: &[u8]) -> bool {
    contains(key, b"-----BEGIN ENCRYPTED PRIVATE KEY-----") || contains(key, b"Proc-Type: 4,ENCRYPTED")
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_base64_decodes() {
        for text in ["aGVsbG8=", "aGVs\nbG8=\n", "aGVs\r\nbG8=", "aGVsbG9="] {
            assert_eq!(decode_base64(text).as_deref(), Some(b"hello".as_slice()), "{text:?}");
        }
        assert_eq!(decode_base64("aGVs bG8="), None, "kubectl rejects blanks as well");
    }

    #[test]
    fn encrypted_keys_are_named() {
        for key in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n\
             -----END RSA PRIVATE KEY-----\n",
        ] {
            assert!(is_encrypted(key.as_bytes()), "{key}");
        }
        assert!(!is_encrypted(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"));
    }
}
