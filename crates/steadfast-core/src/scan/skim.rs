//! Where a JSON value ends, found without looking at what it says, however its bytes are cut into pieces.
//!
//! Strings have to end, and a value with the bracket that belongs to the one it began with. Those within it are counted, and
//! the rest of the grammar is left to whoever decodes it: what is wrong inside an object concerns no other (R8). One bracket
//! too many or too few is still told, for it shows in what comes behind the value. How deep a value may be nested is the
//! decoder's to say, too: an object that nobody can decode still ends somewhere, and others come after it.

use memchr::memchr2;

use super::block::Marker;

/// Why a text is not the JSON it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The byte there cannot be there; at the text's end where it ended too early.
    Malformed {
        /// Where.
        at: usize,
    },
}

impl Fault {
    /// The same fault, in a text that has `before` bytes more at its front.
    pub(crate) fn after(self, before: usize) -> Self {
        match self {
            Self::Malformed { at } => Self::Malformed { at: before + at },
        }
    }
}

/// What sort of value it is, as far as it matters to where it ends.
#[derive(Clone, Copy)]
pub(super) enum Sort {
    /// A number, `true`, `false` or `null`.
    Scalar,
    /// A string.
    Text,
    /// An object or an array.
    Nested,
}

impl Sort {
    /// Of the value that begins with `first`; none where no value can.
    #[inline]
    pub(super) fn of(first: u8) -> Option<Self> {
        match first {
            b'"' => Some(Self::Text),
            b'{' | b'[' => Some(Self::Nested),
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => Some(Self::Scalar),
            _ => None,
        }
    }
}

/// A value of which the beginning has been seen.
pub(crate) enum Skim {
    /// A number, `true`, `false` or `null`.
    Scalar,
    /// A string.
    Text {
        /// Whether the byte before escapes the next.
        escaped: bool,
    },
    /// An object or an array.
    Nested(Nested),
}

impl Skim {
    /// A value that begins with `first`; none where no value can.
    pub(crate) fn begin(first: u8) -> Option<Self> {
        Some(match Sort::of(first)? {
            Sort::Scalar => Self::Scalar,
            Sort::Text => Self::Text { escaped: false },
            Sort::Nested => Self::Nested(Nested::begin(first)),
        })
    }

    /// Looks at the value's next bytes and tells how many belong to it, once its end is seen.
    ///
    /// A scalar's end is seen at the byte after it.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        match self {
            Self::Scalar => scalar_end(bytes),
            Self::Text { escaped } => Ok(text(escaped, bytes)),
            Self::Nested(nested) => nested.feed(bytes),
        }
    }
}

/// Where the scalar ends whose next bytes are `bytes`; none where it may go on behind them.
pub(super) fn scalar_end(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    match bytes.iter().position(|byte| !scalar(*byte)) {
        Some(at) if matches!(bytes[at], b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n') => Ok(Some(at)),
        Some(at) => Err(Fault::Malformed { at }),
        None => Ok(None),
    }
}

fn scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

fn text(escaped: &mut bool, bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    if *escaped && !bytes.is_empty() {
        *escaped = false;
        at = 1;
    }
    while let Some(found) = memchr2(b'"', b'\\', &bytes[at..]) {
        at += found + 1;
        if bytes[at - 1] == b'"' {
            return Some(at);
        }
        if at == bytes.len() {
            *escaped = true;
            return None;
        }
        at += 1;
    }
    None
}

/// An object or an array of which the beginning has been seen.
pub(crate) struct Nested {
    /// The bracket that ends it.
    end: u8,
    /// How many brackets are open.
    depth: u64,
    marker: Marker,
}

impl Nested {
    fn begin(bracket: u8) -> Self {
        let end = if bracket == b'[' { b']' } else { b'}' };
        Self { end, depth: 1, marker: Marker::new() }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        match self.marker.skip(bytes, &mut self.depth) {
            Some((at, _)) if bytes[at] == self.end => Ok(Some(at + 1)),
            Some((at, _)) => Err(Fault::Malformed { at }),
            None => Ok(None),
        }
    }
}
