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

/// Part of a range within brackets, such as `a-z`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RangePart {
    /// No part: a hyphen is a plain character.
    None,
    /// The first character of a range, if a hyphen follows.
    Start,
    /// The hyphen of a range.
    Hyphen,
}

/// Translates the differences between the dialects: Go's classes are ASCII, and its brackets have no set operations.
fn translate(pattern: &str) -> String {
    let mut output = String::with_capacity(pattern.len());
    let mut characters = pattern.chars().peekable();
    let (mut is_in_class, mut is_in_named_class) = (false, false);
    let mut part = RangePart::None;
    while let Some(character) = characters.next() {
        let previous = part;
        // A single character can start a range, unless it ends one.
        part = if previous == RangePart::Hyphen { RangePart::None } else { RangePart::Start };
        match character {
            '\\' => match characters.next() {
                // Go's classes contain only ASCII, unlike Rust's.
                Some(class @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')) => {
                    output.push_str(&class_of(class, is_in_class));
                    part = RangePart::None;
                }
                // The names of Unicode classes, as in `\pL` and `\p{Greek}`.
                Some(class @ ('p' | 'P')) => {
                    output.extend(['\\', class]);
                    output.extend(characters.next_if(|character| *character != '{' && *character != ']'));
                    if characters.peek() == Some(&'{') {
                        for inside in characters.by_ref() {
                            output.push(inside);
                            if inside == '}' {
                                break;
                            }
                        }
                    }
                    part = RangePart::None;
                }
                Some('b') if !is_in_class => output.push_str("(?-u:\\b)"),
                Some(other) => output.extend(['\\', other]),
                None => output.push('\\'),
            },
            '[' if is_in_class && characters.peek() == Some(&':') => {
                is_in_named_class = true;
                output.push('[');
            }
            // Go permits a plain `[` within brackets. Rust would start a nested class.
            '[' if is_in_class => output.push_str("\\["),
            '[' => {
                is_in_class = true;
                part = RangePart::None;
                output.push('[');
                if characters.peek() == Some(&'^') {
                    output.extend(characters.next());
                }
                // The first character within brackets is literal.
                if characters.peek() == Some(&']') {
                    characters.next();
                    part = RangePart::Start;
                    output.push_str("\\]");
                }
            }
            ']' if is_in_named_class => {
                is_in_named_class = false;
                part = RangePart::None;
                output.push(']');
            }
            ']' => {
                is_in_class = false;
                output.push(']');
            }
            '-' if is_in_class && previous == RangePart::Start && characters.peek() != Some(&']') => {
                part = RangePart::Hyphen;
                output.push('-');
            }
            // `--`, `&&` and `~~` are set operations in Rust.
            '-' | '&' | '~' if is_in_class => output.extend(['\\', character]),
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
    fn hyphens_in_brackets_are_those_of_go() {
        for (class, members, others) in [
            // The range from `+` to `-`. Rust would remove `-` from the class.
            (r"[+--]", "+,-", ".*"),
            (r"[--/]", "-./", "+0"),
            (r"[\d--/]", "09-./", ",a"),
            (r"[\p{Nd}-z]", "09-z", "ay"),
            (r"[\pN-z]", "09-z", "ay"),
            (r"[\x21--]", "!+-", ". "),
            (r"[[:digit:]-z]", "09-z", "ay"),
            (r"[a-]", "a-", "b"),
            (r"[]-a]", "]^a", "b-"),
        ] {
            for (texts, expected) in [(members, true), (others, false)] {
                for text in texts.split("").filter(|text| !text.is_empty()) {
                    assert_eq!(matches(&format!("^{class}$"), text), expected, "{class} {text}");
                }
            }
        }
        assert!(Pattern::new("[a--]").is_err());
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
