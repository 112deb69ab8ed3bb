//! Removal of a part of an object's metadata.

use std::ops::Range;

use super::envelope::{MAGIC_PREFIX, open_envelope};
use super::scan::METADATA;
use super::wire::{Reader, WireError};

/// Wire type of a value with a length.
const DELIMITED: u8 = 2;

/// Appends the object in `bytes`, with or without an envelope, to `into`, without the part `cut` of its metadata.
/// Appends the whole object if `cut` is not within the metadata.
pub(crate) fn without(bytes: &[u8], cut: Range<usize>, into: &mut Vec<u8>) {
    let start = into.len();
    if trim(bytes, cut, into).is_err() {
        // Malformed input stays unchanged. The decoder reports the error.
        into.truncate(start);
        into.extend_from_slice(bytes);
    }
}

fn trim(bytes: &[u8], cut: Range<usize>, into: &mut Vec<u8>) -> Result<(), WireError> {
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
    if cut.start < metadata_range.start || metadata_range.end < cut.end || cut.end < cut.start {
        return Err(WireError { at: cut.start });
    }
    let left = metadata_range.len() - cut.len();
    // Lengths precede their content, so the new length is computed first.
    let length = offset - begin + header_length(left) + left + end - metadata_range.end;
    if let Some(types) = types {
        into.extend_from_slice(MAGIC_PREFIX);
        let texts = [(1, types.api_version), (2, types.kind)];
        append_header(1, texts.iter().map(|(_, text)| header_length(text.len()) + text.len()).sum(), into);
        for (number, text) in texts {
            append_header(number, text.len(), into);
            into.extend_from_slice(text);
        }
        append_header(2, length, into);
    }
    into.extend_from_slice(&bytes[begin..offset]);
    append_header(METADATA as u8, left, into);
    into.extend_from_slice(&bytes[metadata_range.start..cut.start]);
    into.extend_from_slice(&bytes[cut.end..end]);
    Ok(())
}

/// Appends the header of a field with a number below 16 and a value of `length` bytes.
fn append_header(number: u8, mut length: usize, into: &mut Vec<u8>) {
    into.push(number << 3 | DELIMITED);
    while length >= 0x80 {
        into.push(length as u8 | 0x80);
        length >>= 7;
    }
    into.push(length as u8);
}

/// Returns the length in bytes of the header of a field with a value of `length` bytes.
fn header_length(length: usize) -> usize {
    1 + (usize::BITS - (length | 1).leading_zeros()).div_ceil(7) as usize
}
