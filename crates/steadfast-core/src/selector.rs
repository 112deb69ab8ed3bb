//! Label selectors in the syntax of kubectl's `-l`.
//!
//! The grammar is that of the API server: requirements separated by commas, each of them `key`, `!key`, `key=value`,
//! `key==value`, `key!=value`, `key in (a,b)` or `key notin (a,b)`. An empty selector selects everything.

use std::collections::BTreeSet;
use std::fmt;
use std::str::CharIndices;

use kube::core::{Expression, Selector};

/// Maximum length of the name in a label's key, and of a value, in bytes.
const MAX_NAME_BYTES: usize = 63;

/// Maximum length of the prefix of a label's key, in bytes.
const MAX_PREFIX_BYTES: usize = 253;

/// Error for a text that is not a valid label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    text: String,
    offset: usize,
    problem: String,
}

impl SelectorError {
    /// Returns the byte offset of the error in the text; the text's length if something is missing.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl std::error::Error for SelectorError {}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "label selector {:?}, byte {}: {}", self.text, self.offset, self.problem)
    }
}

/// Parses a label selector in the syntax of kubectl's `-l`.
///
/// ```
/// use steadfast_core::selector::parse_selector;
///
/// let selector = parse_selector("app=web,tier in (a,b),!legacy")?;
/// assert_eq!(selector.to_string(), "app=web,tier in (a,b),!legacy");
///
/// let error = parse_selector("app=web,tier in a").unwrap_err();
/// assert_eq!(error.to_string(), r#"label selector "app=web,tier in a", byte 16: "a" where "(" is expected"#);
/// # Ok::<(), steadfast_core::selector::SelectorError>(())
/// ```
///
/// # Errors
///
/// Returns the problem and its byte offset if the text is not a valid selector.
pub fn parse_selector(text: &str) -> Result<Selector, SelectorError> {
    let mut parser = Parser::new(text);
    let mut expressions = Vec::new();
    if parser.peek() == Token::End {
        return Ok(Selector::default());
    }
    loop {
        expressions.push(parser.requirement()?);
        match parser.peek() {
            Token::End => return Ok(expressions.into_iter().collect()),
            Token::Symbol(",") => parser.advance(),
            _ => return Err(parser.unexpected("\",\" or the end")),
        }
    }
}

/// Token of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'a str),
    End,
}

/// Valid symbols, the longer ones first.
const SYMBOLS: [&str; 9] = ["!=", "==", "=", "!", "(", ")", ",", ">", "<"];

struct Parser<'a> {
    text: &'a str,
    /// Next token and its offset.
    next_token: (usize, Token<'a>),
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut parser = Self { text, next_token: (0, Token::End) };
        parser.read(0);
        parser
    }

    fn peek(&self) -> Token<'a> {
        self.next_token.1
    }

    fn advance(&mut self) {
        let (offset, token) = self.next_token;
        match token {
            Token::Word(text) | Token::Symbol(text) => self.read(offset + text.len()),
            Token::End => {}
        }
    }

    fn read(&mut self, from: usize) {
        let rest = self.text[from..].trim_start();
        let offset = self.text.len() - rest.len();
        // `SYMBOLS` contains longer symbols before their prefixes.
        let token = match SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            Some(symbol) => Token::Symbol(symbol),
            None if rest.is_empty() => Token::End,
            None => Token::Word(&rest[..word_end(rest.char_indices()).unwrap_or(rest.len())]),
        };
        self.next_token = (offset, token);
    }

    fn requirement(&mut self) -> Result<Expression, SelectorError> {
        let is_absent = self.peek() == Token::Symbol("!");
        if is_absent {
            self.advance();
        }
        let expected = if is_absent { "a label key" } else { "a label key or \"!\"" };
        let key = self.word(expected, key_problem)?;
        if is_absent {
            return Ok(Expression::DoesNotExist(key));
        }
        let (offset, operator) = self.next_token;
        match operator {
            Token::End | Token::Symbol(",") => Ok(Expression::Exists(key)),
            Token::Symbol("=" | "==") => {
                self.advance();
                Ok(Expression::Equal(key, self.value()?))
            }
            Token::Symbol("!=") => {
                self.advance();
                Ok(Expression::NotEqual(key, self.value()?))
            }
            Token::Word("in") => {
                self.advance();
                Ok(Expression::In(key, self.values()?))
            }
            Token::Word("notin") => {
                self.advance();
                Ok(Expression::NotIn(key, self.values()?))
            }
            Token::Symbol(comparison @ (">" | "<")) => {
                // The API server supports these operators. kube's selector, which filters the cached objects, does not.
                let problem = format!("{comparison:?} compares numbers, which a selector of cached objects cannot do");
                Err(self.error(offset, problem))
            }
            _ => Err(self.unexpected("\"=\", \"==\", \"!=\", \"in\", \"notin\", \",\" or the end")),
        }
    }

    /// Parses one value, which may be empty.
    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            // `key=` selects an empty value.
            Token::End | Token::Symbol("," | ")") => Ok(String::new()),
            _ => self.word("a value", value_problem),
        }
    }

    /// Parses values in parentheses: at least one, each of which may be empty.
    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let open = self.next_token.0;
        self.symbol("(")?;
        if self.peek() == Token::Symbol(")") {
            return Err(self.error(open, "no values; give at least one".to_owned()));
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value()?);
            match self.peek() {
                Token::Symbol(",") => self.advance(),
                Token::Symbol(")") => {
                    self.advance();
                    return Ok(values);
                }
                _ => return Err(self.unexpected("\",\" or \")\"")),
            }
        }
    }

    fn word(&mut self, expected: &str, problem: fn(&str) -> Option<String>) -> Result<String, SelectorError> {
        let (offset, Token::Word(word)) = self.next_token else { return Err(self.unexpected(expected)) };
        if let Some(problem) = problem(word) {
            return Err(self.error(offset, problem));
        }
        self.advance();
        Ok(word.to_owned())
    }

    fn symbol(&mut self, symbol: &str) -> Result<(), SelectorError> {
        if self.peek() != Token::Symbol(symbol) {
            return Err(self.unexpected(&format!("{symbol:?}")));
        }
        self.advance();
        Ok(())
    }

    fn unexpected(&self, expected: &str) -> SelectorError {
        let problem = match self.peek() {
            Token::Word(found) | Token::Symbol(found) => format!("{found:?} where {expected} is expected"),
            Token::End => format!("the end where {expected} is expected"),
        };
        self.error(self.next_token.0, problem)
    }

    fn error(&self, offset: usize, problem: String) -> SelectorError {
        SelectorError { text: self.text.to_owned(), offset, problem }
    }
}

