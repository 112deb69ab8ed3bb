//! Scan of 64 bytes at a time: the positions of strings and brackets, one bit per byte.
//!
//! The instruction set is selected at run time by the processor. The result does not depend on it.

use std::ops::ControlFlow;

use fearless_simd::prelude::*;
use fearless_simd::{Level, dispatch, u8x64};

/// Number of bytes in a block.
pub(super) const BLOCK: usize = 64;

/// Bytes of one block.
type Block = [u8; BLOCK];

/// Marks of one block. In each mask, the lowest bit belongs to the first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// Quotes that start or end a string, without escaped ones.
    pub(super) quotes: u64,
    /// Opening brackets and braces outside of strings.
    opens: u64,
    /// Closing brackets and braces outside of strings.
    closes: u64,
}

impl Marks {
    /// Finds the bracket that closes the outermost of the `depth` brackets that are open before the block. Without such
    /// a bracket, `depth` is set to the number of brackets that are open after the block.
    #[expect(clippy::inline_always, reason = "as `Marker::block`")]
    #[inline(always)]
    pub(super) fn end(&self, depth: &mut u64) -> Option<usize> {
        let (opened, closed) = (u64::from(self.opens.count_ones()), u64::from(self.closes.count_ones()));
        if closed >= *depth {
            // The end can only be in this block, so the closing brackets are checked one by one.
            let (mut rest, mut count) = (self.closes, 0);
            while rest != 0 {
                let lower_bits = (rest & rest.wrapping_neg()) - 1;
                count += 1;
                if *depth + u64::from((self.opens & lower_bits).count_ones()) == count {
                    return Some(rest.trailing_zeros() as usize);
                }
                rest &= rest - 1;
            }
        }
        *depth = *depth + opened - closed;
        None
    }

    /// Returns the marks without the bits before `bit`.
    #[inline]
    pub(super) fn from(&self, bit: usize) -> Self {
        let kept = u64::MAX << bit;
        Self { quotes: self.quotes & kept, opens: self.opens & kept, closes: self.closes & kept }
    }
}

/// Marks a text, block by block.
#[derive(Clone, Copy)]
pub(super) struct Marker {
    level: Level,
    /// All bits set within a string, none outside.
    in_string: u64,
    /// Lowest bit set if the previous byte escapes the next one.
    escaped: u64,
}

impl Marker {
    /// Creates the state for a text that starts outside of a string.
    pub(super) fn new() -> Self {
        Self { level: Level::new(), in_string: 0, escaped: 0 }
    }

    /// Marks the next block, at the start of `rest`.
    pub(super) fn next(&mut self, rest: &[u8]) -> Marks {
        dispatch!(self.level, simd => match rest.first_chunk() {
            Some(block) => self.block(simd, block, BLOCK),
            None => self.last_block(simd, rest),
        })
    }

    /// Marks the blocks of `rest` up to the bracket that closes the outermost of the `depth` open brackets. Returns its
    /// position and the marks of its block. Without such a bracket, `depth` is set to the number of brackets that are
    /// open at the end.
    pub(super) fn skip(&mut self, rest: &[u8], depth: &mut u64) -> Option<(usize, Marks)> {
        dispatch!(self.level, simd => self.skip_with(simd, rest, depth))
    }

    #[expect(clippy::inline_always, reason = "as `block`")]
    #[inline(always)]
    fn skip_with<S: Simd>(&mut self, simd: S, rest: &[u8], depth: &mut u64) -> Option<(usize, Marks)> {
        let (blocks, last) = rest.as_chunks::<BLOCK>();
        let mut open = *depth;
        for (index, block) in blocks.iter().enumerate() {
            let marks = self.block(simd, block, BLOCK);
            if let Some(bit) = marks.end(&mut open) {
                return Some((index * BLOCK + bit, marks));
            }
        }
        *depth = open;
        let marks = self.last_block(simd, last);
        marks.end(depth).map(|bit| (blocks.len() * BLOCK + bit, marks))
    }

    #[expect(clippy::inline_always, reason = "as `block`")]
    #[inline(always)]
    fn last_block<S: Simd>(&mut self, simd: S, rest: &[u8]) -> Marks {
        if rest.is_empty() {
            return Marks::default();
        }
        // Spaces have no meaning, within a string or outside.
        let mut padded = [b' '; BLOCK];
        padded[..rest.len()].copy_from_slice(rest);
        self.block(simd, &padded, rest.len())
    }

