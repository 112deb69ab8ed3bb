//! Removal of a part of an object's metadata.

use std::ops::Range;

use super::envelope::{MAGIC_PREFIX, open_envelope};
use super::scan::METADATA;
use super::wire::{Reader, WireError};

/// Wire type of a value with a length.
const DELIMITED_WIRE_TYPE: u8 = 2;

/// Appends the object in `bytes`, with or without an envelope, to `out`, without the part `removed` of its metadata.
/// Appends the whole object if `removed` is not within the metadata.
pub(crate) fn without(bytes: &[u8], removed: Range<usize>, out: &mut Vec<u8>) {
    let start = out.len();
    if trim(bytes, removed, out).is_err() {
        // Malformed input stays unchanged. The decoder reports the error.
        out.truncate(start);
        out.extend_from_slice(bytes);
    }
}

fn trim(bytes: &[u8], removed: Range<usize>, out: &mut Vec<u8>) -> Result<(), WireError> {
    let (types, object) = open_envelope(Reader::new(bytes))?;
    let (begin, end) = (object.at(), object.at() + object.rest().len());
    let mut reader = object;
    let (offset, metadata) = loop {
        let offset = reader.at();
        let Some(tag) = reader.tag()? else { return Err(WireError { at: offset }) };
        if tag.number == METADATA {
            break (offset, reader.delimited(tag.wire)?);
        }
        reader.skip(tag.wire)?;
    };
    let metadata_range = metadata.at()..metadata.at() + metadata.rest().len();
    if removed.start < metadata_range.start || metadata_range.end < removed.end || removed.end < removed.start {
        return Err(WireError { at: removed.start });
    }
    let remaining_length = metadata_range.len() - removed.len();
    // Lengths precede their content, so the new length is computed first.
    let length = offset - begin + header_length(remaining_length) + remaining_length + end - metadata_range.end;
    if let Some(types) = types {
        out.extend_from_slice(MAGIC_PREFIX);
        let texts = [(1, types.api_version), (2, types.kind)];
        append_header(1, texts.iter().map(|(_, text)| header_length(text.len()) + text.len()).sum(), out);
        for (number, text) in texts {
            append_header(number, text.len(), out);
            out.extend_from_slice(text);
        }
        append_header(2, length, out);
    }
    out.extend_from_slice(&bytes[begin..offset]);
    append_header(METADATA as u8, remaining_length, out);
    out.extend_from_slice(&bytes[metadata_range.start..removed.start]);
    out.extend_from_slice(&bytes[removed.end..end]);
    Ok(())
}

/// Appends the header of a field with a number below 16 and a value of `length` bytes.
fn append_header(number: u8, mut length: usize, out: &mut Vec<u8>) {
    out.push(number << 3 | DELIMITED_WIRE_TYPE);
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

/// Returns the length in bytes of the header of a field with a value of `length` bytes.
fn header_length(length: usize) -> usize {
    1 + (usize::BITS - (length | 1).leading_zeros()).div_ceil(7) as usize
}
