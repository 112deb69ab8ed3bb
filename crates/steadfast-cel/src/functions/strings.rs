//! Functions of strings, and `size`.
//!
//! Positions count code points, as CEL requires.

use std::sync::Arc;

use super::call_result::CallResult;
use crate::error::CelErrorKind;
use crate::meter::Meter;
use crate::text::Text;
use crate::value::CelValue;

pub(super) fn size<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let size = match arguments {
        [CelValue::String(text)] => {
            // `size` counts code points, so the whole text must be read.
            meter.charge_bytes(text.len())?;
            text.chars().count()
        }
        [CelValue::Bytes(bytes)] => bytes.len(),
        [CelValue::List(list)] => list.len(),
        [CelValue::Map(map)] => {
            meter.charge((map.max_len() / 10) as u64)?;
            map.len()
        }
        _ => return Ok(None),
    };
    Ok(Some(int_value(size)))
}

fn int_value<'a>(size: usize) -> CelValue<'a> {
    CelValue::Int(i64::try_from(size).unwrap_or(i64::MAX))
}

pub(super) fn matches<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let [CelValue::String(text), CelValue::String(pattern)] = arguments else { return Ok(None) };
    meter.matches(text, pattern).map(|matches| Some(CelValue::Bool(matches)))
}

/// Calls `strings.quote`: returns the string as a CEL string literal.
pub(super) fn quote<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let [CelValue::String(text)] = arguments else { return Ok(None) };
    meter.charge_bytes(2 * text.len() + 2)?;
    let mut output = String::with_capacity(text.len() + 2);
    output.push('"');
    for character in text.chars() {
        match character {
            '\x07' => output.push_str("\\a"),
            '\x08' => output.push_str("\\b"),
            '\x0b' => output.push_str("\\v"),
            '\x0c' => output.push_str("\\f"),
            '\n' => output.push_str("\\n"),
            '\r' => output.push_str("\\r"),
            '\t' => output.push_str("\\t"),
            '\\' => output.push_str("\\\\"),
            '"' => output.push_str("\\\""),
            other => output.push(other),
        }
    }
    output.push('"');
    Ok(Some(output.into()))
}

/// Calls the member function `name`. Returns `None` for an unknown function, and `Some(Ok(None))` if the function does
/// not accept these types.
pub(super) fn member<'a>(name: &str, arguments: &[CelValue<'a>], meter: &mut Meter) -> Option<CallResult<'a>> {
    Some(match name {
        "contains" | "endsWith" | "startsWith" => matches_part(name, arguments, meter),
        "charAt" => char_at(arguments, meter),
        "indexOf" | "lastIndexOf" => index_of(name == "lastIndexOf", arguments, meter),
        "join" => join(arguments, meter),
        "lowerAscii" | "reverse" | "trim" | "upperAscii" => map_text(name, arguments, meter),
        "replace" => replace(arguments, meter),
        "split" => split(arguments, meter),
        "substring" => substring(arguments, meter),
        _ => return None,
    })
}

fn matches_part<'a>(name: &str, arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let [CelValue::String(text), CelValue::String(part)] = arguments else { return Ok(None) };
    // A search is linear in both lengths, while a prefix or suffix test reads the shorter text only.
    let read_bytes = if name == "contains" { text.len() + part.len() } else { part.len().min(text.len()) };
    meter.charge_bytes(read_bytes)?;
    Ok(Some(CelValue::Bool(match name {
        "contains" => text.contains(&**part),
        "endsWith" => text.ends_with(&**part),
        _ => text.starts_with(&**part),
    })))
}

fn char_at<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let [CelValue::String(text), CelValue::Int(position)] = arguments else { return Ok(None) };
    meter.charge_bytes(text.len())?;
    let offset = byte_offset(text, *position).ok_or_else(|| out_of_range("charAt"))?;
    let character = text[offset..].chars().next();
    Ok(Some(character.map(String::from).unwrap_or_default().into()))
}

fn out_of_range(name: &str) -> CelErrorKind {
    CelErrorKind::invalid_argument(name, "the position must be within the string")
}

/// Returns the byte offset of the code point at `position`. If `position` is the number of code points, returns the
/// length of `text` in bytes. Returns `None` for a greater or negative position.
fn byte_offset(text: &str, position: i64) -> Option<usize> {
    let position = usize::try_from(position).ok()?;
    text.char_indices().map(|(offset, _)| offset).chain([text.len()]).nth(position)
}

fn index_of<'a>(is_last: bool, arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let name = if is_last { "lastIndexOf" } else { "indexOf" };
    let (text, part, position) = match arguments {
        [CelValue::String(text), CelValue::String(part)] => (text, part, None),
        [CelValue::String(text), CelValue::String(part), CelValue::Int(position)] => (text, part, Some(*position)),
        _ => return Ok(None),
    };
    // The text is charged twice: one pass finds the offset of the position, and one counts the code points of the
    // result.
    meter.charge_bytes(2 * text.len() + part.len())?;
    let offset = position.map(|position| byte_offset(text, position).ok_or_else(|| out_of_range(name))).transpose()?;
    let found = match (is_last, offset) {
        (false, offset) => {
            let offset = offset.unwrap_or(0);
            text[offset..].find(&**part).map(|found| offset + found)
        }
        (true, None) => text.rfind(&**part),
        // The match may start at the position and extend beyond it.
        (true, Some(offset)) => {
            let mut end = (offset + part.len()).min(text.len());
            // No match ends within a character, so moving the end back to a boundary excludes no match.
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text[..end].rfind(&**part)
        }
    };
    Ok(Some(found.map_or(CelValue::Int(-1), |found| int_value(text[..found].chars().count()))))
}

