//! Generated objects as they are kept on disk and in memory: bytes, with the places that are written over.

use std::path::Path;

use crate::Trouble;

/// The digits of a version.
pub(super) const VERSION_DIGITS: usize = 10;
/// The digits of the time at which an event was sent, in nanoseconds since 1970.
pub(super) const SENT_DIGITS: usize = 19;

/// The length of what stands before each object: three numbers.
const HEADER: usize = 12;

/// All objects in one encoding.
pub(super) struct Records {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

struct Place {
    start: usize,
    length: usize,
    version: usize,
    sent: usize,
}

impl Records {
    /// The first `count` objects of a file.
    pub(super) fn load(path: &Path, count: usize) -> Result<Self, Trouble> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut places = Vec::with_capacity(count);
        let mut at = 0;
        while places.len() < count {
            let header = bytes.get(at..at + HEADER).ok_or_else(|| {
                format!("{} has {} objects, not {count}: generate more", path.display(), places.len())
            })?;
            let number = |index: usize| {
                let piece = [header[4 * index], header[4 * index + 1], header[4 * index + 2], header[4 * index + 3]];
                u32::from_le_bytes(piece) as usize
            };
            places.push(Place { start: at + HEADER, length: number(0), version: number(1), sent: number(2) });
            at += HEADER + number(0);
        }
        Ok(Self { bytes, places })
    }

    /// How many bytes the object number `index` has.
    pub(super) fn length(&self, index: usize) -> usize {
        self.places[index].length
    }

    /// Appends the object number `index` without its first `skip` bytes, at `version` and sent at `sent`.
    pub(super) fn append(&self, into: &mut Vec<u8>, index: usize, skip: usize, version: u64, sent: u64) {
        let place = &self.places[index];
        let start = into.len();
        into.extend_from_slice(&self.bytes[place.start + skip..place.start + place.length]);
        write_digits(&mut into[start + place.version - skip..], VERSION_DIGITS, version);
        write_digits(&mut into[start + place.sent - skip..], SENT_DIGITS, sent);
    }
}

fn write_digits(into: &mut [u8], digits: usize, mut number: u64) {
    for digit in into[..digits].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
