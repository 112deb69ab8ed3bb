//! Generated objects on disk and in memory: their bytes, and the positions that are overwritten.

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;

use crate::BenchError;

/// Number of digits of a version.
pub(super) const VERSION_DIGITS: usize = 10;
/// Number of digits of the time at which an event was sent, in nanoseconds since 1970.
pub(super) const SENT_DIGITS: usize = 19;

/// Length of a UID.
const UID_BYTES: usize = 36;

/// Position of the number of a copy in the UID of the copy, and the length of the number in hexadecimal digits.
const COPY_OFFSET_IN_UID: usize = 9;
const COPY_DIGITS: usize = 4;

/// Length of the header before each object: three numbers.
const HEADER_BYTES: usize = 12;

/// All objects in one encoding.
///
/// If more objects are requested than the file has, the remaining ones are copies with other names and UIDs.
pub(super) struct Records {
    bytes: Vec<u8>,
    layouts: Vec<RecordLayout>,
    /// Index of the objects by name, built at the first request of an object by its name.
    by_name: OnceLock<HashMap<Vec<u8>, usize>>,
}

struct RecordLayout {
    start: usize,
    length: usize,
    /// End of the object's metadata, which come first in an object.
    metadata_end: usize,
    version_offset: usize,
    sent_offset: usize,
    uid_offset: usize,
    /// Position and length of the object's name, and the position that is overwritten in a copy.
    name_offset: usize,
    name_length: usize,
    copy_offset: usize,
}

/// Values that are written over the placeholders of an object.
#[derive(Clone, Copy)]
pub(super) struct ObjectValues {
    pub(super) version: u64,
    /// Time of sending in nanoseconds since 1970, or 0 if this time is not needed.
    pub(super) sent: u64,
    /// Number of earlier objects with the same name.
    pub(super) stay: u32,
}

