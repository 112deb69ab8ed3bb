//! Quoted strings in paths: single or double quotes with the escapes of Go.

/// Parses a quoted string; `None` if an escape is invalid.
pub(super) fn unquote(quoted: &str) -> Option<String> {
    let quote = quoted.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let inner = quoted.strip_prefix(quote)?.strip_suffix(quote)?;
    // Bytes are decoded instead of characters: `\xff` is a byte, and need not be a valid character.
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(character) = rest.next() {
        match character {
            '\\' => escape(&mut rest, quote, &mut bytes)?,
            character if character == quote => return None,
            character => push(&mut bytes, character),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn push(bytes: &mut Vec<u8>, character: char) {
    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

fn escape(rest: &mut std::str::Chars<'_>, quote: char, bytes: &mut Vec<u8>) -> Option<()> {
    let kind = rest.next()?;
    let byte = match kind {
        'a' => 0x07,
        'b' => 0x08,
        'f' => 0x0c,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 0x0b,
        '\\' => b'\\',
        // Only the enclosing quote may be escaped, as in Go.
        '\'' | '"' if kind == quote => u8::try_from(kind).ok()?,
        'x' => u8::try_from(digits(rest, 16, 2, 0)?).ok()?,
        '0'..='7' => u8::try_from(digits(rest, 8, 2, kind.to_digit(8)?)?).ok()?,
        'u' | 'U' => {
            let count = if kind == 'u' { 4 } else { 8 };
            push(bytes, char::from_u32(digits(rest, 16, count, 0)?)?);
            return Some(());
        }
        _ => return None,
    };
    bytes.push(byte);
    Some(())
}

fn digits(rest: &mut std::str::Chars<'_>, radix: u32, count: usize, first: u32) -> Option<u32> {
    (0..count).try_fold(first, |value, _| {
        let digit = rest.next()?.to_digit(radix)?;
        value.checked_mul(radix)?.checked_add(digit)
    })
}
