//! Parser of paths. A path has no outer braces. It usually consists of one action, such as `.a`. Inner braces separate
//! several actions, as in `.a}{.b`.

use std::fmt;

use super::node::{Filter, Node, Slice};
use super::unquote::unquote;

/// Maximum nesting of actions. Actions are nested because the operands of filters and unions are parsed as actions.
const MAX_NESTING: usize = 32;

/// Invalid path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParseError {
    /// Byte offset in the path.
    pub(crate) offset: usize,
    message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.message, self.offset)
    }
}

/// Parses a path without its outer braces.
pub(super) fn action_list(path: &str) -> Result<Vec<Node>, ParseError> {
    parse_braced(path, 0, 0)
}

/// Parses text with actions in braces, as in `kubectl -o jsonpath=…`.
pub(super) fn text_with_actions(text: &str) -> Result<Vec<Node>, ParseError> {
    // `PathParser` subtracts one from the offset of an error, for the brace that `parse_braced` adds. This text has no
    // added brace, so its offset starts at 1.
    parse_nodes(text, 1, 0)
}

/// Parses `{text}`. `offset` is the offset of the text in the whole path.
fn parse_braced(text: &str, offset: usize, nesting: usize) -> Result<Vec<Node>, ParseError> {
    parse_nodes(&format!("{{{text}}}"), offset, nesting)
}

fn parse_nodes(braced: &str, offset: usize, nesting: usize) -> Result<Vec<Node>, ParseError> {
    if nesting > MAX_NESTING {
        return Err(ParseError { offset, message: format!("more than {MAX_NESTING} actions within each other") });
    }
    let mut parser = PathParser { text: braced, position: 0, start: 0, offset, nesting };
    let mut nodes = Vec::new();
    loop {
        // The text before the next action comes first, then the action.
        let rest = &braced[parser.position..];
        let Some(brace) = rest.find('{') else {
            if !rest.is_empty() {
                nodes.push(Node::Text(rest.to_owned()));
            }
            return Ok(nodes);
        };
        if brace > 0 {
            nodes.push(Node::Text(rest[..brace].to_owned()));
        }
        parser.position += brace + 1;
        nodes.push(Node::List(parser.action()?));
    }
}

/// Parses an operand: the first action of the text.
fn parse_operand(text: &str, offset: usize, nesting: usize) -> Result<Vec<Node>, ParseError> {
    let first = parse_braced(text, offset, nesting + 1)?.into_iter().next();
    Ok(match first {
        Some(Node::List(nodes)) => nodes,
        other => other.into_iter().collect(),
    })
}

struct PathParser<'t> {
    /// Path in braces.
    text: &'t str,
    position: usize,
    /// Start of the current node.
    start: usize,
    offset: usize,
    nesting: usize,
}

impl<'t> PathParser<'t> {
    fn error(&self, message: impl Into<String>) -> ParseError {
        // The offset excludes the added brace.
        ParseError { offset: self.offset + self.position.saturating_sub(1), message: message.into() }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.position..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let character = self.peek()?;
        self.position += character.len_utf8();
        Some(character)
    }

    fn take_prefix(&mut self, prefix: &str) -> bool {
        let is_next = self.text[self.position..].starts_with(prefix);
        if is_next {
            self.position += prefix.len();
        }
        is_next
    }

