//! What many objects come to, whatever their order: both sides of the wire say it, each of what it has.

use std::hash::{DefaultHasher, Hasher};
use std::io;

use serde::Serialize;

/// The sum of what each object's text in JSON hashes to.
///
/// The hash is the standard library's, so it means something to processes of the same program only.
#[derive(Clone, Copy, Default)]
pub(crate) struct Checksum {
    sum: u64,
}

impl Checksum {
    /// Takes in one object.
    pub(crate) fn add(&mut self, object: &impl Serialize) -> Result<(), serde_json::Error> {
        let mut text = Hashed(DefaultHasher::new());
        serde_json::to_writer(&mut text, object)?;
        self.sum = self.sum.wrapping_add(text.0.finish());
        Ok(())
    }

    /// What they come to.
    pub(crate) fn sum(self) -> u64 {
        self.sum
    }
}

/// Text that is hashed as it is written.
struct Hashed(DefaultHasher);

impl io::Write for Hashed {
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
    fn the_order_does_not_matter_and_everything_else_does() {
        assert_eq!(of(&["a", "b"]), of(&["b", "a"]));
        assert_ne!(of(&["a", "b"]), of(&["a", "c"]));
        assert_ne!(of(&["a", "b"]), of(&["a"]));
        assert_ne!(of(&["a", "a"]), of(&["a"]));
    }
}
