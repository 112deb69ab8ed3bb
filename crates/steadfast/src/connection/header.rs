//! Values of the header `Authorization`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::HeaderValue;

/// Returns the value with `token`, if a header can hold it.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    sensitive(format!("Bearer {token}"))
}

/// Returns the value with a name and a password, if a header can hold it.
pub(super) fn basic(name: &str, password: &str) -> Option<HeaderValue> {
    sensitive(format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
}

fn sensitive(value: String) -> Option<HeaderValue> {
    // `Debug` of a sensitive value hides it, and HPACK never indexes it.
    let mut value = HeaderValue::try_from(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}
