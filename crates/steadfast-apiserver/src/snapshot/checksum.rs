//! Checksum of the lines of a file: FNV-1a with 64 bits.

/// Checksum of all bytes since the start. Each changed byte changes the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checksum(u64);

impl Checksum {
    /// Returns the checksum of no bytes.
    pub(super) fn start() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Returns 16 hexadecimal digits.
    pub(super) fn digits(self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Checksum;

    #[test]
    fn checksums_equal_published_vectors() {
        let digits = |text: &str| {
            let mut checksum = Checksum::start();
            checksum.add(text.as_bytes());
            checksum.digits()
        };
        assert_eq!(
            [digits(""), digits("a"), digits("foobar")],
            ["cbf29ce484222325", "af63dc4c8601ec8c", "85944171f73967e8"]
        );
    }
}
