//! Names for what is too long to be one, or has letters that no name may have.

use std::fmt::Write;

use ring::digest::{SHA256, digest};

/// The first `bytes` of the hash of `text`, in hexadecimal digits.
pub(crate) fn short_hash(text: &str, bytes: usize) -> String {
    let mut name = String::with_capacity(2 * bytes);
    for byte in digest(&SHA256, text.as_bytes()).as_ref().iter().take(bytes) {
        // Nothing fails that writes to a text.
        let _ = write!(name, "{byte:02x}");
    }
    name
}
