//! A walk over the members of objects in a text, of which the bytes are looked at once.

use std::borrow::Cow;
use std::ops::Range;

use super::block::{BLOCK, Marker, Marks};
use super::skim::{Fault, Sort, scalar_end};

/// A place in a JSON text.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    marker: Marker,
    /// What is known of the block marked last: the place lies in it, or behind it.
    marks: Marks,
    /// Where that ends.
    marked: usize,
}

/// A member of an object, seen up to its value.
pub(crate) struct Member<'a> {
    /// Its name.
    pub(crate) name: Text<'a>,
    /// Where its name begins.
    pub(crate) start: usize,
    /// Where the comma before it is; none where it is the first.
    pub(crate) comma: Option<usize>,
}

/// A string as it is written, with its quotes.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    /// The string that `written` is, quotes and all.
    pub(crate) fn new(written: &'a [u8]) -> Self {
        Self(written)
    }

    /// What it says; none where it is no string after all.
    pub(crate) fn read(self) -> Option<Cow<'a, str>> {
        let written = self.inner();
        // Without a branch for each byte, so that many are looked at at once.
        let odd = written.iter().fold(0, |odd, byte| odd | u8::from(*byte == b'\\') | u8::from(*byte < b' '));
        if odd == 0 {
            return std::str::from_utf8(written).ok().map(Cow::Borrowed);
        }
        serde_json::from_slice(self.0).ok().map(Cow::Owned)
    }

    /// What `of` makes of what it says, however that is written.
    pub(crate) fn find<T>(self, of: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
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
    /// The beginning of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, marker: Marker::new(), marks: Marks::default(), marked: 0 }
    }

    /// Steps over white space and tells where the next byte is.
    pub(crate) fn place(&mut self) -> usize {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.at
    }

    /// The next byte that is no white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let at = self.place();
        self.bytes.get(at).copied()
    }

    fn malformed<T>(&self) -> Result<T, Fault> {
        Err(Fault::Malformed { at: self.at })
    }

    fn take(&mut self, byte: u8) -> Result<(), Fault> {
        if self.peek() != Some(byte) {
            return self.malformed();
        }
        self.at += 1;
        Ok(())
    }

    /// Nothing more may come.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        if self.peek().is_some() { self.malformed() } else { Ok(()) }
    }

    /// Walks the object here: `visit` sees each member and steps over its value. Any other value is stepped over.
    ///
    /// Returns where the value lies.
    pub(crate) fn members(
        &mut self,
        mut visit: impl FnMut(&mut Self, Member<'a>) -> Result<(), Fault>,
    ) -> Result<Range<usize>, Fault> {
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
            self.at = self.ended(end)?;
            let name = Text(&self.bytes[start..self.at]);
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

    /// Steps over the value here; returns where it lies.
    pub(crate) fn skip(&mut self) -> Result<Range<usize>, Fault> {
        let Some(first) = self.peek() else { return self.malformed() };
        let begin = self.at;
        let end = match Sort::of(first) {
            Some(Sort::Text) => self.text_end(begin),
            Some(Sort::Nested) => self.nested_end(begin)?,
            // A text may end with it.
            Some(Sort::Scalar) => {
                let end = scalar_end(&self.bytes[begin..]).map_err(|fault| fault.after(begin))?;
                Some(end.map_or(self.bytes.len(), |length| begin + length))
            }
            None => return self.malformed(),
        };
        self.at = self.ended(end)?;
        Ok(begin..self.at)
    }

    /// The end of a value, which it has to have.
    fn ended(&self, end: Option<usize>) -> Result<usize, Fault> {
        end.ok_or(Fault::Malformed { at: self.bytes.len() })
    }

    /// Where the string ends that begins at `quote`.
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

    /// Where the object or array ends that begins at `bracket`.
    fn nested_end(&mut self, bracket: usize) -> Result<Option<usize>, Fault> {
        let mut depth = 0;
        let here = self.marks(bracket).and_then(|marks| marks.from(bracket % BLOCK).end(&mut depth));
        let end = if let Some(bit) = here {
            bracket / BLOCK * BLOCK + bit
        } else {
            let rest = self.bytes.get(self.marked..).unwrap_or_default();
            let Some((length, marks)) = self.marker.skip(rest, &mut depth) else { return Ok(None) };
            let end = self.marked + length;
            (self.marks, self.marked) = (marks, (end / BLOCK + 1) * BLOCK);
            end
        };
        // One bit tells an object's brackets from an array's.
        let matches = self.bytes[end] & 0x20 == self.bytes[bracket] & 0x20;
        if matches { Ok(Some(end + 1)) } else { Err(Fault::Malformed { at: end }) }
    }

    /// What is known of the block that `at` is in; nothing where the text has ended.
    #[inline]
    fn marks(&mut self, at: usize) -> Option<Marks> {
        while at >= self.marked {
            let rest = self.bytes.get(self.marked..).filter(|rest| !rest.is_empty())?;
            self.marks = self.marker.next(rest);
            self.marked += BLOCK;
        }
        Some(self.marks)
    }

    /// Reads the string here; nowhere where another value is, which is stepped over.
    pub(crate) fn string(&mut self) -> Result<Range<usize>, Fault> {
        let span = self.skip()?;
        Ok(if self.bytes[span.start] == b'"' { span } else { 0..0 })
    }
}
