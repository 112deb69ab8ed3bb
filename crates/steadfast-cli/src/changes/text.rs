//! Text of the cluster, made safe and short for a terminal.

use std::borrow::Cow;
use std::fmt::Display;

use steadfast_notify::engine_event::{escaped, is_unsafe};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Returns `text` with escapes instead of characters that a terminal interprets: control characters, line separators,
/// and characters that change the direction of text.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    // Most texts are safe, and are not copied.
    if text.chars().any(is_unsafe) { Cow::Owned(escaped(text)) } else { Cow::Borrowed(text) }
}

/// Returns the number with its noun: `1 gap`, `2 gaps`.
pub(crate) fn plural<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let ending = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{ending}")
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
    let mut remaining = columns.saturating_sub(1);
    let mut short = String::new();
    for character in text.chars() {
        let columns_of_character = character.width().unwrap_or(0);
        if columns_of_character > remaining {
            break;
        }
        remaining -= columns_of_character;
        short.push(character);
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
