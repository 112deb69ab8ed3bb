//! Regular expressions in RE2 syntax.
//!
//! The engine takes time in proportion to text and compiled size, so that no pattern takes exponential time. In RE2,
//! `\w`, `\d`, `\s` and `\b` are limited to ASCII, and a `[` inside a class is a plain character. The engine treats
//! both differently. Patterns are therefore translated first.

use regex::{Regex, RegexBuilder};

/// Maximum compiled size of a constant pattern.
pub(crate) const MAX_CONSTANT_PROGRAM_BYTES: usize = 512 << 10;

/// Maximum compiled size of a pattern that an evaluation computes.
pub(crate) const MAX_COMPUTED_PROGRAM_BYTES: usize = 64 << 10;

/// Maximum length of a pattern.
const MAX_PATTERN_BYTES: usize = 4096;

/// Limits of the compiled size, and the cost of a byte of text for a pattern within each limit.
const COSTS_BY_PROGRAM_BYTES: [(usize, u64); 3] = [(16 << 10, 1), (64 << 10, 4), (MAX_CONSTANT_PROGRAM_BYTES, 32)];

/// Compiled pattern.
pub(crate) struct Pattern {
    regex: Regex,
    cost_per_byte: u64,
}

impl Pattern {
    /// Compiles `pattern` within `max_bytes`; the error states the requirement that the pattern does not meet.
    pub(crate) fn compile(pattern: &str, max_bytes: usize) -> Result<Self, &'static str> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err("the pattern is too long");
        }
        let translated = translate(pattern);
        // The smallest sufficient limit determines the price of a search. A large program is slower per byte of text.
        for (size, cost_per_byte) in COSTS_BY_PROGRAM_BYTES.into_iter().filter(|(size, _)| *size <= max_bytes) {
            let compiled = RegexBuilder::new(&translated)
                .size_limit(size)
                // Beyond the cache size of the lazy DFA the engine falls back to slower, still linear, matching.
                .dfa_size_limit(2 * MAX_COMPUTED_PROGRAM_BYTES)
                .nest_limit(50)
                .build();
            match compiled {
                Ok(regex) => return Ok(Self { regex, cost_per_byte }),
                // A pattern over this limit is tried at the next limit.
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(_) => return Err("the pattern is not a valid regular expression"),
            }
        }
        Err("the pattern is too large")
    }

    /// Returns the cost of a search in `text`.
    pub(crate) fn cost(&self, text: &str) -> u64 {
        (text.len() as u64 + 1).saturating_mul(self.cost_per_byte)
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl Pattern {
    /// Returns the first matches in `text`, up to `limit`.
    pub(crate) fn find(&self, text: &str, limit: usize) -> Vec<String> {
        self.regex.find_iter(text).take(limit).map(|found| found.as_str().to_owned()).collect()
    }
}

/// Translates a pattern of RE2 to the syntax of this engine.
fn translate(pattern: &str) -> String {
    let mut translated = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    let mut is_in_class = false;
    let mut is_first_in_class = false;
    while let Some(letter) = letters.next() {
        let was_first = std::mem::take(&mut is_first_in_class);
        match letter {
            '\\' => match letters.next() {
                Some('w') if is_in_class => translated.push_str("0-9A-Za-z_"),
                Some('d') if is_in_class => translated.push_str("0-9"),
                // RE2's `\s` lacks the vertical tab.
                Some('s') if is_in_class => translated.push_str(r"\t\n\f\r "),
                Some('w') => translated.push_str("[0-9A-Za-z_]"),
                Some('d') => translated.push_str("[0-9]"),
                Some('s') => translated.push_str(r"[\t\n\f\r ]"),
                Some('W') => translated.push_str("[^0-9A-Za-z_]"),
                Some('D') => translated.push_str("[^0-9]"),
                Some('S') => translated.push_str(r"[^\t\n\f\r ]"),
                Some('b') if !is_in_class => translated.push_str(r"(?-u:\b)"),
                // `\B` is not translated: its ASCII form could match within a character.
                // RE2 quotes text between `\Q` and `\E`; this engine has no such syntax.
                Some('Q') if !is_in_class => {
                    while let Some(quoted) = letters.next() {
                        if quoted == '\\' && letters.peek() == Some(&'E') {
                            letters.next();
                            break;
                        }
                        translated.push_str(&regex::escape(quoted.encode_utf8(&mut [0; 4])));
                    }
                }
                Some(other) => {
                    translated.push('\\');
                    translated.push(other);
                }
                None => translated.push('\\'),
            },
            '[' if !is_in_class => {
                is_in_class = true;
                is_first_in_class = true;
                translated.push('[');
                if letters.peek() == Some(&'^') {
                    letters.next();
                    translated.push('^');
                }
            }
            // A class of POSIX: `[:alpha:]`.
            '[' if letters.peek() == Some(&':') => {
                translated.push('[');
                for inside in letters.by_ref() {
                    translated.push(inside);
                    if inside == ']' {
                        break;
                    }
                }
            }
            '[' => translated.push_str(r"\["),
            // RE2 and POSIX treat `]` as a plain character directly after `[` or `[^`.
            ']' if is_in_class && was_first => translated.push_str(r"\]"),
            ']' => {
                is_in_class = false;
                translated.push(']');
            }
            // Only this engine has operators on classes, such as `&&` and `~~`.
            '&' | '~' if is_in_class => {
                translated.push('\\');
                translated.push(letter);
            }
            other => translated.push(other),
        }
    }
    translated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_re2() {
        let matches = |pattern: &str, text: &str| {
            Pattern::compile(pattern, MAX_CONSTANT_PROGRAM_BYTES).map(|pattern| pattern.is_match(text)).expect(pattern)
        };
        for (pattern, text, expected) in [
            (r"^\w+$", "abc_1", true),
            (r"^\w+$", "é", false),
            (r"^[\w.-]+$", "a.b-c", true),
            (r"^[^\d]+$", "abc", true),
            (r"^[[a]+$", "[a", true),
            (r"^[]a]+$", "]a", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"\bab\b", "x ab y", true),
            (r"^\D[\D]$", "ab", true),
            (r"^\pL$", "é", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn invalid_and_large_patterns_are_rejected() {
        for pattern in ["[", "(", "a{2", "*", r"\", "(?P<", "a{1000}{1000}", &"(".repeat(2000), &"a".repeat(5000)] {
            // `a{2` is plain text in RE2 and an error here.
            assert!(Pattern::compile(pattern, MAX_COMPUTED_PROGRAM_BYTES).is_err(), "{pattern}");
        }
    }
}
