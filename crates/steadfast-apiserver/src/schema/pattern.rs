//! Patterns: Go's regular expressions, translated to the `regex` crate.

use regex::{Regex, RegexBuilder};

/// Maximum size of a compiled pattern in bytes.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// A regular expression in Go's syntax.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    text: String,
    compiled: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Self, regex::Error> {
        let compiled = RegexBuilder::new(&translate(text)).size_limit(MAX_COMPILED_BYTES).build()?;
        Ok(Self { text: text.to_owned(), compiled })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.compiled.is_match(text)
    }
}

/// Translates the differences between the dialects: Go's classes are ASCII, and its brackets have no set operations.
fn translate(pattern: &str) -> String {
    let mut output = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    let (mut is_in_class, mut is_in_named_class) = (false, false);
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                // Go's classes contain only ASCII, unlike Rust's.
                Some(class @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')) => output.push_str(&class_of(class, is_in_class)),
                Some('b') if !is_in_class => output.push_str("(?-u:\\b)"),
                Some(other) => output.extend(['\\', other]),
                None => output.push('\\'),
            },
            '[' if is_in_class && letters.peek() == Some(&':') => {
                is_in_named_class = true;
                output.push('[');
            }
            // Go permits a plain `[` within brackets. Rust would start a nested class.
            '[' if is_in_class => output.push_str("\\["),
            '[' => {
                is_in_class = true;
                output.push('[');
                if letters.peek() == Some(&'^') {
                    output.extend(letters.next());
                }
                // The first character within brackets is literal.
                if letters.peek() == Some(&']') {
                    letters.next();
                    output.push_str("\\]");
                }
            }
            ']' if is_in_named_class => {
                is_in_named_class = false;
                output.push(']');
            }
            ']' => {
                is_in_class = false;
                output.push(']');
            }
            // `&&` and `~~` are set operations in Rust.
            '&' | '~' if is_in_class => output.extend(['\\', letter]),
            other => output.push(other),
        }
    }
    output
}

fn class_of(class: char, is_in_class: bool) -> String {
    let letters = match class.to_ascii_lowercase() {
        'd' => "0-9",
        's' => "\\t\\n\\f\\r ",
        _ => "0-9A-Za-z_",
    };
    match (class.is_ascii_lowercase(), is_in_class) {
        (true, true) => letters.to_owned(),
        (true, false) => format!("[{letters}]"),
        (false, _) => format!("[^{letters}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}")).is_match(text)
    }

    #[test]
    fn classes_are_ascii() {
        assert!(matches(r"^\d+$", "12") && !matches(r"^\d+$", "١٢"));
        assert!(matches(r"^[\w-]+$", "a-b_c") && !matches(r"^[\w-]+$", "ä"));
        assert!(matches(r"^\D$", "ä") && matches(r"^[^\d]$", "ä"));
    }

    #[test]
    fn brackets_have_no_set_operations() {
        assert!(matches(r"^[[a]+$", "[a") && matches(r"^[]x]$", "]") && matches(r"^[a&&b]+$", "&ab"));
        assert!(matches(r"^[a:]+$", "a:") && !matches(r"^[a:]$", "b"));
        assert!(matches(r"^[[:alpha:]_]+$", "ab_"));
    }

    #[test]
    fn dot_matches_one_character() {
        assert!(matches("^.{2}$", "äö") && !matches("^.$", "\n"));
    }

    #[test]
    fn oversized_patterns_are_rejected() {
        assert!(Pattern::new("(a{1000}){1000}").is_err());
    }
}
