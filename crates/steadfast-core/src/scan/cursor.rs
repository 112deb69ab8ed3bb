//! A walk over the members of objects in a text that lies whole in memory.

use std::borrow::Cow;
use std::ops::Range;

use super::skim::{Fault, Skim};

/// A place in a JSON text.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
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
    /// What it says; none where it is no string after all.
    pub(crate) fn read(self) -> Option<Cow<'a, str>> {
        let written = &self.0[1..self.0.len() - 1];
        if memchr::memchr(b'\\', written).is_none() && !written.iter().any(u8::is_ascii_control) {
            return std::str::from_utf8(written).ok().map(Cow::Borrowed);
        }
        serde_json::from_slice(self.0).ok().map(Cow::Owned)
    }

    /// Whether it says `name`.
    pub(crate) fn is(self, name: &str) -> bool {
        let written = &self.0[1..self.0.len() - 1];
        // An escape makes it longer than what it says.
        written == name.as_bytes() || (written.len() > name.len() && self.escaped_is(name))
    }

    fn escaped_is(self, name: &str) -> bool {
        memchr::memchr(b'\\', self.0).is_some() && self.read().is_some_and(|read| read == name)
    }
}

impl<'a> Cursor<'a> {
    /// The beginning of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
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
            let span = self.skip()?;
            self.take(b':')?;
            visit(self, Member { name: Text(&self.bytes[span]), start, comma })?;
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
        let Some(mut skim) = self.peek().and_then(Skim::begin) else { return self.malformed() };
        let begin = self.at;
        let inner = begin + 1;
        let rest = &self.bytes[inner..];
        let end = match skim.feed(rest).map_err(|fault| fault.after(inner))? {
            Some(length) => inner + length,
            None if matches!(skim, Skim::Scalar) => self.bytes.len(),
            None => return Err(Fault::Malformed { at: self.bytes.len() }),
        };
        self.at = end;
        Ok(begin..end)
    }

    /// Reads the string here; none where another value is, which is stepped over.
    pub(crate) fn string(&mut self) -> Result<Option<Cow<'a, str>>, Fault> {
        let span = self.skip()?;
        let written = &self.bytes[span];
        Ok(if written[0] == b'"' { Text(written).read() } else { None })
    }
}
