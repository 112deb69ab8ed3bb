//! Sixty-four bytes at a time: where strings and brackets lie among them, one bit for each byte.
//!
//! Which instructions find that out is chosen as the program runs, by what the processor has; the answer is the same with
//! all of them.

use std::ops::ControlFlow;

use fearless_simd::prelude::*;
use fearless_simd::{Level, dispatch, u8x64};

/// How many bytes are looked at together.
pub(super) const BLOCK: usize = 64;

/// The bytes of one block.
type Block = [u8; BLOCK];

/// What is known of one block: in each mask, the first byte's bit is the lowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// The quotes that begin or end a string: those that no backslash escapes.
    pub(super) quotes: u64,
    /// The brackets and braces that open, outside of strings.
    opens: u64,
    /// Those that close.
    closes: u64,
}

impl Marks {
    /// Looks for the bracket that leaves none open where `depth` are open before the block; `depth` is as many as are
    /// open after the block where there is no such bracket.
    #[expect(clippy::inline_always, reason = "as `Marker::block`")]
    #[inline(always)]
    pub(super) fn end(&self, depth: &mut u64) -> Option<usize> {
        let (opened, closed) = (u64::from(self.opens.count_ones()), u64::from(self.closes.count_ones()));
        if closed >= *depth {
            // Only here it can be; the brackets that close are looked at one by one.
            let (mut rest, mut count) = (self.closes, 0);
            while rest != 0 {
                let before = (rest & rest.wrapping_neg()) - 1;
                count += 1;
                if *depth + u64::from((self.opens & before).count_ones()) == count {
                    return Some(rest.trailing_zeros() as usize);
                }
                rest &= rest - 1;
            }
        }
        *depth = *depth + opened - closed;
        None
    }

    /// The same without what lies before `bit`.
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
    /// All bits set inside a string, none outside.
    text: u64,
    /// Whether the byte before escapes the next: the lowest bit, alone.
    escaped: u64,
}

impl Marker {
    /// Of a text that begins outside of a string.
    pub(super) fn new() -> Self {
        Self { level: Level::new(), text: 0, escaped: 0 }
    }

    /// Marks the next block, with which `rest` begins.
    pub(super) fn next(&mut self, rest: &[u8]) -> Marks {
        dispatch!(self.level, simd => match rest.first_chunk() {
            Some(block) => self.block(simd, block, BLOCK),
            None => self.last_block(simd, rest),
        })
    }

    /// Marks the blocks that `rest` has up to the bracket that leaves none open where `depth` are open before it. Tells
    /// where that is and what is known of its block; where there is none, `depth` is as many as are open after all.
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
        // Spaces mean nothing, inside a string or outside.
        let mut padded = [b' '; BLOCK];
        padded[..rest.len()].copy_from_slice(rest);
        self.block(simd, &padded, rest.len())
    }

    #[expect(clippy::inline_always, reason = "else it could not use the instructions that were chosen")]
    #[inline(always)]
    fn block<S: Simd>(&mut self, simd: S, block: &Block, length: usize) -> Marks {
        let bytes = u8x64::load_array_ref(simd, block);
        let (quotes, text) = self.texts(simd, bytes, length);
        // One bit tells `[` from `{` and `]` from `}`.
        let brackets = bytes | 0x20;
        let opens = brackets.simd_eq(b'{').to_bitmask() & !text;
        let closes = brackets.simd_eq(b'}').to_bitmask() & !text;
        Marks { quotes, opens, closes }
    }

    /// The quotes of the next block, and which of its bytes lie in strings.
    #[expect(clippy::inline_always, reason = "as `block`")]
    #[inline(always)]
    fn texts<S: Simd>(&mut self, _: S, bytes: u8x64<S>, length: usize) -> (u64, u64) {
        let backslashes = bytes.simd_eq(b'\\').to_bitmask();
        let mut quotes = bytes.simd_eq(b'"').to_bitmask();
        // Most blocks have none.
        if backslashes | self.escaped != 0 {
            let escaping = escaping(backslashes, self.escaped);
            quotes &= !(escaping << 1 | self.escaped);
            self.escaped = escaping >> (length - 1) & 1;
        }
        let text = parity(quotes) ^ self.text;
        self.text = if text >> (BLOCK - 1) == 1 { u64::MAX } else { 0 };
        (quotes, text)
    }

    /// Has `visit` look at each bracket, brace and comma outside of strings, one after the other, until it has seen enough.
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
            let (_, inside) = self.texts(simd, bytes, BLOCK);
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

/// For each bit, whether the bits up to and including it are odd in number.
#[inline]
fn parity(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// The backslashes that escape the byte after them. `escaped` is the first bit where the byte before the block escapes it.
///
/// A run of backslashes escapes every second byte of it: a subtraction carries through each run and leaves, where the
/// run has an odd start, the even bits of it (as in simdjson).
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

    /// Every set of instructions that there is here.
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

    /// The marks of `text` as they are found byte by byte.
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

    /// Texts with many of the bytes that mean something.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            3 => prop::sample::select(b"\"\"\\\\\\\\{}[], ;[|z".to_vec()),
            1 => any::<u8>(),
        ];
        prop::collection::vec(byte, 0..1500)
    }

    proptest! {
        #[test]
        fn every_set_of_instructions_marks_what_is_found_byte_by_byte(text in texts()) {
            let wanted = plainly(&text);
            for level in levels() {
                prop_assert_eq!(&marked(level, &text), &wanted, "{:?}", level);
            }
        }

        #[test]
        fn what_parts_values_is_found_as_byte_by_byte(text in texts()) {
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
        fn brackets_counted_by_blocks_end_where_they_end_one_by_one(text in texts(), depth in 1_u64..20, first in 0..BLOCK) {
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
        fn parity_and_escapes_are_those_found_bit_by_bit(bits: u64, more: u64, before: bool) {
            // The union of two has the long runs that one alone seldom has.
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
