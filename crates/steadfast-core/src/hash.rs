//! Hash that is equal on every machine and in every release, for values that are stored or compared between processes.

/// FNV-1a hash of 64 bits ([Fowler, Noll, Vo](http://www.isthe.com/chongo/tech/comp/fnv/)). Not for untrusted keys of a
/// hash table.
///
/// ```
/// use steadfast_core::hash::Fnv1a;
///
/// let mut hash = Fnv1a::new();
/// hash.write(b"foobar");
/// assert_eq!(hash.finish(), 0x8594_4171_f739_67e8);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fnv1a(u64);

impl Fnv1a {
    /// Creates the hash of no bytes.
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds `bytes`. Several texts need a separator that occurs in none of them.
    pub fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Returns the hash of all bytes so far.
    pub const fn finish(self) -> u64 {
        self.0
    }
}

impl Default for Fnv1a {
    fn default() -> Self {
        Self::new()
    }
}
