//! Tags and lengths of a message that arrives in pieces of any size.

use super::wire::{Reader, Tag, Wire, WireError};

/// Tag of a field, with the length of its value after the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FieldHeader {
    pub(crate) number: u32,
    pub(crate) wire: Wire,
    /// Number of bytes of the value after the header; 0 for a varint, which is read as part of the header.
    pub(crate) length: u64,
}

/// Maximum length of a header in bytes: two varints.
const MAX_HEADER_BYTES: usize = 20;

/// Reader of headers, which buffers an incomplete header.
#[derive(Default)]
pub(crate) struct FieldHeaderReader {
    buffer: [u8; MAX_HEADER_BYTES],
    count: usize,
}

impl FieldHeaderReader {
    /// Returns the number of buffered bytes.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Reads the next header from the start of `piece`, and returns the number of its bytes in `piece`. If `piece` ends
    /// within the header, all of `piece` is buffered.
    ///
    /// `remaining` is the number of bytes from the start of the header to the end of the enclosing message. The header
    /// and its value must fit into them.
    pub(crate) fn next(&mut self, piece: &[u8], remaining: u64) -> Result<(Option<FieldHeader>, usize), WireError> {
        // A header never crosses the end of the enclosing message.
        let window = usize::try_from(remaining).unwrap_or(MAX_HEADER_BYTES).min(MAX_HEADER_BYTES);
        let taken = piece.len().min(window.saturating_sub(self.count));
        let available = if self.count == 0 {
            &piece[..taken]
        } else {
            self.buffer[self.count..self.count + taken].copy_from_slice(&piece[..taken]);
            &self.buffer[..self.count + taken]
        };
        match read(available) {
            // The declared length must fit into the enclosing message.
            Ok((header, length)) if header.length <= remaining.saturating_sub(length as u64) => {
                let taken = length - self.count;
                self.count = 0;
                Ok((Some(header), taken))
            }
            // The header may continue in the next chunk.
            Err(_) if available.len() < window => {
                let length = available.len();
                if self.count == 0 {
                    self.buffer[..taken].copy_from_slice(&piece[..taken]);
                }
                self.count = length;
                Ok((None, taken))
            }
            Ok(_) | Err(_) => Err(WireError { at: 0 }),
        }
    }
}

fn read(bytes: &[u8]) -> Result<(FieldHeader, usize), WireError> {
    let mut reader = Reader::new(bytes);
    let Some(Tag { number, wire }) = reader.tag()? else { return Err(WireError { at: 0 }) };
    let length = match wire {
        Wire::Delimited => reader.varint()?,
        Wire::Varint => reader.varint().map(|_| 0)?,
        Wire::Fixed64 => 8,
        Wire::Fixed32 => 4,
        // No list and no event of Kubernetes contains a group.
        Wire::GroupStart | Wire::GroupEnd => return Err(WireError { at: 0 }),
    };
    Ok((FieldHeader { number, wire, length }, reader.at()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a header of `bytes` in pieces of `size` bytes; returns it with the number of processed bytes.
    fn headers(bytes: &[u8], size: usize, remaining: u64) -> Result<(Option<FieldHeader>, usize), WireError> {
        let (mut headers, mut at) = (FieldHeaderReader::default(), 0);
        for piece in bytes.chunks(size) {
            let (header, taken) = headers.next(piece, remaining)?;
            at += taken;
            if header.is_some() {
                return Ok((header, at));
            }
        }
        Ok((None, at))
    }

    #[test]
    fn header_is_independent_of_chunks() {
        for (bytes, wanted) in [
            (&[0x12, 0x03, 1, 2, 3][..], Some((2, 3, 2))),
            (&[0x92, 0x03, 0x80, 0x01, 1, 2], Some((50, 128, 4))),
            (&[0x10, 0xff, 0x01, 9], Some((2, 0, 3))),
            (&[0x11, 0, 0, 0], Some((2, 8, 1))),
            (&[0x92], None),
            (&[0x12, 0x80], None),
        ] {
            for size in 1..=bytes.len() {
                let found = headers(bytes, size, 200).expect("no fault");
                let found = found.0.map(|header| (header.number, header.length, found.1));
                assert_eq!(found, wanted, "{bytes:?} by {size}");
            }
        }
    }

    #[test]
    fn overlong_field_is_a_fault() {
        for (bytes, remaining) in [
            (&[0x12, 0x03, 1, 2, 3][..], 4),
            (&[0x12, 0x80, 0x80], 3),
            (&[0x13; 20], 200),
            (&[0x80; 20], 200),
            (&[0x06; 20], 200),
            (&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], u64::MAX),
        ] {
            for size in 1..=bytes.len() {
                assert!(headers(bytes, size, remaining).is_err(), "{bytes:?} by {size}");
            }
        }
    }
}