fn word_end(mut characters: CharIndices<'_>) -> Option<usize> {
    characters
        .find(|(_, character)| character.is_whitespace() || "=!(),<>".contains(*character))
        .map(|(offset, _)| offset)
}

/// Checks a label's key, `name` or `prefix/name` with a DNS subdomain as prefix. Returns the problem, if any.
fn key_problem(key: &str) -> Option<String> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        return Some(format!(
            "the prefix of the key {key:?} is not a DNS subdomain of at most {MAX_PREFIX_BYTES} bytes"
        ));
    }
    (!is_name(name)).then(|| {
        format!(
            "{key:?} is not a valid label key: its name has 1 to {MAX_NAME_BYTES} letters, digits, \"-\", \"_\" and \".\", and \
             starts and ends with a letter or digit"
        )
    })
}

/// Checks a label's value. Returns the problem, if any.
fn value_problem(value: &str) -> Option<String> {
    (!is_name(value)).then(|| {
        format!(
            "{value:?} is not a valid label value: it has at most {MAX_NAME_BYTES} letters, digits, \"-\", \"_\" and \".\", and \
             starts and ends with a letter or digit"
        )
    })
}

fn is_name(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= MAX_NAME_BYTES
        && ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.len() <= MAX_PREFIX_BYTES && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_selectors_are_accepted() {
        for (text, read) in [
            ("", ""),
            ("  ", ""),
            ("app", "app"),
            ("!app", "!app"),
            (" ! app ", "!app"),
            ("app=web", "app=web"),
            ("app == web", "app=web"),
            ("app!=web", "app!=web"),
            ("app=", "app="),
            ("app=,tier", "app=,tier"),
            ("tier in (b, a)", "tier in (a,b)"),
            ("tier notin (a)", "tier notin (a)"),
            ("tier in (a,)", "tier in (,a)"),
            ("tier in(a)", "tier in (a)"),
            ("in in (in,notin)", "in in (in,notin)"),
            ("app=in", "app=in"),
            ("example.com/app=web-1.2_3", "example.com/app=web-1.2_3"),
            ("app=web,tier in (a,b),!x", "app=web,tier in (a,b),!x"),
        ] {
            assert_eq!(parse_selector(text).map(|selector| selector.to_string()), Ok(read.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn selector_error_contains_offset() {
        for (text, offset, problem) in [
            (",", 0, "\",\" where a label key or \"!\" is expected"),
            ("app,", 4, "the end where a label key or \"!\" is expected"),
            ("app=web tier", 8, "\"tier\" where \",\" or the end is expected"),
            ("!app=web", 4, "\"=\" where \",\" or the end is expected"),
            ("!!app", 1, "\"!\" where a label key is expected"),
            ("app=!web", 4, "\"!\" where a value is expected"),
            ("app=(web)", 4, "\"(\" where a value is expected"),
            ("app=web)", 7, "\")\" where \",\" or the end is expected"),
            ("app web", 4, "\"web\" where \"=\""),
            ("tier in a", 8, "\"a\" where \"(\" is expected"),
            ("tier in", 7, "the end where \"(\" is expected"),
            ("tier in (a", 10, "the end where \",\" or \")\" is expected"),
            ("tier in (a b)", 11, "\"b\" where \",\" or \")\" is expected"),
            ("tier in ()", 8, "no values"),
            ("replicas>3", 8, "\">\" compares numbers"),
            ("app=wéb", 4, "is not a valid label value"),
            ("tier in (a,-b)", 11, "is not a valid label value"),
            ("Example/app", 0, "not a DNS subdomain"),
            ("example.com/", 0, "is not a valid label key"),
            ("a/b/c", 0, "is not a valid label key"),
        ] {
            let error = parse_selector(text).expect_err(text);
            assert_eq!(error.offset(), offset, "{error}");
            assert!(error.to_string().contains(problem), "{error}");
        }
        let long = "x".repeat(64);
        assert_eq!(parse_selector(&format!("app={long}")).expect_err("too long").offset(), 4);
        assert_eq!(parse_selector(&format!("app,{long}")).expect_err("too long").offset(), 4);
    }
}
