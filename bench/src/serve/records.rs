//! Generated objects as they are kept on disk and in memory: bytes, with the places that are written over.

use std::path::Path;

use crate::Trouble;

/// The digits of a version.
pub(super) const VERSION_DIGITS: usize = 10;
/// The digits of the time at which an event was sent, in nanoseconds since 1970.
pub(super) const SENT_DIGITS: usize = 19;

/// The length of a UID.
const UID: usize = 36;

/// Where in a UID the number of a copy is written, and how many hexadecimal digits it has.
const COPY_IN_UID: usize = 9;
const COPY_DIGITS: usize = 4;

/// The length of what stands before each object: three numbers.
const HEADER: usize = 12;

/// All objects in one encoding.
///
/// Where there are to be more than the file has, they are there again as copies, under other names and UIDs.
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
    /// What is written over in the name of a copy.
    name: usize,
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
    /// The first `count` objects of a file, or all if there are fewer; `whose` is the name and the UID of each one, by
    /// its number and its bytes.
    pub(super) fn load(
        path: &Path,
        count: usize,
        whose: impl Fn(usize, &[u8]) -> Option<Whose>,
    ) -> Result<Self, Trouble> {
        let mut bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut places = Vec::new();
        let mut at = 0;
        while places.len() < count && at < bytes.len() {
            let header = bytes.get(at..at + HEADER).ok_or("the file is cut")?;
            let number = |index: usize| {
                let piece = [header[4 * index], header[4 * index + 1], header[4 * index + 2], header[4 * index + 3]];
                u32::from_le_bytes(piece) as usize
            };
            let (start, length) = (at + HEADER, number(0));
            let object = bytes.get(start..start + length).ok_or("the file is cut")?;
            let place = whose(places.len(), object).and_then(|Whose { name, uid }| {
                let (at, uid) = (memmem(object, &name)?, memmem(object, &uid)?);
                // Before the last hyphen of the name: what follows is the number, another for each of the file.
                let hyphen = name.iter().rposition(|byte| *byte == b'-').filter(|hyphen| *hyphen >= COPY_DIGITS)?;
                Some(Place { start, length, version: number(1), sent: number(2), uid, name: at + hyphen - COPY_DIGITS })
            });
            places.push(place.ok_or_else(|| format!("{}: an object without a name or a UID", path.display()))?);
            at = start + length;
        }
        if places.is_empty() {
            return Err(format!("{} is empty: generate more", path.display()).into());
        }
        bytes.truncate(at);
        Ok(Self { bytes, places })
    }

    /// The record of the object number `index`, and which copy of it that is.
    fn place(&self, index: usize) -> (&Place, usize) {
        (&self.places[index % self.places.len()], index / self.places.len())
    }

    /// How many bytes the object number `index` has.
    pub(super) fn length(&self, index: usize) -> usize {
        self.place(index).0.length
    }

    /// The object number `index` as it was generated.
    pub(super) fn generated(&self, index: usize) -> &[u8] {
        let (place, _) = self.place(index);
        &self.bytes[place.start..place.start + place.length]
    }

    /// Appends the object number `index` without its first `skip` bytes, stamped.
    pub(super) fn append(&self, into: &mut Vec<u8>, index: usize, skip: usize, stamp: Stamp) {
        let (place, copy) = self.place(index);
        let start = into.len();
        into.extend_from_slice(&self.bytes[place.start + skip..place.start + place.length]);
        write_digits(&mut into[start + place.version - skip..], VERSION_DIGITS, stamp.version);
        write_digits(&mut into[start + place.sent - skip..], SENT_DIGITS, stamp.sent);
        if stamp.stay > 0 {
            // Another object of the name.
            into[start + place.uid - skip..][..8].copy_from_slice(format!("{:08x}", stamp.stay).as_bytes());
        }
        if copy > 0 {
            let number = format!("{copy:0COPY_DIGITS$x}");
            for at in [place.uid + COPY_IN_UID, place.name] {
                into[start + at - skip..][..COPY_DIGITS].copy_from_slice(number.as_bytes());
            }
        }
    }
}

/// Whose bytes a record is.
pub(super) struct Whose {
    name: Vec<u8>,
    uid: Vec<u8>,
}

/// The same of an object in JSON: the first members of their names, for the metadata come first.
pub(super) fn whose_in_json(object: &[u8]) -> Option<Whose> {
    let text = |member: &[u8]| {
        let at = memmem(object, member)? + member.len();
        let length = object[at..].iter().position(|byte| *byte == b'"')?;
        Some(object[at..at + length].to_vec())
    };
    Some(Whose { name: text(br#""name":""#)?, uid: text(br#""uid":""#).filter(|uid| uid.len() == UID)? })
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
