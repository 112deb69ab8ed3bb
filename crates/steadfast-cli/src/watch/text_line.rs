//! Text line of one event: time, symbol, resource, object, changed fields, and field manager.

use crate::changes::phrases::{HealthEffect, Phrase};
use crate::changes::text::{escape, shorten, width};
use std::fmt::Write as _;

/// Colours of the terminal, as codes of the escape sequence.
pub(super) const GREEN: &str = "32";
pub(super) const YELLOW: &str = "33";
pub(super) const RED: &str = "31";
const DIM: &str = "2";

/// Minimum number of columns for a line. A narrower terminal wraps lines instead.
const MIN_COLUMNS: usize = 40;

/// Maximum number of phrases in a line without a limited width.
const MAX_PHRASES: usize = 16;

/// Part of a line with one colour.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    text: String,
    color: Option<&'static str>,
}

/// Line under construction.
#[derive(Debug, Default)]
pub(super) struct TextLine {
    spans: Vec<Span>,
}

impl TextLine {
    /// Adds text in a colour, after a space unless the line is empty. Escapes characters that a terminal interprets.
    pub(super) fn add(&mut self, color: Option<&'static str>, text: &str) {
        if !text.is_empty() {
            self.separate(" ");
            self.push(color, &escape(text));
        }
    }

    /// Adds text in the colour of secondary information.
    pub(super) fn add_dim(&mut self, text: &str) {
        self.add(Some(DIM), text);
    }

    /// Adds phrases, separated by commas.
    pub(super) fn add_phrases(&mut self, phrases: &[Phrase]) {
        for (index, phrase) in phrases.iter().take(MAX_PHRASES).enumerate() {
            self.separate(if index == 0 { " " } else { ", " });
            let color = match phrase.effect {
                HealthEffect::Neutral => None,
                HealthEffect::Improved => Some(GREEN),
                HealthEffect::Degraded => Some(RED),
            };
            self.push(color, &phrase.text);
        }
        if phrases.len() > MAX_PHRASES {
            self.push(None, &format!(", +{} more", phrases.len() - MAX_PHRASES));
        }
    }

    fn separate(&mut self, separator: &str) {
        if !self.spans.is_empty() {
            self.push(None, separator);
        }
    }

    fn push(&mut self, color: Option<&'static str>, text: &str) {
        self.spans.push(Span { text: text.to_owned(), color });
    }

    /// Returns the line in at most `columns`, but not less than 40.
    pub(super) fn render(self, has_color: bool, columns: Option<usize>) -> String {
        self.render_within(has_color, columns.map_or(usize::MAX, |columns| columns.max(MIN_COLUMNS)))
    }

    /// Returns the line in at most `columns`.
    pub(super) fn render_within(mut self, has_color: bool, columns: usize) -> String {
        self.fit(columns);
        let mut line = String::new();
        for Span { text, color } in self.spans {
            match color.filter(|_| has_color) {
                Some(color) => drop(write!(line, "\x1b[{color}m{text}\x1b[0m")),
                None => line.push_str(&text),
            }
        }
        line
    }

    /// Shortens the line to `columns`, with an ellipsis at its end.
    fn fit(&mut self, columns: usize) {
        let total: usize = self.spans.iter().map(|span| width(&span.text)).sum();
        if total <= columns {
            return;
        }
        let mut remaining = columns;
        let spans = std::mem::take(&mut self.spans);
        for span in spans {
            let span_width = width(&span.text);
            // One column remains for the ellipsis.
            if span_width < remaining {
                remaining -= span_width;
                self.spans.push(span);
                continue;
            }
            let mut text = shorten(&span.text, remaining).into_owned();
            if !text.ends_with('…') {
                text = shorten(&format!("{text} "), remaining).into_owned();
            }
            return self.spans.push(Span { text, color: span.color });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> TextLine {
        let mut line = TextLine::default();
        line.add(None, "10:45:51.988Z");
        line.add(Some(YELLOW), "~ deployments.apps default/web");
        let phrase = |effect, text: &str| Phrase { text: text.to_owned(), effect };
        line.add_phrases(&[
            phrase(HealthEffect::Neutral, "replicas 3→5"),
            phrase(HealthEffect::Improved, "Ready False→True"),
        ]);
        line.add_dim("by kubectl");
        line
    }

    #[test]
    fn line_has_phrases_and_manager() {
        let expected = "10:45:51.988Z ~ deployments.apps default/web replicas 3→5, Ready False→True by kubectl";
        assert_eq!(line().render(false, None), expected);
        assert_eq!(line().render(false, Some(200)), expected);
    }

    #[test]
    fn line_fits_terminal() {
        for columns in 40..90 {
            let fitted = line().render(false, Some(columns));
            let full_width = width(&line().render(false, None));
            assert_eq!(width(&fitted), columns.min(full_width), "{columns}: {fitted}");
            assert_eq!(fitted.ends_with('…'), columns < full_width, "{columns}: {fitted}");
        }
    }

    #[test]
    fn color_is_optional_and_has_no_width() {
        let colored = line().render(true, Some(200));
        assert!(
            colored.contains(
                "\x1b[33m~ deployments.apps default/web\x1b[0m replicas 3→5, \x1b[32mReady False→True\x1b[0m"
            )
        );
        assert!(colored.ends_with("\x1b[2mby kubectl\x1b[0m"), "{colored}");
    }

    #[test]
    fn hostile_text_is_escaped() {
        let mut line = TextLine::default();
        line.add(None, "a\x1b[2Jb");
        assert_eq!(line.render(true, None), "a\\u{1b}[2Jb");
    }
}
