//! Walk over the members of objects in a text. Each byte is read once.

use std::borrow::Cow;
use std::ops::Range;

use super::block::{BLOCK, Marker, Marks};
use super::value_skipper::{ScanError, ValueKind, scalar_end};

/// Position in a JSON text.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    marker: Marker,
    /// Marks of the last block. The position is within the block or after it.
    marks: Marks,
    /// End of the marked block.
    marked_end: usize,
}

/// Member of an object, read up to its value.
pub(crate) struct Member<'a> {
    /// Name of the member.
    pub(crate) name: RawString<'a>,
    /// Offset of the name.
    pub(crate) start: usize,
    /// Offset of the preceding comma; `None` for the first member.
    pub(crate) comma: Option<usize>,
}

/// String with its quotes, verbatim.
#[derive(Clone, Copy)]
pub(crate) struct RawString<'a>(&'a [u8]);

impl<'a> RawString<'a> {
    /// Creates the string from `written`, which includes its quotes.
    pub(crate) fn new(written: &'a [u8]) -> Self {
        Self(written)
    }

    /// Returns the value of the string; `None` if it is not a valid string.
    pub(crate) fn read(self) -> Option<Cow<'a, str>> {
        let written = self.inner();
        // The loop has no branch per byte, so the compiler can vectorize it.
        let needs_unescape = written
            .iter()
            .fold(0, |needs_unescape, byte| needs_unescape | u8::from(*byte == b'\\') | u8::from(*byte < b' '));
        if needs_unescape == 0 {
            return std::str::from_utf8(written).ok().map(Cow::Borrowed);
        }
        serde_json::from_slice(self.0).ok().map(Cow::Owned)
    }

    /// Calls `of` with the value of the string, unescaped if necessary.
    pub(crate) fn parse_with<T>(self, of: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        let plain = of(self.inner());
        if plain.is_some() || !self.0.contains(&b'\\') {
            return plain;
        }
        self.read().and_then(|read| of(read.as_bytes()))
    }

    fn inner(self) -> &'a [u8] {
        &self.0[1..self.0.len() - 1]
    }
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the start of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, marker: Marker::new(), marks: Marks::default(), marked_end: 0 }
    }

    /// Skips white space and returns the offset of the next byte.
    pub(crate) fn next_offset(&mut self) -> usize {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.at
    }

    /// Returns the next byte after white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let at = self.next_offset();
        self.bytes.get(at).copied()
    }

    fn malformed<T>(&self) -> Result<T, ScanError> {
        Err(ScanError::Malformed { at: self.at })
    }

    fn take(&mut self, byte: u8) -> Result<(), ScanError> {
        if self.peek() != Some(byte) {
            return self.malformed();
        }
        self.at += 1;
        Ok(())
    }

    /// Checks that the text has ended.
    pub(crate) fn end(&mut self) -> Result<(), ScanError> {
        if self.peek().is_some() { self.malformed() } else { Ok(()) }
    }

    /// Walks over the object at the position: `visit` receives each member and must skip its value. Any other value is
    /// skipped.
    ///
    /// Returns the range of the value.
    pub(crate) fn members(
        &mut self,
        mut visit: impl FnMut(&mut Self, Member<'a>) -> Result<(), ScanError>,
    ) -> Result<Range<usize>, ScanError> {
        if self.peek() != Some(b'{') {
            return self.skip();
        }
        let begin = self.at;
        self.at += 1;
        let mut comma = None;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(begin..self.at);
        }
        loop {
            if self.peek() != Some(b'"') {
                return self.malformed();
            }
            let start = self.at;
            let end = self.text_end(start);
            self.at = self.require_end(end)?;
            let name = RawString(&self.bytes[start..self.at]);
            self.take(b':')?;
            visit(self, Member { name, start, comma })?;
            match self.peek() {
                Some(b',') => comma = Some(self.at),
                Some(b'}') => {
                    self.at += 1;
                    return Ok(begin..self.at);
                }
                _ => return self.malformed(),
            }
            self.at += 1;
        }
    }

    /// Skips the value at the position and returns its range.
    pub(crate) fn skip(&mut self) -> Result<Range<usize>, ScanError> {
        let Some(first) = self.peek() else { return self.malformed() };
        let begin = self.at;
        let end = match ValueKind::of(first) {
            Some(ValueKind::Text) => self.text_end(begin),
            Some(ValueKind::Nested) => self.nested_end(begin)?,
            // The end of the text may terminate a scalar.
            Some(ValueKind::Scalar) => {
                let end = scalar_end(&self.bytes[begin..]).map_err(|fault| fault.offset_by(begin))?;
                Some(end.map_or(self.bytes.len(), |length| begin + length))
            }
            None => return self.malformed(),
        };
        self.at = self.require_end(end)?;
        Ok(begin..self.at)
    }

    /// Returns the end of a value, or the fault of an unterminated one.
    fn require_end(&self, end: Option<usize>) -> Result<usize, ScanError> {
        end.ok_or(ScanError::Malformed { at: self.bytes.len() })
    }

    /// Returns the end of the string that starts at `quote`.
    fn text_end(&mut self, quote: usize) -> Option<usize> {
        let mut from = quote + 1;
        loop {
            let quotes = self.marks(from)?.quotes >> (from % BLOCK);
            if quotes != 0 {
                return Some(from + quotes.trailing_zeros() as usize + 1);
            }
            from = (from | (BLOCK - 1)) + 1;
        }
    }

    /// Returns the end of the object or array that starts at `bracket`.
    fn nested_end(&mut self, bracket: usize) -> Result<Option<usize>, ScanError> {
        let mut depth = 0;
        let end_in_block = self.marks(bracket).and_then(|marks| marks.from(bracket % BLOCK).end(&mut depth));
        let end = if let Some(bit) = end_in_block {
            bracket / BLOCK * BLOCK + bit
        } else {
            let rest = self.bytes.get(self.marked_end..).unwrap_or_default();
            let Some((length, marks)) = self.marker.skip(rest, &mut depth) else { return Ok(None) };
            let end = self.marked_end + length;
            // Later lookups continue in the block of the closing bracket.
            (self.marks, self.marked_end) = (marks, (end / BLOCK + 1) * BLOCK);
            end
        };
        // A single bit distinguishes the brackets of an object from those of an array.
        let matches = self.bytes[end] & 0x20 == self.bytes[bracket] & 0x20;
        if matches { Ok(Some(end + 1)) } else { Err(ScanError::Malformed { at: end }) }
    }

    /// Returns the marks of the block that contains `at`; `None` after the end of the text.
    #[inline]
    fn marks(&mut self, at: usize) -> Option<Marks> {
        while at >= self.marked_end {
            let rest = self.bytes.get(self.marked_end..).filter(|rest| !rest.is_empty())?;
            self.marks = self.marker.next(rest);
            self.marked_end += BLOCK;
        }
        Some(self.marks)
    }

    /// Reads the string at the position and returns its range. Any other value is skipped, and the range is empty.
    pub(crate) fn string_range(&mut self) -> Result<Range<usize>, ScanError> {
        let span = self.skip()?;
        Ok(if self.bytes[span.start] == b'"' { span } else { 0..0 })
    }
}
