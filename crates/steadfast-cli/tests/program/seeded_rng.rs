//! Pseudorandom numbers from a seed.

/// Pseudorandom number generator. Equal seeds give equal sequences.
pub(crate) struct SeededRng(pub(crate) u64);

impl SeededRng {
    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// Seeds of random tests: only `STEADFAST_SEED` if it is set, else the numbers from 1 to `STEADFAST_SEEDS`, which defaults to
/// `default_count`.
pub(crate) fn seeds(default_count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    match number("STEADFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("STEADFAST_SEEDS").unwrap_or(default_count),
    }
}
