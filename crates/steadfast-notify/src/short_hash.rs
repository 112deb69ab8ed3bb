//! Short names for text that is too long for a name, or has invalid characters.

use std::fmt::Write;

use ring::digest::{SHA256, digest};

/// Returns the first `bytes` of the hash of `text`, in hexadecimal digits.
pub(crate) fn short_hash(text: &str, bytes: usize) -> String {
    let mut name = String::with_capacity(2 * bytes);
    for byte in digest(&SHA256, text.as_bytes()).as_ref().iter().take(bytes) {
        // Writing to a `String` cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}
