//! Signature of a webhook's body.

use std::fmt::Write;

use http::HeaderValue;
use ring::hmac;

/// Header with the signature of the body: `sha256=` and the HMAC in hexadecimal digits.
pub const SIGNATURE_HEADER: &str = "steadfast-signature";

/// Returns the value of the signature header.
pub(super) fn signature(key: &hmac::Key, body: &str) -> Result<HeaderValue, http::Error> {
    let mut signature = "sha256=".to_owned();
    for byte in hmac::sign(key, body.as_bytes()).as_ref() {
        // Writing to a `String` cannot fail.
        let _ = write!(signature, "{byte:02x}");
    }
    Ok(HeaderValue::try_from(signature)?)
}
