//! Tags and lengths of a message that arrives in pieces of any size.

use super::wire::{Fault, Reader, Tag, Wire};

/// Tag of a field, with the length of its value after the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) number: u32,
    pub(crate) wire: Wire,
    /// Number of bytes of the value after the head; 0 for a varint, which is read as part of the head.
    pub(crate) length: u64,
}

/// Maximum length of a head in bytes: two varints.
const MAX_HEAD_BYTES: usize = 20;

/// Reader of heads, which buffers an incomplete head.
#[derive(Default)]
pub(crate) struct Heads {
    buffer: [u8; MAX_HEAD_BYTES],
    count: usize,
}

impl Heads {
    /// Returns the number of buffered bytes.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Reads the next head from the start of `piece`, and returns the number of its bytes in `piece`. If `piece` ends
    /// within the head, all of `piece` is buffered.
    ///
    /// `remaining` is the number of bytes from the start of the head to the end of the enclosing message. The head and
    /// its value must fit into them.
    pub(crate) fn next(&mut self, piece: &[u8], remaining: u64) -> Result<(Option<Head>, usize), Fault> {
        // A head never crosses the end of the enclosing message.
        let window = usize::try_from(remaining).unwrap_or(MAX_HEAD_BYTES).min(MAX_HEAD_BYTES);
        let taken = piece.len().min(window.saturating_sub(self.count));
        let available = if self.count == 0 {
            &piece[..taken]
        } else {
            self.buffer[self.count..self.count + taken].copy_from_slice(&piece[..taken]);
            &self.buffer[..self.count + taken]
        };
        match read(available) {
            // The declared length must fit into the enclosing message.
            Ok((head, length)) if head.length <= remaining.saturating_sub(length as u64) => {
                let taken = length - self.count;
                self.count = 0;
                Ok((Some(head), taken))
            }
            // The head may continue in the next chunk.
            Err(_) if available.len() < window => {
                let length = available.len();
                if self.count == 0 {
                    self.buffer[..taken].copy_from_slice(&piece[..taken]);
                }
                self.count = length;
                Ok((None, taken))
            }
            Ok(_) | Err(_) => Err(Fault { at: 0 }),
        }
    }
}

fn read(bytes: &[u8]) -> Result<(Head, usize), Fault> {
    let mut reader = Reader::new(bytes);
    let Some(Tag { number, wire }) = reader.tag()? else { return Err(Fault { at: 0 }) };
    let length = match wire {
        Wire::Delimited => reader.varint()?,
        Wire::Varint => reader.varint().map(|_| 0)?,
        Wire::Fixed64 => 8,
        Wire::Fixed32 => 4,
        // No list and no event of Kubernetes contains a group.
        Wire::GroupStart | Wire::GroupEnd => return Err(Fault { at: 0 }),
    };
    Ok((Head { number, wire, length }, reader.at()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a head of `bytes` in pieces of `size` bytes; returns it with the number of processed bytes.
    fn heads(bytes: &[u8], size: usize, remaining: u64) -> Result<(Option<Head>, usize), Fault> {
        let (mut heads, mut at) = (Heads::default(), 0);
        for piece in bytes.chunks(size) {
            let (head, taken) = heads.next(piece, remaining)?;
            at += taken;
            if head.is_some() {
                return Ok((head, at));
            }
        }
        Ok((None, at))
    }

    #[test]
    fn head_is_independent_of_chunks() {
        for (bytes, wanted) in [
            (&[0x12, 0x03, 1, 2, 3][..], Some((2, 3, 2))),
            (&[0x92, 0x03, 0x80, 0x01, 1, 2], Some((50, 128, 4))),
            (&[0x10, 0xff, 0x01, 9], Some((2, 0, 3))),
            (&[0x11, 0, 0, 0], Some((2, 8, 1))),
            (&[0x92], None),
            (&[0x12, 0x80], None),
        ] {
            for size in 1..=bytes.len() {
                let found = heads(bytes, size, 200).expect("no fault");
                let found = found.0.map(|head| (head.number, head.length, found.1));
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
                assert!(heads(bytes, size, remaining).is_err(), "{bytes:?} by {size}");
            }
        }
    }
}
