//! What a server wrote, as it may stand in a message or a log.

use std::borrow::Cow;
use std::fmt::Write;

/// `text` with control characters escaped, so that it is one line, and cut off after about `limit` bytes.
pub(crate) fn told(text: &str, limit: usize) -> Cow<'_, str> {
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
