//! Deterministic pseudorandom numbers from a seed.

/// Pseudorandom number generator (splitmix64). Equal seeds give equal sequences.
#[derive(Clone, Debug)]
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number, between zero and one.
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // Keep the upper 53 bits: the mantissa of an `f64` has 53 bits.
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }
}
