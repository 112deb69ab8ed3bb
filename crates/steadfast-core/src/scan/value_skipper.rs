//! End of a JSON value, found without decoding, for pieces of any size.
//!
//! Strings must end, and a value must end with the bracket that matches its first one. Brackets within the value are
//! only counted; the decoder checks the rest of the grammar. An error within one object does not affect others (R8). A
//! wrong number of brackets is still detected, since the bytes after the value do not continue the document. The
//! nesting depth is not limited here, but by the decoder. The end of a deeply nested object must be found, because
//! other objects follow it.

use memchr::memchr2;

use super::block::Marker;

/// Error of an invalid JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanError {
    /// Unexpected byte at the offset, or an unexpected end of the text.
    Malformed {
        /// Offset in bytes.
        at: usize,
    },
}

impl ScanError {
    /// Returns the error for a text with `before` additional bytes at its start.
    pub(crate) fn offset_by(self, before: usize) -> Self {
        match self {
            Self::Malformed { at } => Self::Malformed { at: before + at },
        }
    }
}

/// Kind of a value, which determines its end.
#[derive(Clone, Copy)]
pub(super) enum ValueKind {
    /// Number, `true`, `false` or `null`.
    Scalar,
    /// String.
    Text,
    /// Object or array.
    Nested,
}

impl ValueKind {
    /// Returns the kind of a value that starts with `first`; `None` if no value starts with this byte.
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

/// Value whose start has been read.
pub(crate) enum ValueSkipper {
    /// Number, `true`, `false` or `null`.
    Scalar,
    /// String.
    Text {
        /// Set if the previous byte escapes the next one.
        escaped: bool,
    },
    /// Object or array.
    Nested(Nested),
}

impl ValueSkipper {
    /// Creates the state for a value that starts with `first`; `None` if no value starts with this byte.
    pub(crate) fn start(first: u8) -> Option<Self> {
        Some(match ValueKind::of(first)? {
            ValueKind::Scalar => Self::Scalar,
            ValueKind::Text => Self::Text { escaped: false },
            ValueKind::Nested => Self::Nested(Nested::start(first)),
        })
    }

    /// Processes the next bytes. Returns the number of bytes up to the end of the value, or `None` if the end is not
    /// known yet.
    ///
    /// The end of a scalar is known at the byte after it.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, ScanError> {
        match self {
            Self::Scalar => scalar_end(bytes),
            Self::Text { escaped } => Ok(text_end(escaped, bytes)),
            Self::Nested(nested) => nested.feed(bytes),
        }
    }
}

/// Returns the end of the current scalar in `bytes`; `None` if the scalar may continue after `bytes`.
pub(super) fn scalar_end(bytes: &[u8]) -> Result<Option<usize>, ScanError> {
    match bytes.iter().position(|byte| !is_scalar_byte(*byte)) {
        Some(at) if matches!(bytes[at], b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n') => Ok(Some(at)),
        Some(at) => Err(ScanError::Malformed { at }),
        // The scalar may continue in the next chunk.
        None => Ok(None),
    }
}

fn is_scalar_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

fn text_end(escaped: &mut bool, bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    // The previous chunk ended with a backslash, so the first byte is escaped.
    if *escaped && !bytes.is_empty() {
        *escaped = false;
        at = 1;
    }
    while let Some(found) = memchr2(b'"', b'\\', &bytes[at..]) {
        at += found + 1;
        if bytes[at - 1] == b'"' {
            return Some(at);
        }
        // The escaped byte follows in the next chunk.
        if at == bytes.len() {
            *escaped = true;
            return None;
        }
        at += 1;
    }
    None
}

/// Object or array whose start has been read.
pub(crate) struct Nested {
    /// Closing bracket of the object or array.
    end: u8,
    /// Number of open brackets.
    depth: u64,
    marker: Marker,
}

impl Nested {
    fn start(bracket: u8) -> Self {
        let end = if bracket == b'[' { b']' } else { b'}' };
        Self { end, depth: 1, marker: Marker::new() }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, ScanError> {
        match self.marker.skip(bytes, &mut self.depth) {
            Some((at, _)) if bytes[at] == self.end => Ok(Some(at + 1)),
            Some((at, _)) => Err(ScanError::Malformed { at }),
            None => Ok(None),
        }
    }
}
