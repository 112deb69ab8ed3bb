//! Text from a server, prepared for messages and logs.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns `text` on one line, with control characters escaped, shortened to about `limit` bytes.
pub(crate) fn told(text: &str, limit: usize) -> Cow<'_, str> {
    // Control characters of a server could forge log lines.
    if text.len() <= limit && !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut told = String::new();
    for (at, letter) in text.char_indices() {
        if told.len() >= limit {
            let _ = write!(told, "… ({} bytes more)", text.len() - at);
            break;
        }
        if letter.is_control() { told.extend(letter.escape_default()) } else { told.push(letter) }
    }
    Cow::Owned(told)
}