    #[expect(clippy::inline_always, reason = "only an inlined function can use the selected instruction set")]
    #[inline(always)]
    fn block<S: Simd>(&mut self, simd: S, block: &Block, length: usize) -> Marks {
        let bytes = u8x64::load_array_ref(simd, block);
        let (quotes, text) = self.string_masks(simd, bytes, length);
        // A single bit distinguishes `[` from `{` and `]` from `}`.
        let brackets = bytes | 0x20;
        let opens = brackets.simd_eq(b'{').to_bitmask() & !text;
        let closes = brackets.simd_eq(b'}').to_bitmask() & !text;
        Marks { quotes, opens, closes }
    }

    /// Returns the quotes of the next block, and the bytes that are within strings.
    #[expect(clippy::inline_always, reason = "as `block`")]
    #[inline(always)]
    fn string_masks<S: Simd>(&mut self, _: S, bytes: u8x64<S>, length: usize) -> (u64, u64) {
        let backslashes = bytes.simd_eq(b'\\').to_bitmask();
        let mut quotes = bytes.simd_eq(b'"').to_bitmask();
        // Most blocks contain no backslash.
        if backslashes | self.escaped != 0 {
            // An escaped quote does not end a string.
            let escaping = escaping(backslashes, self.escaped);
            quotes &= !(escaping << 1 | self.escaped);
            self.escaped = escaping >> (length - 1) & 1;
        }
        // Bits are set from each opening quote up to the closing quote.
        let text = parity(quotes) ^ self.in_string;
        // A string may continue in the next block.
        self.in_string = if text >> (BLOCK - 1) == 1 { u64::MAX } else { 0 };
        (quotes, text)
    }

    /// Calls `visit` for each bracket, brace and comma outside of strings, in order, until it breaks.
    pub(super) fn structure(mut self, text: &[u8], mut visit: impl FnMut(usize) -> ControlFlow<()>) {
        let _ = dispatch!(self.level, simd => self.structure_with(simd, text, &mut visit));
    }

