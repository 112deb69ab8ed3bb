//! Seeded random numbers, for reproducible runs.

/// Small generator (`SplitMix64`), sufficient for names, UIDs and jitter. Its output is equal on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// Letters of generated names in Kubernetes: without vowels and letters that look alike.
pub(crate) const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64: seedable, and equal on every platform.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..1`.
    pub(crate) fn fraction(&mut self) -> f64 {
        // An `f64` has a precision of 53 bits.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a version 4 UUID.
    pub(crate) fn uid(&mut self) -> String {
        let high = self.next();
        let low = self.next();
        // Version 4 of RFC 9562.
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff,
        )
    }

    /// Returns the five letters that follow `generateName`.
    pub(crate) fn name_suffix(&mut self) -> String {
        (0..5).map(|_| char::from(NAME_LETTERS[(self.next() % NAME_LETTERS.len() as u64) as usize])).collect()
    }
}
