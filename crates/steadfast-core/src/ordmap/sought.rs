//! What a key is looked up by, and the fingerprint that finds it in a leaf.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// A key, or what is as good as one to look it up: it orders and hashes as the key does.
pub trait Sought<K>: Hash {
    /// How it compares to `held`.
    fn order(&self, held: &K) -> Ordering;
}

impl<K: Ord + Hash> Sought<K> for K {
    fn order(&self, held: &K) -> Ordering {
        self.cmp(held)
    }
}

/// A few bits of a key's hash. Keys that share them cost a comparison, no more, so nobody gains by making them.
pub(super) fn fingerprint(key: &impl Hash) -> u32 {
    let mut hasher = Folded(0);
    key.hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}

/// A hash made for speed on short texts, eight bytes at a time.
struct Folded(u64);

impl Folded {
    fn fold(&mut self, word: u64) {
        // An odd number without a pattern, as Fibonacci hashing takes it.
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.fold(u64::from_le_bytes(last));
    }

    fn write_u8(&mut self, number: u8) {
        self.fold(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.fold(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
