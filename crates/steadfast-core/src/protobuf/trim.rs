//! Removal of a part of an object's metadata.

use std::ops::Range;

use super::envelope::{MAGIC_PREFIX, open};
use super::scan::METADATA;
use super::wire::{Fault, Reader};

/// Wire type of a value with a length.
const DELIMITED: u8 = 2;

/// Appends the object in `bytes`, with or without an envelope, to `into`, without the part `cut` of its metadata.
/// Appends the whole object if `cut` is not within the metadata.
pub(crate) fn without(bytes: &[u8], cut: Range<usize>, into: &mut Vec<u8>) {
    let begin = into.len();
    if trim(bytes, cut, into).is_err() {
        // Malformed input stays unchanged. The decoder reports the error.
        into.truncate(begin);
        into.extend_from_slice(bytes);
    }
}

fn trim(bytes: &[u8], cut: Range<usize>, into: &mut Vec<u8>) -> Result<(), Fault> {
    let (types, object) = open(Reader::new(bytes))?;
    let (begin, end) = (object.at(), object.at() + object.rest().len());
    let mut reader = object;
    let (before, metadata) = loop {
        let before = reader.at();
        let Some(tag) = reader.tag()? else { return Err(Fault { at: before }) };
        if tag.number == METADATA {
            break (before, reader.delimited(tag.wire)?);
        }
        reader.skip(tag.wire)?;
    };
    let lies = metadata.at()..metadata.at() + metadata.rest().len();
    if cut.start < lies.start || lies.end < cut.end || cut.end < cut.start {
        return Err(Fault { at: cut.start });
    }
    let left = lies.len() - cut.len();
    // Lengths precede their content, so the new length is computed first.
    let length = before - begin + head_length(left) + left + end - lies.end;
    if let Some(types) = types {
        into.extend_from_slice(MAGIC_PREFIX);
        let texts = [(1, types.api_version), (2, types.kind)];
        head(1, texts.iter().map(|(_, text)| head_length(text.len()) + text.len()).sum(), into);
        for (number, text) in texts {
            head(number, text.len(), into);
            into.extend_from_slice(text);
        }
        head(2, length, into);
    }
    into.extend_from_slice(&bytes[begin..before]);
    head(METADATA as u8, left, into);
    into.extend_from_slice(&bytes[lies.start..cut.start]);
    into.extend_from_slice(&bytes[cut.end..end]);
    Ok(())
}

/// Appends the head of a field with a number below 16 and a value of `length` bytes.
fn head(number: u8, mut length: usize, into: &mut Vec<u8>) {
    into.push(number << 3 | DELIMITED);
    while length >= 0x80 {
        into.push(length as u8 | 0x80);
        length >>= 7;
    }
    into.push(length as u8);
}

/// Returns the length in bytes of the head of a field with a value of `length` bytes.
fn head_length(length: usize) -> usize {
    1 + (usize::BITS - (length | 1).leading_zeros()).div_ceil(7) as usize
}
