//! Format of pending deliveries. A state that equals the cached one is not written again.

use super::row::{key_of, text, write_key, write_text};
use super::{RestoredEntry, RowEncodings, UnsupportedMessageType};
use crate::decode::RawObject;
use crate::event::{Certainty, DeleteReason};
use crate::key::ObjectKey;
use crate::lazy::Lazy;
use crate::object::{Entry, Object};
use crate::outbox::{DueEvent, PendingDelivery, StayEnd};
use crate::version::ResourceVersion;

/// Pending delivery from a checkpoint. Its field `latest` is empty, because the cache has the latest state.
pub type SavedDelivery = PendingDelivery<SavedState>;

/// State within a pending delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SavedState {
    /// The last decodable state of the cache entry with this name.
    Cached,
    /// A separate state.
    Separate(RawObject),
}

/// Handler and key of a row. Without a key, the row records that the handler exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryKey {
    /// Name of the handler.
    pub handler: String,
    /// Key of the object.
    pub key: Option<ObjectKey>,
}

/// Byte at the start of a delivery's row key, and after the handler's name in this key. The byte occurs in no object
/// name and in no UTF-8 text.
const DELIMITER: u8 = 0xff;

impl DeliveryKey {
    /// Appends the row key to `out`.
    pub fn write(handler: &str, key: Option<&ObjectKey>, out: &mut Vec<u8>) {
        out.push(DELIMITER);
        out.extend(handler.as_bytes());
        out.push(DELIMITER);
        if let Some(key) = key {
            write_key(key, out);
        }
    }

    /// Returns whether `bytes` start like the row key of a delivery. The key may be incomplete or invalid.
    pub fn has_prefix(bytes: &[u8]) -> bool {
        bytes.first() == Some(&DELIMITER)
    }

    /// Reads a row key; `None` if the bytes are not a valid row key.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (_, rest) = bytes.split_first().filter(|(delimiter, _)| **delimiter == DELIMITER)?;
        let end = rest.iter().position(|byte| *byte == DELIMITER)?;
        let handler = str::from_utf8(&rest[..end]).ok()?.to_owned();
        let key = match &rest[end + 1..] {
            [] => None,
            key => Some(key_of(key)?),
        };
        Some(Self { handler, key })
    }
}

const CERTAINTIES: [(Certainty, u8); 2] = [(Certainty::Observed, b'o'), (Certainty::Inferred, b'i')];

const REASONS: [(DeleteReason, u8); 4] = [
    (DeleteReason::Deleted, b'd'),
    (DeleteReason::Replaced, b'r'),
    (DeleteReason::DeletedOrLeft, b's'),
    (DeleteReason::Left, b'l'),
];

/// Returns the letter of `value` in the table `table`.
fn letter<T: PartialEq + Copy>(table: &[(T, u8)], value: T) -> u8 {
    // 0 occurs in neither table, so a reader rejects an unknown value.
    table.iter().find(|(known, _)| *known == value).map_or(0, |(_, letter)| *letter)
}

/// Returns the value of `letter` in the table `table`.
fn value<T: Copy>(table: &[(T, u8)], letter: u8) -> Option<T> {
    table.iter().find(|(_, known)| *known == letter).map(|(value, _)| *value)
}

/// Writer of pending deliveries. Writes a reference instead of a state that equals the state `cached` of the entry.
struct RowWriter<'a, K> {
    encodings: &'a RowEncodings,
    cached: Option<&'a Object<Lazy<K>>>,
    out: &'a mut Vec<u8>,
}

impl<K> RowWriter<'_, K> {
    fn state(&mut self, state: &Object<Lazy<K>>) -> Result<(), UnsupportedMessageType> {
        // Most states equal the cached state. A reference avoids a second copy.
        if self.cached.is_some_and(|cached| cached.is(state)) {
            self.out.push(b'=');
            return Ok(());
        }
        self.out.push(b'+');
        let mut row = Vec::new();
        self.encodings.write_object(state, &mut row)?;
        self.out.extend((row.len() as u32).to_le_bytes());
        self.out.extend(row);
        Ok(())
    }

    fn end(&mut self, end: &StayEnd<Object<Lazy<K>>>) -> Result<(), UnsupportedMessageType> {
        self.out.extend([letter(&CERTAINTIES, end.certainty), letter(&REASONS, end.reason)]);
        write_text(end.version.as_ref().map_or("", ResourceVersion::as_str), self.out);
        self.state(&end.last)
    }
}

