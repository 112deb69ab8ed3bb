//! Filter of a table: a text, a label selector or a CEL expression.

use kube::core::{Selector, SelectorExt};
use steadfast::parse_selector;

use super::row::Row;
use crate::until::{ObjectCondition, Until};

/// Maximum length of a filter in bytes.
pub(super) const MAX_FILTER_BYTES: usize = 1024;

/// Filter of a table.
#[derive(Clone, Debug, Default)]
pub(super) enum Filter {
    /// All rows match.
    #[default]
    All,
    /// A cell or the namespace contains the text, in lower case.
    Text(String),
    /// The labels match.
    Labels(Selector),
    /// The object satisfies the condition.
    Condition(ObjectCondition),
}

impl Filter {
    /// Parses a filter: `-l SELECTOR`, `=EXPRESSION` or a text. An empty text matches all rows.
    ///
    /// # Errors
    ///
    /// Returns the reason if the selector or the expression is invalid.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() > MAX_FILTER_BYTES {
            return Err(format!("the filter is longer than {MAX_FILTER_BYTES} bytes"));
        }
        if let Some(selector) = text.strip_prefix("-l") {
            return Ok(Self::Labels(parse_selector(selector.trim()).map_err(|error| error.to_string())?));
        }
        if let Some(expression) = text.strip_prefix('=') {
            return match expression.parse()? {
                Until::Met(condition) => Ok(Self::Condition(condition)),
                Until::Events(_) | Until::Elapsed(_) => Err(format!(
                    "{expression:?} is not an expression over `object`; example: =object.spec.replicas > 1"
                )),
            };
        }
        Ok(if text.is_empty() { Self::All } else { Self::Text(text.to_lowercase()) })
    }

    /// Returns whether the filter depends on the cells of the rows.
    pub(super) fn needs_content(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// Returns whether `row` matches. An expression decodes the object.
    pub(super) fn matches(&self, row: &Row) -> bool {
        match self {
            Self::All => true,
            Self::Text(text) => {
                let contains = |cell: &str| cell.to_lowercase().contains(text.as_str());
                row.cells().any(contains) || contains(row.key.namespace()) || contains(row.key.name())
            }
            Self::Labels(selector) => selector.matches(&row.object.labels()),
            Self::Condition(condition) => condition.holds(&row.object.decode()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::row::tests::row;

    #[test]
    fn filters_match_text_labels_expressions() {
        let row = row("shop", "web-0", &["web-0", "Running"], 7, "web");
        for (text, matches) in [
            ("", true),
            ("RUNNING", true),
            ("shop", true),
            ("default", false),
            ("-l app=web", true),
            ("-l app in (a,b)", false),
            ("-lapp=web", true),
            ("=object.spec.time > 5", true),
            ("=object.spec.time > 7", false),
            ("=object.missing > 7", false),
        ] {
            assert_eq!(Filter::parse(text).expect(text).matches(&row), matches, "{text}");
        }
    }

    #[test]
    fn invalid_filters_are_rejected() {
        for text in ["-l app in", "=object.", "=3", "=5s", "=object.spec.time + 1", &"x".repeat(2000)] {
            assert!(Filter::parse(text).is_err(), "{text}");
        }
    }
}
