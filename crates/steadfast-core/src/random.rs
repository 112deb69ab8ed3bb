//! Pseudo-random numbers from a caller's seed, for jitter: small, fast, reproducible, not for secrets.

use std::time::Duration;

/// `SplitMix64` generator ([Steele, Lea, Flood 2014](https://doi.org/10.1145/2714064.2660195)).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the generator for `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number, uniform over all of `u64`.
    pub fn draw(&mut self) -> u64 {
        // SplitMix64: seedable, and equal on every platform.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, almost uniformly. Panics if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// Returns a fraction from 0 (inclusive) to 1 (exclusive).
    pub fn fraction(&mut self) -> f64 {
        // An `f64` has a precision of 53 bits.
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a duration between `min` and `max`.
    pub fn between(&mut self, min: Duration, max: Duration) -> Duration {
        min.saturating_add(max.saturating_sub(min).mul_f64(self.fraction()))
    }
}
