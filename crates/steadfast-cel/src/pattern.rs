//! Regular expressions in RE2 syntax.
//!
//! The engine takes time in proportion to text and compiled size, so that no pattern takes exponential time. In RE2,
//! `\w`, `\d`, `\s` and `\b` are limited to ASCII, and `[`, `--`, `&&` and `~~` inside a class are plain characters.
//! The engine treats both differently. Patterns are therefore translated first.

use std::iter::Peekable;
use std::str::Chars;

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

/// Role of the next character in a class.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClassPosition {
    /// After the opening bracket.
    First,
    /// After an item that cannot start a range.
    Item,
    /// After a character that a hyphen would make the start of a range.
    Character,
    /// After the hyphen of a range.
    RangeEnd,
}

impl ClassPosition {
    /// Returns the position after a single character.
    fn after_character(self) -> Self {
        if self == Self::RangeEnd { Self::Item } else { Self::Character }
    }
}

/// Translates a pattern of RE2 to the syntax of this engine.
fn translate(pattern: &str) -> String {
    let mut translated = String::with_capacity(pattern.len());
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('w') => translated.push_str("[0-9A-Za-z_]"),
                Some('d') => translated.push_str("[0-9]"),
                // RE2's `\s` lacks the vertical tab.
                Some('s') => translated.push_str(r"[\t\n\f\r ]"),
                Some(other @ ('W' | 'D' | 'S')) => translated.push_str(negated_class(other)),
                Some('b') => translated.push_str(r"(?-u:\b)"),
                // `\B` is not translated: its ASCII form could match within a character.
                // RE2 quotes text between `\Q` and `\E`; this engine has no such syntax.
                Some('Q') => {
                    while let Some(quoted) = characters.next() {
                        if quoted == '\\' && characters.peek() == Some(&'E') {
                            characters.next();
                            break;
                        }
                        translated.push_str(&regex::escape(quoted.encode_utf8(&mut [0; 4])));
                    }
                }
                Some(other) => translated.extend(['\\', other]),
                None => translated.push('\\'),
            },
            '[' => translate_class(&mut characters, &mut translated),
            other => translated.push(other),
        }
    }
    translated
}

/// Translates a class of characters, whose opening bracket has been read.
fn translate_class(characters: &mut Peekable<Chars<'_>>, translated: &mut String) {
    translated.push('[');
    if characters.next_if_eq(&'^').is_some() {
        translated.push('^');
    }
    let mut position = ClassPosition::First;
    while let Some(character) = characters.next() {
        position = match character {
            '\\' => translate_class_escape(characters, translated, position),
            // A class of POSIX: `[:alpha:]`.
            '[' if position != ClassPosition::RangeEnd && characters.peek() == Some(&':') => {
                translated.push('[');
                for inside in characters.by_ref() {
                    translated.push(inside);
                    if inside == ']' {
                        break;
                    }
                }
                ClassPosition::Item
            }
            ']' if position != ClassPosition::First => {
                translated.push(']');
                return;
            }
            '-' if position == ClassPosition::Character && characters.peek() != Some(&']') => {
                translated.push('-');
                ClassPosition::RangeEnd
            }
            // Only this engine has nested classes and the operators `--`, `&&` and `~~`.
            // RE2 and POSIX treat `]` as a plain character directly after `[` or `[^`.
            '[' | ']' | '-' | '&' | '~' => {
                translated.extend(['\\', character]);
                position.after_character()
            }
            other => {
                translated.push(other);
                position.after_character()
            }
        };
    }
}

/// Translates an escape sequence in a class, whose backslash has been read. Returns the position after the escape.
fn translate_class_escape(
    characters: &mut Peekable<Chars<'_>>,
    translated: &mut String,
    position: ClassPosition,
) -> ClassPosition {
    let Some(character) = characters.next() else {
        translated.push('\\');
        return ClassPosition::Item;
    };
    match character {
        // A range cannot end in a class. Unchanged, such a range is an error, as in RE2.
        _ if position == ClassPosition::RangeEnd => translated.extend(['\\', character]),
        'w' => translated.push_str("0-9A-Za-z_"),
        'd' => translated.push_str("0-9"),
        's' => translated.push_str(r"\t\n\f\r "),
        'W' | 'D' | 'S' => translated.push_str(negated_class(character)),
        other => translated.extend(['\\', other]),
    }
    // The digits of `\x` and the name of `\p` can be in braces.
    if matches!(character, 'x' | 'p' | 'P') && characters.peek() == Some(&'{') {
        for inside in characters.by_ref() {
            translated.push(inside);
            if inside == '}' {
                break;
            }
        }
    } else {
        let length = match character {
            'x' => 2,
            'p' | 'P' => 1,
            _ => 0,
        };
        translated.extend(characters.by_ref().take(length));
    }
    match character {
        'w' | 'd' | 's' | 'W' | 'D' | 'S' | 'p' | 'P' => ClassPosition::Item,
        _ => position.after_character(),
    }
}

/// Returns the translation of `\W`, `\D` or `\S`.
fn negated_class(character: char) -> &'static str {
    match character {
        'W' => "[^0-9A-Za-z_]",
        'D' => "[^0-9]",
        _ => r"[^\t\n\f\r ]",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::compile(pattern, MAX_CONSTANT_PROGRAM_BYTES).map(|pattern| pattern.is_match(text)).expect(pattern)
    }

    #[test]
    fn classes_are_those_of_re2() {
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
    fn hyphens_in_classes_are_those_of_re2() {
        for (class, members, others) in [
            // The range from `+` to `-`; this engine would remove `-` from the class.
            (r"[+--]", "+,-", ".*"),
            (r"[--/]", "-./", "+0"),
            (r"[^+--]", "*.a", "+,-"),
            (r"[a-c--/]", "abc-./", "d,"),
            (r"[\d--/]", "09-./", ",a"),
            (r"[\pN--/]", "09-./", ",a"),
            (r"[\p{Nd}-z]", "09-z", "ay"),
            (r"[\x21--]", "!+-", ". "),
            (r"[\x{21}-\x23-z]", "!#-z", "$y"),
            (r"[[:digit:]-z]", "09-z", "ay"),
            (r"[a-]", "a-", "b"),
            (r"[]-a]", "]^a", "b-"),
            (r"[!-[]", "!A[", "]\\"),
            (r"[a&&~~b]", "ab&~", "c-"),
        ] {
            for (texts, expected) in [(members, true), (others, false)] {
                for text in texts.split("").filter(|text| !text.is_empty()) {
                    assert_eq!(matches(&format!("^{class}$"), text), expected, "{class} {text}");
                }
            }
        }
        for pattern in [r"[a--]", r"[!-\d]", r"[a-\pL]"] {
            assert!(Pattern::compile(pattern, MAX_CONSTANT_PROGRAM_BYTES).is_err(), "{pattern}");
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