fn join<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let (list, separator) = match arguments {
        [CelValue::List(list)] => (list, ""),
        [CelValue::List(list), CelValue::String(separator)] => (list, &**separator),
        _ => return Ok(None),
    };
    let mut output = String::new();
    for (index, item) in list.iter().enumerate() {
        // An item other than a string is a missing overload: `join` converts nothing.
        let CelValue::String(item) = item else { return Ok(None) };
        let separator = if index > 0 { separator } else { "" };
        meter.charge_bytes(item.len() + separator.len())?;
        output.push_str(separator);
        output.push_str(&item);
    }
    Ok(Some(output.into()))
}

fn map_text<'a>(name: &str, arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let [CelValue::String(text)] = arguments else { return Ok(None) };
    meter.charge_bytes(text.len())?;
    Ok(Some(
        match name {
            "lowerAscii" => text.to_ascii_lowercase(),
            "upperAscii" => text.to_ascii_uppercase(),
            "reverse" => text.chars().rev().collect(),
            _ => text.trim().to_owned(),
        }
        .into(),
    ))
}

/// Converts the limit argument of `replace` and `split`. A negative limit allows any number.
fn max_count(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn replace<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let (text, old, new, limit) = match arguments {
        [CelValue::String(text), CelValue::String(old), CelValue::String(new)] => (text, old, new, usize::MAX),
        [CelValue::String(text), CelValue::String(old), CelValue::String(new), CelValue::Int(limit)] => {
            (text, old, new, max_count(*limit))
        }
        _ => return Ok(None),
    };
    meter.charge_bytes(text.len() + old.len())?;
    // The size of the result is known before memory is taken.
    let count = text.matches(&**old).take(limit).count();
    meter.charge_bytes(text.len().saturating_add(count.saturating_mul(new.len())))?;
    Ok(Some(text.replacen(&**old, new, count).into()))
}

fn split<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let (text, separator, limit) = match arguments {
        [CelValue::String(text), CelValue::String(separator)] => (text, separator, usize::MAX),
        [CelValue::String(text), CelValue::String(separator), CelValue::Int(limit)] => {
            (text, separator, max_count(*limit))
        }
        _ => return Ok(None),
    };
    meter.charge_bytes(text.len() + separator.len())?;
    let mut pieces = Vec::new();
    // cel-go returns an empty list for a limit of zero, and the whole text for a limit of one.
    if limit == 0 {
        return Ok(Some(pieces.into()));
    }
    let mut rest = &**text;
    loop {
        let end = if separator.is_empty() {
            // Each code point is a piece; an empty string has none.
            let next = rest.chars().next();
            match next {
                None => break,
                Some(character) => Some(character.len_utf8()).filter(|end| *end < rest.len()),
            }
        } else {
            rest.find(&**separator)
        };
        let end = end.filter(|_| pieces.len() + 1 < limit);
        let piece = end.map_or(rest, |end| &rest[..end]);
        meter.charge(1)?;
        meter.charge_bytes(piece.len())?;
        pieces.push(piece_of(text, piece));
        match end {
            Some(end) => rest = &rest[end + separator.len()..],
            None => break,
        }
    }
    Ok(Some(pieces.into()))
}

/// Returns a part of a string, borrowed if the whole is borrowed.
fn piece_of<'a>(whole: &Text<'a>, piece: &str) -> CelValue<'a> {
    if let Text::Borrowed(whole) = whole {
        // Both pointers belong to the same allocation, so that the difference is the offset. A borrowed piece needs no
        // copy.
        let start = piece.as_ptr() as usize - whole.as_ptr() as usize;
        return CelValue::String(Text::Borrowed(&whole[start..start + piece.len()]));
    }
    CelValue::String(Text::Shared(Arc::from(piece)))
}

fn substring<'a>(arguments: &[CelValue<'a>], meter: &mut Meter) -> CallResult<'a> {
    let (text, start, end) = match arguments {
        [CelValue::String(text), CelValue::Int(start)] => (text, *start, None),
        [CelValue::String(text), CelValue::Int(start), CelValue::Int(end)] => (text, *start, Some(*end)),
        _ => return Ok(None),
    };
    meter.charge_bytes(2 * text.len())?;
    let offset_of = |position| byte_offset(text, position).ok_or_else(|| out_of_range("substring"));
    let (start, end) = (offset_of(start)?, end.map_or(Ok(text.len()), offset_of)?);
    if start > end {
        return Err(CelErrorKind::invalid_argument("substring", "the end must not be before the start"));
    }
    Ok(Some(text[start..end].to_owned().into()))
}
