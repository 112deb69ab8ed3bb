//! Random numbers for jitter and selection, not for secrets.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Thread-safe generator (`SplitMix64`).
#[derive(Debug)]
pub(super) struct Random {
    state: AtomicU64,
}

impl Random {
    /// Creates a generator with this seed.
    pub(super) fn seeded(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// Creates a generator with a seed from the operating system.
    pub(super) fn from_entropy() -> Self {
        Self::seeded(RandomState::new().hash_one(std::process::id()))
    }

    /// Returns the next number.
    pub(super) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn equal_seeds_give_equal_sequences() {
        let (left, right, other) = (Random::seeded(7), Random::seeded(7), Random::seeded(8));
        let first: Vec<u64> = (0..8).map(|_| left.next()).collect();
        let second: Vec<u64> = (0..8).map(|_| right.next()).collect();
        let third: Vec<u64> = (0..8).map(|_| other.next()).collect();
        assert_eq!(first, second);
        assert_ne!(first, third);
    }
}
