//! Text from a server, prepared for messages and logs.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns `text` on one line, with control characters escaped, shortened to about `limit` bytes.
pub(crate) fn printable(text: &str, limit: usize) -> Cow<'_, str> {
    // Control characters of a server could forge log lines.
    if text.len() <= limit && !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut printable = String::new();
    for (at, character) in text.char_indices() {
        if printable.len() >= limit {
            let _ = write!(printable, "… ({} bytes more)", text.len() - at);
            break;
        }
        if character.is_control() { printable.extend(character.escape_default()) } else { printable.push(character) }
    }
    Cow::Owned(printable)
}
