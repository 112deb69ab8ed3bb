//! Text of the cluster, made safe and short for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Returns `text` with escapes instead of characters that a terminal interprets: control characters, line separators,
/// and characters that change the direction of text.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\n' => safe.push_str("\\n"),
            '\t' => safe.push_str("\\t"),
            '\r' => safe.push_str("\\r"),
            letter if is_unsafe(letter) => {
                // Writing to a String cannot fail.
                let _ = write!(safe, "\\u{{{:x}}}", letter as u32);
            }
            letter => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

/// Returns whether a terminal may interpret `letter`.
pub(crate) fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns the number of columns that `text` occupies.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Returns `text` in at most `columns`, with an ellipsis if it does not fit.
pub(crate) fn shorten(text: &str, columns: usize) -> Cow<'_, str> {
    if text.width() <= columns {
        return Cow::Borrowed(text);
    }
    let mut left = columns.saturating_sub(1);
    let mut short = String::new();
    for letter in text.chars() {
        let wide = letter.width().unwrap_or(0);
        if wide > left {
            break;
        }
        left -= wide;
        short.push(letter);
    }
    if columns > 0 {
        short.push('…');
    }
    Cow::Owned(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape("plain → text"), "plain → text");
        assert_eq!(escape("\u{1b}]0;owned\u{7}\r\n\u{9b}2J\u{202e}"), "\\u{1b}]0;owned\\u{7}\\r\\n\\u{9b}2J\\u{202e}");
    }

    #[test]
    fn shortened_text_fits_columns() {
        assert_eq!(shorten("replicas 3→5", 12), "replicas 3→5");
        assert_eq!(shorten("replicas 3→5", 10), "replicas …");
        assert_eq!(shorten("日本語", 5), "日本…");
        assert_eq!(shorten("日本語", 4), "日…");
        assert_eq!(shorten("abc", 0), "");
    }
}