/// Unread rest of a row.
struct RowReader<'a> {
    encodings: &'a RowEncodings,
    key: &'a ObjectKey,
    rest: &'a [u8],
}

impl RowReader<'_> {
    fn letter(&mut self) -> Option<u8> {
        let (letter, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*letter)
    }

    fn state(&mut self) -> Option<SavedState> {
        match self.letter()? {
            b'=' => Some(SavedState::Cached),
            b'+' => {
                let (length, rest) = self.rest.split_first_chunk::<4>()?;
                let (row, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                self.rest = rest;
                match self.encodings.read(self.key.clone(), row)? {
                    RestoredEntry::Known(raw) => Some(SavedState::Separate(raw)),
                    // Delivered states were decodable, so a nested row of a tainted entry is
                    // invalid.
                    RestoredEntry::Unknown(..) => None,
                }
            }
            _ => None,
        }
    }

    fn end(&mut self) -> Option<StayEnd<SavedState>> {
        let (certainty, reason) = (value(&CERTAINTIES, self.letter()?)?, value(&REASONS, self.letter()?)?);
        let (version, rest) = text(self.rest)?;
        self.rest = rest;
        let version = Some(version).filter(|version| !version.is_empty()).map(ResourceVersion::from);
        Some(StayEnd { last: self.state()?, version, certainty, reason })
    }
}

impl RowEncodings {
    /// Appends a pending delivery with a due event. `cached` is the cache entry of the object.
    ///
    /// # Errors
    ///
    /// Returns an error if the message type of a state is not one of these encodings.
    pub fn write_delivery<K>(
        &self,
        pending: &PendingDelivery<Object<Lazy<K>>>,
        cached: Option<&Entry<Lazy<K>>>,
        out: &mut Vec<u8>,
    ) -> Result<(), UnsupportedMessageType> {
        let mut writer = RowWriter { encodings: self, cached: cached.and_then(Entry::last), out };
        writer.out.push(if pending.initial { b'i' } else { b'-' });
        // Rows of format 2 lack this field.
        if let Some(first_change) = pending.first_change.as_ref().filter(|version| version.is_from_server()) {
            writer.out.push(b'v');
            write_text(first_change.as_str(), writer.out);
        }
        match &pending.base {
            Some(base) => {
                writer.out.push(b'b');
                writer.state(base)?;
            }
            None => writer.out.push(b'-'),
        }
        match &pending.due {
            Some(DueEvent::State(due)) => {
                writer.out.push(b's');
                writer.state(due)?;
            }
            Some(DueEvent::End(end)) => {
                writer.out.push(b'e');
                writer.end(end)?;
            }
            None => writer.out.push(b'-'),
        }
        match &pending.ended {
            Some(end) => {
                writer.out.push(b'e');
                writer.end(end)?;
            }
            None => writer.out.push(b'-'),
        }
        Ok(())
    }

    /// Reads the pending delivery of `key`; `None` if the bytes are not a valid row.
    pub fn read_delivery(&self, key: &ObjectKey, row: &[u8]) -> Option<SavedDelivery> {
        let mut reader = RowReader { encodings: self, key, rest: row };
        let mut pending = SavedDelivery::default();
        pending.initial = match reader.letter()? {
            b'i' => true,
            b'-' => false,
            _ => return None,
        };
        let mut letter = reader.letter()?;
        if letter == b'v' {
            let (version, rest) = text(reader.rest)?;
            (reader.rest, pending.first_change) = (rest, Some(version.into()));
            letter = reader.letter()?;
        }
        match letter {
            b'b' => pending.base = Some(reader.state()?),
            b'-' => {}
            _ => return None,
        }
        pending.due = match reader.letter()? {
            b's' => Some(DueEvent::State(reader.state()?)),
            b'e' => Some(DueEvent::End(reader.end()?)),
            // `Outbox::begin_write` returns only entries with a due event.
            _ => return None,
        };
        match reader.letter()? {
            b'e' => pending.ended = Some(reader.end()?),
            b'-' => {}
            _ => return None,
        }
        // Trailing bytes belong to another format, so the whole row is rejected.
        reader.rest.is_empty().then_some(pending)
    }
}
