//! Text to tokens.

use std::sync::Arc;

use crate::error::SyntaxError;

/// Token with its place in the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    /// Byte offset of the first byte.
    pub(crate) offset: usize,
    pub(crate) kind: TokenKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    Name(String),
    /// Field name in backticks.
    Quoted(String),
    /// Magnitude of an integer without `u`. The sign is a token of its own.
    Int(u64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    Symbol(&'static str),
    End,
}

impl TokenKind {
    /// Returns the name in error messages. Literals are not quoted: an expression may contain a secret.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Name(name) | Self::Quoted(name) => format!("`{name}`"),
            Self::Int(_) | Self::Uint(_) | Self::Double(_) => "a number".to_owned(),
            Self::String(_) => "a string".to_owned(),
            Self::Bytes(_) => "bytes".to_owned(),
            Self::Symbol(symbol) => format!("`{symbol}`"),
            Self::End => "the end of the expression".to_owned(),
        }
    }
}

/// Symbols, longer ones first.
const SYMBOLS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", ".?", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];

/// Splits `text` into tokens; the last one is [`TokenKind::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, SyntaxError> {
    let mut lexer = Lexer { text, offset: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let offset = lexer.offset;
        let kind = lexer.next_token()?;
        let is_end = kind == TokenKind::End;
        tokens.push(Token { offset, kind });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    offset: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.offset..]
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']).len();
            self.offset += blanks;
            // Comments extend to the end of the line. The newline is consumed as a blank in the next iteration.
            if self.rest().starts_with("//") {
                self.offset += self.rest().find('\n').unwrap_or(self.rest().len());
            } else if blanks == 0 {
                return;
            }
        }
    }

    fn next_token(&mut self) -> Result<TokenKind, SyntaxError> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(TokenKind::End) };
        // Strings come first, because a prefix such as `r` or `b` would otherwise be read as a name.
        if let Some(string) = self.string()? {
            return Ok(string);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let end = rest
                .find(|character: char| !character.is_ascii_alphanumeric() && character != '_')
                .unwrap_or(rest.len());
            self.offset += end;
            return Ok(TokenKind::Name(rest[..end].to_owned()));
        }
        // `.5` is read as a number after a name too, so `a.5` is a syntax error.
        let starts_number =
            first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit()));
        if starts_number {
            return self.number();
        }
        // cel-go calls this syntax escaped identifiers: a field such as `app.kubernetes.io/name` needs no index.
        if first == '`' {
            let inside = &rest[1..];
            let end = inside.find('`').ok_or_else(|| SyntaxError::new(self.offset, "a backtick is not closed"))?;
            let is_valid = |character: char| character.is_ascii_alphanumeric() || "_.-/ ".contains(character);
            if end == 0 || !inside[..end].chars().all(is_valid) {
                return Err(SyntaxError::new(
                    self.offset,
                    "a field name in backticks has letters, digits and `_.-/` only",
                ));
            }
            self.offset += end + 2;
            return Ok(TokenKind::Quoted(inside[..end].to_owned()));
        }
        // The longest symbol must match first: `<=` before `<`, and `.?` before `.`.
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            self.offset += symbol.len();
            return Ok(TokenKind::Symbol(symbol));
        }
        Err(SyntaxError::new(self.offset, format!("unexpected character {first:?}")))
    }

    fn number(&mut self) -> Result<TokenKind, SyntaxError> {
        let (start, rest) = (self.offset, self.rest());
        let digits =
            |text: &str| text.len() - text.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let end = hex.find(|character: char| !character.is_ascii_hexdigit()).unwrap_or(hex.len());
            // An empty digit string fails the conversion, so `0x` alone is an error.
            let value = u64::from_str_radix(&hex[..end], 16);
            self.offset += 2 + end;
            return self.integer(start, value.ok());
        }
        let mut end = digits(rest);
        let mut is_double = false;
        // A dot that no digit follows is a member access: `1.size` is the literal 1 and a selection.
        if rest[end..].starts_with('.') && digits(&rest[end + 1..]) > 0 {
            is_double = true;
            end += 1 + digits(&rest[end + 1..]);
        }
        if rest[end..].starts_with(['e', 'E']) {
            let exponent = &rest[end + 1..];
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let count = digits(&exponent[sign..]);
            // An `e` without digits is not an exponent. The check for a following letter then reports the error.
            if count > 0 {
                is_double = true;
                end += 1 + sign + count;
            }
        }
        self.offset += end;
        if !is_double {
            return self.integer(start, rest[..end].parse().ok());
        }
        self.reject_following_letter()?;
        let value: f64 = rest[..end].parse().map_err(|_| SyntaxError::new(start, "an invalid number"))?;
        // Rust parses `1e999` as infinity, while CEL has no literal for infinity.
        if value.is_infinite() {
            return Err(SyntaxError::new(start, "a number exceeds the range of a double"));
        }
        Ok(TokenKind::Double(value))
    }

    fn integer(&mut self, start: usize, value: Option<u64>) -> Result<TokenKind, SyntaxError> {
        let value = value.ok_or_else(|| SyntaxError::new(start, "a number exceeds 64 bits"))?;
        let is_unsigned = self.rest().starts_with(['u', 'U']);
        self.offset += usize::from(is_unsigned);
        self.reject_following_letter()?;
        Ok(if is_unsigned { TokenKind::Uint(value) } else { TokenKind::Int(value) })
    }

    fn reject_following_letter(&self) -> Result<(), SyntaxError> {
        match self.rest().chars().next() {
            Some(character) if character.is_ascii_alphanumeric() || character == '_' => {
                Err(SyntaxError::new(self.offset, "a letter follows a number"))
            }
            _ => Ok(()),
        }
    }

    /// Reads a string or bytes, if such a literal starts here.
    fn string(&mut self) -> Result<Option<TokenKind>, SyntaxError> {
        let rest = self.rest();
        // At most two letters precede the quote, so that the rest of a long text is not searched.
        let quote_at = rest.bytes().take(3).position(|byte| byte == b'"' || byte == b'\'');
        let Some(quote_at) = quote_at else { return Ok(None) };
        let (is_raw, is_bytes) = match rest[..quote_at].to_ascii_lowercase().as_str() {
            // Prefixes are case-insensitive. Any other text in front of the quote is a name that ends there.
            "" => (false, false),
            "r" => (true, false),
            "b" => (false, true),
            "br" | "rb" => (true, true),
            _ => return Ok(None),
        };
        let start = self.offset;
        let body = &rest[quote_at..];
        // Triple quotes must match before single ones, of which they consist.
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| body.starts_with(quote)).unwrap_or("'");
        self.offset += quote_at + quote.len();
        let mut output = Vec::new();
        loop {
            let rest = self.rest();
            if rest.starts_with(quote) {
                self.offset += quote.len();
                break;
            }
            let Some(character) = rest.chars().next() else {
                return Err(SyntaxError::new(start, "a string is not closed"));
            };
            // Only strings in triple quotes may span lines.
            if quote.len() == 1 && (character == '\n' || character == '\r') {
                return Err(SyntaxError::new(start, "a string is not closed on its line"));
            }
            if character == '\\' && !is_raw {
                self.escape(is_bytes, &mut output)?;
            } else {
                // Bytes literals contain the UTF-8 of their characters; escapes below produce single bytes instead.
                output.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                self.offset += character.len_utf8();
            }
        }
        if is_bytes {
            return Ok(Some(TokenKind::Bytes(output.into())));
        }
        let text = String::from_utf8(output).map_err(|_| SyntaxError::new(start, "a string is not valid Unicode"))?;
        Ok(Some(TokenKind::String(text.into())))
    }

    fn escape(&mut self, is_bytes: bool, output: &mut Vec<u8>) -> Result<(), SyntaxError> {
        let offset = self.offset;
        let invalid = |reason: &str| SyntaxError::new(offset, format!("an invalid escape in a string: {reason}"));
        let rest = &self.rest()[1..];
        let character = rest.chars().next().ok_or_else(|| invalid("the text ends"))?;
        let simple = match character {
            'a' => Some(7),
            'b' => Some(8),
            't' => Some(9),
            'n' => Some(10),
            'v' => Some(11),
            'f' => Some(12),
            'r' => Some(13),
            '\\' | '?' | '"' | '\'' | '`' => Some(character as u8),
            _ => None,
        };
        if let Some(byte) = simple {
            output.push(byte);
            self.offset += 2;
            return Ok(());
        }
        let (prefix, length, radix) = match character {
            'x' | 'X' => (1, 2, 16),
            // Unicode escapes are invalid in bytes literals: a code point has no single byte value.
            'u' if !is_bytes => (1, 4, 16),
            'U' if !is_bytes => (1, 8, 16),
            // Octal escapes have three digits, and the first is at most 3. The value then always fits a byte.
            '0'..='3' => (0, 3, 8),
            _ => return Err(invalid("write `\\\\` for a backslash")),
        };
        let digits =
            rest.get(prefix..prefix + length).filter(|digits| digits.chars().all(|digit| digit.is_digit(radix)));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, radix).ok());
        let code = code.ok_or_else(|| invalid("digits are missing"))?;
        if is_bytes {
            output.push(u8::try_from(code).map_err(|_| invalid("a byte is at most 255"))?);
        } else {
            // Surrogates are not characters and fail here.
            let character = char::from_u32(code).ok_or_else(|| invalid("no such character"))?;
            output.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
        self.offset += 1 + prefix + length;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind> {
        tokens(text).expect("valid tokens").into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn strings_of_all_forms_are_unescaped() {
        let string = |text: &str| TokenKind::String(text.into());
        for (text, expected) in [
            (r#""a\n\x41\u00e9\101""#, "a\nAéA"),
            (r"r'\d\'", r"\d\"),
            ("'''a\n'b'''", "a\n'b"),
            (r#"R"""x"\n""" + 1"#, r#"x"\n"#),
        ] {
            assert_eq!(kinds(text)[0], string(expected), "{text}");
        }
        assert_eq!(kinds(r"b'\xff\377é'")[0], TokenKind::Bytes(vec![255, 255, 0xc3, 0xa9].into()));
        assert_eq!(kinds("rb + br").len(), 4);
    }

    #[test]
    fn numbers_of_all_forms_are_read() {
        assert_eq!(
            kinds("1 2u 0x1F 1.5 .5 1e3 2E-1 1.size")[..8],
            [
                TokenKind::Int(1),
                TokenKind::Uint(2),
                TokenKind::Int(31),
                TokenKind::Double(1.5),
                TokenKind::Double(0.5),
                TokenKind::Double(1000.0),
                TokenKind::Double(0.2),
                TokenKind::Int(1),
            ]
        );
    }

    #[test]
    fn invalid_tokens_report_their_position() {
        for (text, offset) in
            [("a + 'b", 4), ("1 + 2x", 5), ("a ; b", 2), (r"'\q'", 1), ("18446744073709551616", 0), ("é", 0)]
        {
            assert_eq!(tokens(text).expect_err(text).offset, offset, "{text}");
        }
    }
}