    /// Returns the text since the start of the node.
    fn node_text(&self) -> &'t str {
        &self.text[self.start..self.position]
    }

    /// Parses up to the closing brace and consumes the brace.
    fn action(&mut self) -> Result<Vec<Node>, ParseError> {
        let mut nodes = Vec::new();
        loop {
            self.start = self.position;
            if self.take_prefix("}") {
                return Ok(nodes);
            }
            if self.take_prefix("[?(") {
                nodes.push(self.filter()?);
                continue;
            }
            if self.take_prefix("..") {
                self.recursive(&mut nodes)?;
                continue;
            }
            match self.next() {
                None | Some('\r' | '\n') => return Err(self.error("unclosed action")),
                // Spaces are separators; the current object and the root are the input itself.
                Some(' ' | '@' | '$') => {}
                Some('[') => self.brackets(&mut nodes)?,
                Some(quote @ ('"' | '\'')) => nodes.push(self.quoted(quote)?),
                Some('.') => nodes.push(self.field()),
                Some(character) if matches!(character, '+' | '-') || character.is_ascii_digit() => {
                    nodes.push(self.number()?);
                }
                Some(character) if is_word(character) => nodes.push(self.word()),
                Some(character) => {
                    return Err(self.error(format!("unrecognized character in action: {character:?}")));
                }
            }
        }
    }

    fn recursive(&mut self, nodes: &mut Vec<Node>) -> Result<(), ParseError> {
        if nodes.last() == Some(&Node::Recursive) {
            return Err(self.error("invalid multiple recursive descent"));
        }
        nodes.push(Node::Recursive);
        if self.peek().is_some_and(is_word) {
            self.start = self.position;
            nodes.push(self.field());
        }
        Ok(())
    }

    /// Parses a name after a dot, up to a terminator that is not escaped by a backslash.
    fn field(&mut self) -> Node {
        let from = self.position;
        while let Some(character) = self.peek().filter(|character| !is_terminator(*character)) {
            self.next();
            if character == '\\' {
                self.next();
            }
        }
        match &self.text[from..self.position] {
            "*" => Node::Wildcard,
            // Backslashes escape terminators and are not part of the name.
            name => Node::Field(name.replace('\\', "")),
        }
    }

    fn word(&mut self) -> Node {
        while self.peek().is_some_and(|character| !is_terminator(character)) {
            self.next();
        }
        match self.node_text() {
            "true" => Node::Bool(true),
            "false" => Node::Bool(false),
            word => Node::Word(word.to_owned()),
        }
    }

    fn number(&mut self) -> Result<Node, ParseError> {
        while self.peek().is_some_and(|character| character == '.' || character.is_ascii_digit()) {
            self.next();
        }
        let text = self.node_text();
        // A sign or a dot alone fails both conversions and is an error.
        if let Ok(number) = text.parse() {
            return Ok(Node::Int(number));
        }
        let float = text.parse().ok().filter(|float: &f64| float.is_finite());
        float.map(Node::Float).ok_or_else(|| self.error(format!("cannot parse number {text}")))
    }

    fn quoted(&mut self, quote: char) -> Result<Node, ParseError> {
        loop {
            match self.next() {
                None | Some('\n') => return Err(self.error("unterminated quoted string")),
                // A preceding backslash escapes the quote. An escaped backslash in front of the quote is not
                // recognised.
                Some(character) if character == quote && !self.text[..self.position - 1].ends_with('\\') => break,
                Some(_) => {}
            }
        }
        let text = self.node_text();
        let unquoted =
            unquote(text).ok_or_else(|| self.error(format!("unquote string {text} error invalid syntax")))?;
        Ok(Node::Text(unquoted))
    }

    /// Parses `[…]` other than a filter: a union, a quoted name, an index or a slice.
    fn brackets(&mut self, nodes: &mut Vec<Node>) -> Result<(), ParseError> {
        let from = self.position;
        loop {
            match self.next() {
                None | Some('\n') => return Err(self.error("unterminated array")),
                Some(']') => break,
                Some(_) => {}
            }
        }
        let text = &self.text[from..self.position - 1];
        let offset = self.offset + from - 1;
        if text.contains(',') {
            let mut alternatives = Vec::new();
            let mut alternative_offset = offset;
            for alternative in text.split(',') {
                let trimmed = alternative.trim_matches(' ');
                // The offset excludes the added bracket.
                alternatives.push(parse_operand(
                    &format!("[{trimmed}]"),
                    alternative_offset.saturating_sub(1),
                    self.nesting,
                )?);
                alternative_offset += alternative.len() + 1;
            }
            nodes.push(Node::Union(alternatives));
            return Ok(());
        }
        let name = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        if let Some(name) = name.filter(|name| !name.contains('\'')) {
            // A dot within the name separates names unless it is escaped.
            nodes.extend(parse_operand(&format!(".{name}"), offset, self.nesting)?);
            return Ok(());
        }
        nodes.push(Node::Slice(self.slice(text)?));
        Ok(())
    }

    fn slice(&self, text: &str) -> Result<Slice, ParseError> {
        let text = if text == "*" { ":" } else { text };
        let parts: Vec<&str> = text.split(':').collect();
        let is_index = |part: &&str| part.strip_prefix('-').unwrap_or(part).bytes().all(|byte| byte.is_ascii_digit());
        if parts.len() > 3 || !parts.iter().all(is_index) {
            return Err(self.error(format!("invalid array index {text}")));
        }
        let bound = |part: usize| match parts.get(part).copied().unwrap_or_default() {
            "" => Ok(None),
            digits => digits.parse().map(Some).map_err(|_| self.error(format!("array index {digits} is not a number"))),
        };
        Ok(Slice { start: bound(0)?, end: bound(1)?, step: bound(2)?, is_index: parts.len() == 1 })
    }

    /// Parses the text after `[?(`, up to `)]`.
    fn filter(&mut self) -> Result<Node, ParseError> {
        let from = self.position;
        let mut quote = None;
        let mut is_closed = false;
        loop {
            match self.next() {
                None | Some('\n') => return Err(self.error("unterminated filter")),
                Some(character @ ('"' | '\'')) => match quote {
                    None => quote = Some(character),
                    Some(opening_quote)
                        if opening_quote == character && !self.text[..self.position - 1].ends_with('\\') =>
                    {
                        is_closed = true;
                    }
                    Some(_) => {}
                },
                // Within a quoted operand, a parenthesis is text.
                Some(')') if quote.is_some() == is_closed => break,
                Some(_) => {}
            }
        }
        let text = &self.text[from..self.position - 1];
        if self.next() != Some(']') {
            return Err(self.error("unclosed array expect ]"));
        }
        let offset = self.offset + from - 1;
        let Some((left, operator, right)) = comparison(text) else {
            return Ok(Node::Filter(Filter { left: parse_operand(text, offset, self.nesting)?, comparison: None }));
        };
        let behind = offset + left.len() + operator.len();
        Ok(Node::Filter(Filter {
            left: parse_operand(left, offset, self.nesting)?,
            comparison: Some((operator.to_owned(), parse_operand(right, behind, self.nesting)?)),
        }))
    }
}

/// Returns the left operand, the operator and the right operand, none of them empty. All consecutive characters of
/// `!<>=` form the operator.
fn comparison(text: &str) -> Option<(&str, &str, &str)> {
    let is_operator = |character: char| matches!(character, '!' | '<' | '>' | '=');
    // A leading operator has no left operand.
    let start = text.find(is_operator).filter(|start| *start > 0)?;
    let rest = &text[start..];
    let length = rest.find(|character| !is_operator(character)).unwrap_or(rest.len() - 1);
    (length > 0).then(|| (&text[..start], &rest[..length], &rest[length..]))
}

fn is_terminator(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}