    #[expect(clippy::inline_always, reason = "as `block`")]
    #[inline(always)]
    fn structure_with<S: Simd>(
        &mut self,
        simd: S,
        text: &[u8],
        visit: &mut impl FnMut(usize) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (blocks, last) = text.as_chunks::<BLOCK>();
        let mut padded = [b' '; BLOCK];
        padded[..last.len()].copy_from_slice(last);
        for (index, block) in blocks.iter().chain([&padded]).enumerate() {
            let bytes = u8x64::load_array_ref(simd, block);
            let (_, inside) = self.string_masks(simd, bytes, BLOCK);
            let brackets = bytes | 0x20;
            let marks = brackets.simd_eq(b'{') | brackets.simd_eq(b'}') | bytes.simd_eq(b',');
            let mut marks = marks.to_bitmask() & !inside;
            while marks != 0 {
                visit(index * BLOCK + marks.trailing_zeros() as usize)?;
                marks &= marks - 1;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns, for each bit, the parity of the bits up to and including it.
#[inline]
fn parity(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// Returns the backslashes that escape the byte after them. `escaped` has the first bit set if the byte before the block
/// escapes the first byte.
///
/// Of a run of backslashes, these are the first, the third and so on. A subtraction carries through each run, and
/// leaves the bits of these backslashes (as in simdjson).
#[inline]
fn escaping(backslashes: u64, escaped: u64) -> u64 {
    const ODD: u64 = 0xAAAA_AAAA_AAAA_AAAA;
    let starts = backslashes & !escaped;
    (((starts << 1) | ODD).wrapping_sub(starts) ^ ODD) & backslashes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns all available instruction sets.
    fn levels() -> Vec<Level> {
        let mut levels = vec![Level::fallback(), Level::baseline(), Level::new()];
        #[cfg(target_arch = "x86_64")]
        {
            let known = Level::new();
            levels.extend(known.as_sse2().map(Level::Sse2));
            levels.extend(known.as_sse4_2().map(Level::Sse4_2));
            levels.extend(known.as_avx2().map(Level::Avx2));
            levels.extend(known.as_avx512().map(Level::Avx512));
        }
        levels
    }

    /// Computes the marks of `text` byte by byte, as a reference.
    fn plainly(text: &[u8]) -> Vec<Marks> {
        let (mut inside, mut escaped) = (false, false);
        let mut all = Vec::new();
        for block in text.chunks(BLOCK) {
            let mut marks = Marks::default();
            for (index, byte) in block.iter().enumerate() {
                let bit = 1 << index;
                match byte {
                    b'"' if !escaped => {
                        inside = !inside;
                        marks.quotes |= bit;
                    }
                    b'{' | b'[' if !inside => marks.opens |= bit,
                    b'}' | b']' if !inside => marks.closes |= bit,
                    _ => {}
                }
                escaped = *byte == b'\\' && !escaped;
            }
            all.push(marks);
        }
        all
    }

    fn marked(level: Level, text: &[u8]) -> Vec<Marks> {
        let mut marker = Marker { level, ..Marker::new() };
        text.chunks(BLOCK).map(|block| marker.next(block)).collect()
    }

    /// Generates texts with many relevant bytes.
    fn string_masks() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            3 => prop::sample::select(b"\"\"\\\\\\\\{}[], ;[|z".to_vec()),
            1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..1500)
    }

    proptest! {
        #[test]
        fn every_instruction_set_yields_equal_marks(text in string_masks()) {
            let wanted = plainly(&text);
            for level in levels() {
                prop_assert_eq!(&marked(level, &text), &wanted, "{:?}", level);
            }
        }

        #[test]
        fn structure_matches_bytewise_scan(text in string_masks()) {
            let (mut inside, mut escaped) = (false, false);
            let mut wanted = Vec::new();
            for (at, byte) in text.iter().enumerate() {
                match byte {
                    b'"' if !escaped => inside = !inside,
                    b'{' | b'[' | b'}' | b']' | b',' if !inside => wanted.push(at),
                    _ => {}
                }
                escaped = *byte == b'\\' && !escaped;
            }
            for level in levels() {
                let mut found = Vec::new();
                Marker { level, ..Marker::new() }.structure(&text, |at| {
                    found.push(at);
                    ControlFlow::Continue(())
                });
                prop_assert_eq!(&found, &wanted, "{:?}", level);
            }
        }

        #[test]
        fn block_bracket_count_matches_bytewise_scan(text in string_masks(), depth in 1_u64..20, first in 0..BLOCK) {
            let mut open = depth;
            let mut end = None;
            let marks = plainly(&text);
            for at in first..text.len() {
                let (marks, bit) = (marks[at / BLOCK], at % BLOCK);
                open = open + (marks.opens >> bit & 1) - (marks.closes >> bit & 1);
                if open == 0 {
                    end = Some(at);
                    break;
                }
            }
            for level in levels() {
                let mut marker = Marker { level, ..Marker::new() };
                let mut counted = depth;
                let (front, rest) = text.split_at(text.len().min(BLOCK));
                let found = match marker.next(front).from(first).end(&mut counted) {
                    Some(bit) => Some(bit),
                    None => marker.skip(rest, &mut counted).map(|(at, found)| {
                        assert_eq!(found, marks[1 + at / BLOCK]);
                        BLOCK + at
                    }),
                };
                prop_assert_eq!((found, found.map_or(counted, |_| 0)), (end, open), "{:?}", level);
            }
        }

        #[test]
        fn parity_and_escapes_match_bitwise_loop(bits: u64, more: u64, before: bool) {
            // The union of two random masks has long runs of bits, which a single mask rarely has.
            for bits in [bits, bits | more] {
                let (mut odd, mut escaped) = (false, before);
                let (found, escapes) = (parity(bits), escaping(bits, u64::from(before)));
                for index in 0..64 {
                    let bit = bits >> index & 1 == 1;
                    odd ^= bit;
                    prop_assert_eq!(found >> index & 1 == 1, odd);
                    escaped = bit && !escaped;
                    prop_assert_eq!(escapes >> index & 1 == 1, escaped, "{:b} at {}", bits, index);
                }
            }
        }
    }
}
