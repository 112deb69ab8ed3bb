//! TSIG keys that sign requests.

use std::fmt;
use std::str::FromStr;

use domain::base::Name;
use domain::tsig::{Algorithm, Key as Tsig, KeyName};
use domain::utils::base64;

use super::error::DnsError;

/// Key shared with the server ([RFC 8945](https://www.rfc-editor.org/rfc/rfc8945)). It is parsed from the value of
/// nsupdate's flag `-y`: `ALGORITHM:NAME:SECRET`. The algorithm is hmac-sha256, hmac-sha384, hmac-sha512 or the old
/// hmac-sha1.
///
/// ```
/// use steadfast_targets::dns::TsigKey;
///
/// let key: TsigKey = "hmac-sha256:mirror:c3RlYWRmYXN0IHN0ZWFkZmFzdCBzdGVhZGZhc3QhISE=".parse()?;
/// assert_eq!(format!("{key:?}"), "TsigKey(hmac-sha256:mirror.)");
/// # Ok::<(), steadfast_targets::dns::DnsError>(())
/// ```
#[derive(Clone)]
pub struct TsigKey {
    pub(super) tsig: Tsig,
}

/// Minimum length of a secret, in bytes. A shorter secret could be guessed.
const MIN_SECRET_BYTES: usize = 16;

impl TsigKey {
    /// Creates the key `name` of the server's configuration, with its `secret` in Base64.
    ///
    /// # Errors
    ///
    /// Returns an error if a part is invalid.
    pub fn new(algorithm: &str, name: &str, secret: &str) -> Result<Self, DnsError> {
        let algorithm = Algorithm::from_str(&algorithm.to_ascii_lowercase()).map_err(|_| {
            DnsError::TsigKey("its algorithm is not hmac-sha256, hmac-sha384, hmac-sha512 or hmac-sha1")
        })?;
        let mut name: KeyName = Name::from_str(name).map_err(|_| DnsError::TsigKey("its name is not a domain name"))?;
        name.make_canonical();
        let secret: Vec<u8> =
            base64::decode(secret.trim()).map_err(|_| DnsError::TsigKey("its secret is not valid Base64"))?;
        if secret.len() < MIN_SECRET_BYTES {
            return Err(DnsError::TsigKey("its secret has fewer than 16 bytes"));
        }
        let key = Tsig::new(algorithm, &secret, name, None, None);
        key.map(|tsig| Self { tsig }).map_err(|_| DnsError::TsigKey("its signatures would be too short"))
    }
}

impl FromStr for TsigKey {
    type Err = DnsError;

    fn from_str(text: &str) -> Result<Self, DnsError> {
        let mut parts = text.trim().splitn(3, ':');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(algorithm), Some(name), Some(secret)) => Self::new(algorithm, name, secret),
            _ => Err(DnsError::TsigKey("it is not of the form ALGORITHM:NAME:SECRET")),
        }
    }
}

/// Omits the secret.
impl fmt::Debug for TsigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TsigKey({}:{})", self.tsig.algorithm(), self.tsig.name().fmt_with_dot())
    }
}

impl AsRef<Tsig> for TsigKey {
    fn as_ref(&self) -> &Tsig {
        &self.tsig
    }
}
