//! Checks of certificates: validity period and matching key.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::validity::certificate_validity;

/// Certificates that expire within this time are reported.
const EXPIRY_WARNING: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Maximum size of a PEM file.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Validity of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CertificateStatus {
    /// Valid beyond the warning period.
    Valid,
    /// Valid now, but expires within the warning period.
    ExpiresSoon(String),
    /// Unusable.
    Unusable(String),
}

/// Checks a file of authorities. One valid certificate suffices, since bundles contain expired certificates.
pub(super) fn authorities(file: &Path, now: Timestamp) -> CertificateStatus {
    match certificates(file) {
        Ok(certificate_chain) => {
            let statuses = certificate_chain.iter().map(|certificate| status_of(certificate, now));
            statuses.min_by_key(severity).unwrap_or(CertificateStatus::Valid)
        }
        Err(reason) => CertificateStatus::Unusable(reason),
    }
}

/// Checks the client certificate, the first certificate in the file.
pub(super) fn client_certificate(file: &Path, now: Timestamp) -> CertificateStatus {
    match certificates(file) {
        // The first certificate in the file is the client's own. The others are the issuer chain.
        Ok(certificate_chain) => {
            certificate_chain.first().map_or(CertificateStatus::Valid, |certificate| status_of(certificate, now))
        }
        Err(reason) => CertificateStatus::Unusable(reason),
    }
}

/// Checks that a private key matches a certificate. An unreadable certificate is not an error here, because
/// [`client_certificate`] reports it.
///
/// # Errors
///
/// Returns an error if the key cannot be read, or belongs to another certificate.
pub(super) fn check_key(certificate: &Path, key: &Path) -> Result<(), String> {
    let bytes = read(key)?;
    let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| "no private key (PEM) in the file".to_owned())?;
    let Ok(chain) = certificates(certificate) else { return Ok(()) };
    match CertifiedKey::from_der(chain, key, &default_provider()) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
            Err("the key does not belong to the certificate".to_owned())
        }
        Err(error) => Err(format!("the key cannot be used: {error}")),
    }
}

fn severity(status: &CertificateStatus) -> u8 {
    match status {
        CertificateStatus::Valid => 0,
        CertificateStatus::ExpiresSoon(_) => 1,
        CertificateStatus::Unusable(_) => 2,
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let read_error = |error: std::io::Error| format!("cannot read the file {}: {error}", file.display());
    if file.metadata().map_err(read_error)?.len() > MAX_FILE_BYTES {
        return Err(format!("the file {} has more than {MAX_FILE_BYTES} bytes", file.display()));
    }
    std::fs::read(file).map_err(read_error)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(file)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates =
        certificates.map_err(|error| format!("cannot parse the file {} as PEM: {error}", file.display()))?;
    if certificates.is_empty() {
        return Err(format!("no certificate (PEM) in the file {}", file.display()));
    }
    Ok(certificates)
}

fn status_of(certificate: &[u8], now: Timestamp) -> CertificateStatus {
    let Some((valid_from, valid_until)) = certificate_validity(certificate) else {
        return CertificateStatus::Unusable("the certificate is not X.509".to_owned());
    };
    if valid_until <= now {
        CertificateStatus::Unusable(format!("the certificate expired on {valid_until}"))
    } else if valid_from > now {
        CertificateStatus::Unusable(format!("the certificate is not valid before {valid_from}"))
    } else if valid_until.duration_since(now) < EXPIRY_WARNING {
        let days = valid_until.duration_since(now).as_hours() / 24;
        CertificateStatus::ExpiresSoon(format!("the certificate expires on {valid_until}, in {days} days"))
    } else {
        CertificateStatus::Valid
    }
}