impl Records {
    /// Loads the first `count` objects of a file, or all if there are fewer. `identity` returns the name and the UID of an
    /// object, from its index and its bytes. `metadata_end` returns the length up to the end of its metadata.
    pub(super) fn load(
        path: &Path,
        count: usize,
        identity: impl Fn(usize, &[u8]) -> Option<Identity>,
        metadata_end: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Self, BenchError> {
        let mut bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut layouts = Vec::new();
        let mut at = 0;
        while layouts.len() < count && at < bytes.len() {
            // The header has the length of the object and the positions of its version and its sending time.
            let header = bytes.get(at..at + HEADER_BYTES).ok_or("the file is truncated")?;
            let number = |index: usize| {
                let number_bytes =
                    [header[4 * index], header[4 * index + 1], header[4 * index + 2], header[4 * index + 3]];
                u32::from_le_bytes(number_bytes) as usize
            };
            let (start, length) = (at + HEADER_BYTES, number(0));
            let object = bytes.get(start..start + length).ok_or("the file is truncated")?;
            let layout = identity(layouts.len(), object).and_then(|Identity { name, uid }| {
                let (at, uid, metadata_length) = (memmem(object, &name)?, memmem(object, &uid)?, metadata_end(object)?);
                // The copy's digits replace those before the last hyphen. The number after the hyphen is different
                // for each object of the file, and must stay unique.
                let hyphen = name.iter().rposition(|byte| *byte == b'-').filter(|hyphen| *hyphen >= COPY_DIGITS)?;
                let (version, sent, copy) = (number(1), number(2), at + hyphen - COPY_DIGITS);
                // All overwritten positions are in the metadata.
                let ends = [version + VERSION_DIGITS, sent + SENT_DIGITS, uid + UID_BYTES, at + name.len()];
                let name_length = name.len();
                ends.iter().all(|end| *end <= metadata_length).then_some(RecordLayout {
                    start,
                    length,
                    metadata_end: metadata_length,
                    version_offset: version,
                    sent_offset: sent,
                    uid_offset: uid,
                    name_offset: at,
                    name_length,
                    copy_offset: copy,
                })
            });
            layouts.push(
                layout.ok_or_else(|| format!("{}: an object has no metadata, no name or no UID", path.display()))?,
            );
            at = start + length;
        }
        if layouts.is_empty() {
            return Err(format!("{} is empty; generate more data", path.display()).into());
        }
        bytes.truncate(at);
        Ok(Self { bytes, layouts, by_name: OnceLock::new() })
    }

    /// Returns the layout of the object `index`, and the number of the copy. The number is 0 for a generated object.
    fn layout_and_copy(&self, index: usize) -> (&RecordLayout, usize) {
        (&self.layouts[index % self.layouts.len()], index / self.layouts.len())
    }

    /// Returns the size of the object `index`.
    pub(super) fn length(&self, index: usize) -> usize {
        self.layout_and_copy(index).0.length
    }

    /// Returns the object `index` as it was generated.
    pub(super) fn generated(&self, index: usize) -> &[u8] {
        let (layout, _) = self.layout_and_copy(index);
        &self.bytes[layout.start..layout.start + layout.length]
    }

    /// Returns the length of the object `index` up to the end of its metadata.
    pub(super) fn metadata_length(&self, index: usize) -> usize {
        self.layout_and_copy(index).0.metadata_end
    }

    /// Returns the index of the object with this name, among the first `count`.
    pub(super) fn index_of_name(&self, name: &str, count: usize) -> Option<usize> {
        let by_name = self.by_name.get_or_init(|| (0..count).map(|index| (self.name(index), index)).collect());
        by_name.get(name.as_bytes()).copied()
    }

    fn name(&self, index: usize) -> Vec<u8> {
        let (layout, copy) = self.layout_and_copy(index);
        let mut name = self.bytes[layout.start + layout.name_offset..][..layout.name_length].to_vec();
        if copy > 0 {
            name[layout.copy_offset - layout.name_offset..][..COPY_DIGITS]
                .copy_from_slice(copy_digits(copy).as_bytes());
        }
        name
    }

    /// Appends the object `index` without its first `skip` bytes, with the values.
    pub(super) fn append(&self, into: &mut Vec<u8>, index: usize, skip: usize, values: ObjectValues) {
        self.append_to(into, index, skip, self.length(index), values);
    }

    /// Appends the object `index` up to the end of its metadata, without its first `skip` bytes, with the values.
    pub(super) fn append_metadata(&self, into: &mut Vec<u8>, index: usize, skip: usize, values: ObjectValues) {
        self.append_to(into, index, skip, self.metadata_length(index), values);
    }

    fn append_to(&self, into: &mut Vec<u8>, index: usize, skip: usize, end: usize, values: ObjectValues) {
        let (layout, copy) = self.layout_and_copy(index);
        let start = into.len();
        into.extend_from_slice(&self.bytes[layout.start + skip..layout.start + end]);
        // The placeholders have a fixed number of digits, so that no byte moves.
        write_digits(&mut into[start + layout.version_offset - skip..], VERSION_DIGITS, values.version);
        write_digits(&mut into[start + layout.sent_offset - skip..], SENT_DIGITS, values.sent);
        if values.stay > 0 {
            // A recreated object needs another UID. Its first eight digits contain the number of the stay. The digits
            // after the first hyphen contain the number of the copy.
            into[start + layout.uid_offset - skip..][..8].copy_from_slice(format!("{:08x}", values.stay).as_bytes());
        }
        if copy > 0 {
            for at in [layout.uid_offset + COPY_OFFSET_IN_UID, layout.copy_offset] {
                into[start + at - skip..][..COPY_DIGITS].copy_from_slice(copy_digits(copy).as_bytes());
            }
        }
    }
}

/// Returns the digits that identify a copy.
fn copy_digits(copy: usize) -> String {
    format!("{copy:0COPY_DIGITS$x}")
}

/// Identity in a record.
pub(super) struct Identity {
    name: Vec<u8>,
    uid: Vec<u8>,
}

/// Finds the identity of an object in JSON. The first members with these names are used, because the metadata come
/// first.
pub(super) fn identity_in_json(object: &[u8]) -> Option<Identity> {
    let text = |member: &[u8]| {
        let at = memmem(object, member)? + member.len();
        let length = object[at..].iter().position(|byte| *byte == b'"')?;
        Some(object[at..at + length].to_vec())
    };
    Some(Identity { name: text(br#""name":""#)?, uid: text(br#""uid":""#).filter(|uid| uid.len() == UID_BYTES)? })
}

/// Returns the length of an object in JSON up to the end of its metadata, which come first.
pub(super) fn metadata_in_json(object: &[u8]) -> Option<usize> {
    const HEAD: &[u8] = br#"{"metadata":"#;
    object.strip_prefix(HEAD)?;
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    for (at, byte) in object.iter().enumerate().skip(HEAD.len()) {
        match byte {
            // Braces within strings do not count, and escaped quotes do not end a string.
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'{' if !in_text => depth += 1,
            b'}' if !in_text => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Returns the length of an object in protobuf up to the end of its metadata, which are its first field.
pub(super) fn metadata_in_protobuf(object: &[u8]) -> Option<usize> {
    let (tag, rest) = object.split_first()?;
    let digits = rest.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let length = rest[..digits]
        .iter()
        // Groups of a varint are in little-endian order, so the last byte must come first.
        .rev()
        .try_fold(0_usize, |length, byte| length.checked_mul(0x80)?.checked_add(usize::from(byte & 0x7f)))?;
    (*tag == 1 << 3 | 2).then_some(1 + digits + length).filter(|end| *end <= object.len())
}

/// Returns the first position of `needle` in `text`.
fn memmem(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|piece| piece == needle)
}

fn write_digits(into: &mut [u8], digits: usize, mut number: u64) {
    for digit in into[..digits].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_metadata_end_is_found_despite_braces() {
        let object = br#"{"metadata":{"name":"a","annotations":{"b":"}\"}"}},"spec":{}}"#;
        assert_eq!(metadata_in_json(object), Some(object.len() - br#","spec":{}}"#.len()));
        assert_eq!(metadata_in_json(br#"{"spec":{}}"#), None);
    }

    #[test]
    fn protobuf_metadata_length_is_read() {
        let mut object = vec![0x0a, 0x80, 0x01];
        object.extend_from_slice(&[7; 0x80]);
        assert_eq!(metadata_in_protobuf(&object), Some(object.len()));
        object.extend_from_slice(&[0x12, 0]);
        assert_eq!(metadata_in_protobuf(&object), Some(object.len() - 2));
        assert_eq!(metadata_in_protobuf(&object[..9]), None, "the object is truncated");
    }
}
