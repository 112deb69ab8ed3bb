//! Generated objects as they are kept on disk and in memory: bytes, with the places that are written over.

use std::path::Path;

use crate::Trouble;

/// The digits of a version.
pub(super) const VERSION_DIGITS: usize = 10;
/// The digits of the time at which an event was sent, in nanoseconds since 1970.
pub(super) const SENT_DIGITS: usize = 19;

/// The length of a UID.
const UID: usize = 36;

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
    uid: usize,
}

/// What is written over in an object.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    pub(super) version: u64,
    /// When it was sent, in nanoseconds since 1970; 0 where nobody asks.
    pub(super) sent: u64,
    /// How often an object of its name was there before.
    pub(super) stay: u32,
}

impl Records {
    /// The first `count` objects of a file; `uid` is the text of each one's UID, by its number and its bytes.
    pub(super) fn load(
        path: &Path,
        count: usize,
        uid: impl Fn(usize, &[u8]) -> Option<Vec<u8>>,
    ) -> Result<Self, Trouble> {
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
            let (start, length) = (at + HEADER, number(0));
            let object = bytes.get(start..start + length).ok_or("the file is cut")?;
            let uid = uid(places.len(), object).and_then(|uid| memmem(object, &uid));
            let uid = uid.ok_or_else(|| format!("{}: an object without a UID", path.display()))?;
            places.push(Place { start, length, version: number(1), sent: number(2), uid });
            at = start + length;
        }
        Ok(Self { bytes, places })
    }

    /// How many bytes the object number `index` has.
    pub(super) fn length(&self, index: usize) -> usize {
        self.places[index].length
    }

    /// The text of an object's UID, as it was generated.
    pub(super) fn uid(&self, index: usize) -> &[u8] {
        let Place { start, uid, .. } = self.places[index];
        &self.bytes[start + uid..start + uid + UID]
    }

    /// Appends the object number `index` without its first `skip` bytes, stamped.
    pub(super) fn append(&self, into: &mut Vec<u8>, index: usize, skip: usize, stamp: Stamp) {
        let place = &self.places[index];
        let start = into.len();
        into.extend_from_slice(&self.bytes[place.start + skip..place.start + place.length]);
        write_digits(&mut into[start + place.version - skip..], VERSION_DIGITS, stamp.version);
        write_digits(&mut into[start + place.sent - skip..], SENT_DIGITS, stamp.sent);
        if stamp.stay > 0 {
            // Another object of the name.
            into[start + place.uid - skip..][..8].copy_from_slice(format!("{:08x}", stamp.stay).as_bytes());
        }
    }
}

/// The UID of an object in JSON: the first of all, for the metadata come first.
pub(super) fn uid_in_json(object: &[u8]) -> Option<Vec<u8>> {
    const MEMBER: &[u8] = br#""uid":""#;
    let at = memmem(object, MEMBER)? + MEMBER.len();
    object.get(at..at + UID).map(<[u8]>::to_vec)
}

/// Where `wanted` is in `text` first.
fn memmem(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|piece| piece == wanted)
}

fn write_digits(into: &mut [u8], digits: usize, mut number: u64) {
    for digit in into[..digits].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
