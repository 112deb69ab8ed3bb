//! Where a JSON value ends, found without looking at what it says, however its bytes are cut into pieces.
//!
//! Brackets have to match and strings have to end; the rest of the grammar within a value is left to whoever decodes it. So
//! is how deep it may be nested: an object that nobody can decode still ends somewhere, and others come after it.

use memchr::memchr2;

use super::block::{BLOCK, Block, escaping, mask, parity};

/// To which depth it is seen to that each bracket is closed by one of its own sort; further down they are only counted.
const MATCHED_DEPTH: u64 = 128;

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
        match first {
            b'"' => Some(Self::Text { escaped: false }),
            b'{' | b'[' => Some(Self::Nested(Nested::begin(first))),
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => Some(Self::Scalar),
            _ => None,
        }
    }

    /// Looks at the value's next bytes and tells how many belong to it, once its end is seen.
    ///
    /// A scalar's end is seen at the byte after it.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        match self {
            Self::Scalar => match bytes.iter().position(|byte| !scalar(*byte)) {
                Some(at) if matches!(bytes[at], b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n') => Ok(Some(at)),
                Some(at) => Err(Fault::Malformed { at }),
                None => Ok(None),
            },
            Self::Text { escaped } => Ok(text(escaped, bytes)),
            Self::Nested(nested) => nested.feed(bytes),
        }
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
    /// How many brackets are open.
    depth: u64,
    /// A bit for each of them, down to [`MATCHED_DEPTH`], the innermost lowest: whether it is an array's.
    arrays: u128,
    /// All bits set inside a string, none outside.
    text: u64,
    /// Whether the byte before escapes the next.
    escaped: bool,
}

impl Nested {
    fn begin(bracket: u8) -> Self {
        Self { depth: 1, arrays: u128::from(bracket == b'['), text: 0, escaped: false }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for (index, block) in blocks.iter().enumerate() {
            let before = index * BLOCK;
            if let Some(end) = self.block(block, BLOCK).map_err(|fault| fault.after(before))? {
                return Ok(Some(before + end));
            }
        }
        if rest.is_empty() {
            return Ok(None);
        }
        // Spaces mean nothing, inside a string or outside.
        let mut padded = [b' '; BLOCK];
        padded[..rest.len()].copy_from_slice(rest);
        let before = bytes.len() - rest.len();
        let end = self.block(&padded, rest.len()).map_err(|fault| fault.after(before))?;
        Ok(end.map(|end| before + end))
    }

    #[inline]
    fn block(&mut self, block: &Block, length: usize) -> Result<Option<usize>, Fault> {
        let escaping = escaping(mask(block, |byte| byte == b'\\'), self.escaped);
        let escaped = escaping << 1 | u64::from(self.escaped);
        self.escaped = escaping >> (length - 1) & 1 == 1;

        let quotes = mask(block, |byte| byte == b'"') & !escaped;
        let text = parity(quotes) ^ self.text;
        self.text = if text >> (BLOCK - 1) == 1 { u64::MAX } else { 0 };

        // One bit tells `[` from `{` and `]` from `}`.
        let mut brackets = mask(block, |byte| matches!(byte | 0x20, b'{' | b'}')) & !text;
        while brackets != 0 {
            let at = brackets.trailing_zeros() as usize;
            brackets &= brackets - 1;
            match block[at] {
                open @ (b'[' | b'{') => {
                    self.depth += 1;
                    if self.depth <= MATCHED_DEPTH {
                        self.arrays = self.arrays << 1 | u128::from(open == b'[');
                    }
                }
                close => {
                    if self.depth <= MATCHED_DEPTH {
                        if (self.arrays & 1 == 1) != (close == b']') {
                            return Err(Fault::Malformed { at });
                        }
                        self.arrays >>= 1;
                    }
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Ok(Some(at + 1));
                    }
                }
            }
        }
        Ok(None)
    }
}
