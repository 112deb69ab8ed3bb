//! Order-independent checksum of a set of objects, which the client and the server compute independently.

use std::hash::{DefaultHasher, Hasher};
use std::io;

use serde::Serialize;

/// Sum of the hashes of the objects' JSON.
///
/// The hash is that of the standard library, so it is comparable only between processes of the same program.
#[derive(Clone, Copy, Default)]
pub(crate) struct Checksum {
    sum: u64,
}

impl Checksum {
    /// Adds an object.
    pub(crate) fn add(&mut self, object: &impl Serialize) -> Result<(), serde_json::Error> {
        let mut text = HashWriter(DefaultHasher::new());
        serde_json::to_writer(&mut text, object)?;
        // Addition is commutative, so the order of the objects does not matter. Equal objects do not cancel, unlike
        // with XOR.
        self.sum = self.sum.wrapping_add(text.0.finish());
        Ok(())
    }

    /// Returns the checksum.
    pub(crate) fn sum(self) -> u64 {
        self.sum
    }
}

/// Writer that hashes the written text.
struct HashWriter(DefaultHasher);

impl io::Write for HashWriter {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.write(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(objects: &[&str]) -> u64 {
        let mut checksum = Checksum::default();
        for object in objects {
            checksum.add(object).expect("text");
        }
        checksum.sum()
    }

    #[test]
    fn checksum_ignores_only_the_order() {
        assert_eq!(of(&["a", "b"]), of(&["b", "a"]));
        assert_ne!(of(&["a", "b"]), of(&["a", "c"]));
        assert_ne!(of(&["a", "b"]), of(&["a"]));
        assert_ne!(of(&["a", "a"]), of(&["a"]));
    }
}
