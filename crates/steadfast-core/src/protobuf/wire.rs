//! Wire format: tags, varints, and slices with a length.
//!
//! No function allocates. A length is only trusted if its value ends within the containing message.

/// Wire type of a value ([encoding](https://protobuf.dev/programming-guides/encoding/#structure)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Varint,
    Fixed64,
    Delimited,
    GroupStart,
    GroupEnd,
    Fixed32,
}

/// Number of a field, and the wire type of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) number: u32,
    pub(crate) wire: Wire,
}

/// Error of an invalid message. It states the offset, not the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireError {
    /// Offset in the outermost message.
    pub(crate) at: usize,
}

/// Reader of one message. Offsets are relative to the outermost message.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    /// Outermost message, up to the end of this reader's message.
    bytes: &'a [u8],
    at: usize,
}

/// Maximum length of a varint in bytes: 64 bits, seven in each.
const MAX_VARINT_BYTES: usize = 10;

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Creates a reader of an empty message at the current offset.
    pub(crate) fn empty(&self) -> Self {
        Self { bytes: &self.bytes[..self.at], at: self.at }
    }

    /// Returns the current offset.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Moves to an earlier or later offset.
    pub(crate) fn seek(&mut self, at: usize) {
        self.at = at;
    }

    /// Returns the unread bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn fault<T>(&self) -> Result<T, WireError> {
        Err(WireError { at: self.at })
    }

    /// Reads the next tag; `None` at the end of the message.
    #[inline]
    pub(crate) fn tag(&mut self) -> Result<Option<Tag>, WireError> {
        let begin = self.at;
        if begin == self.bytes.len() {
            return Ok(None);
        }
        let fault = Err(WireError { at: begin });
        let Ok(tag) = u32::try_from(self.varint()?) else { return fault };
        let wire = match tag & 7 {
            0 => Wire::Varint,
            1 => Wire::Fixed64,
            2 => Wire::Delimited,
            3 => Wire::GroupStart,
            4 => Wire::GroupEnd,
            5 => Wire::Fixed32,
            _ => return fault,
        };
        // Field numbers start at 1.
        if tag < 8 { fault } else { Ok(Some(Tag { number: tag >> 3, wire })) }
    }

    /// Reads a varint. Bits beyond the 64th are dropped, as in Go.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, WireError> {
        // Fast path: most tags and lengths have a single byte.
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, WireError> {
        // Nearly all numbers and lengths that exceed one byte have two bytes.
        if let [low, high @ ..0x80, ..] = *self.rest() {
            self.at += 2;
            return Ok(u64::from(low & 0x7f) | u64::from(high) << 7);
        }
        let mut value = 0;
        for (index, byte) in self.rest().iter().take(MAX_VARINT_BYTES).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                self.at += index + 1;
                return Ok(value);
            }
        }
        self.fault()
    }

    /// Reads a number that must be a varint.
    #[inline]
    pub(crate) fn number(&mut self, wire: Wire) -> Result<u64, WireError> {
        if wire == Wire::Varint { self.varint() } else { self.fault() }
    }

    /// Reads eight bytes in little-endian order.
    pub(crate) fn fixed64(&mut self) -> Result<u64, WireError> {
        let Some((bytes, _)) = self.rest().split_first_chunk::<8>() else { return self.fault() };
        self.at += bytes.len();
        Ok(u64::from_le_bytes(*bytes))
    }

    /// Reads a value with a length. Returns a fault for another wire type, or if the length exceeds the rest of the
    /// message.
    #[inline]
    pub(crate) fn delimited(&mut self, wire: Wire) -> Result<Self, WireError> {
        if wire != Wire::Delimited {
            return self.fault();
        }
        let length = self.varint()?;
        let left = self.bytes.len() - self.at;
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= left) else { return self.fault() };
        let inner = Self { bytes: &self.bytes[..self.at + length], at: self.at };
        self.at += length;
        Ok(inner)
    }

    /// Skips a value. Groups, which Kubernetes does not use, are skipped to their end.
    #[inline]
    pub(crate) fn skip(&mut self, wire: Wire) -> Result<(), WireError> {
        match wire {
            Wire::Delimited => self.delimited(wire).map(drop),
            Wire::Varint => self.varint().map(drop),
            _ => self.skip_rare(wire),
        }
    }

    fn skip_rare(&mut self, wire: Wire) -> Result<(), WireError> {
        let mut open = 0_usize;
        let mut wire = wire;
        loop {
            match wire {
                Wire::Varint => drop(self.varint()?),
                Wire::Delimited => drop(self.delimited(wire)?),
                Wire::Fixed64 => drop(self.fixed64()?),
                Wire::Fixed32 if self.rest().len() < 4 => return self.fault(),
                Wire::Fixed32 => self.at += 4,
                Wire::GroupStart => open += 1,
                Wire::GroupEnd if open == 0 => return self.fault(),
                Wire::GroupEnd => open -= 1,
            }
            if open == 0 {
                return Ok(());
            }
            let Some(tag) = self.tag()? else { return self.fault() };
            wire = tag.wire;
        }
    }

    /// Skips the following fields with the number `number`.
    pub(crate) fn skip_all(&mut self, number: u32) -> Result<(), WireError> {
        loop {
            let tag_offset = self.at;
            match self.tag()? {
                Some(tag) if tag.number == number => self.skip(tag.wire)?,
                _ => {
                    self.at = tag_offset;
                    return Ok(());
                }
            }
        }
    }

    /// Counts the adjacent fields with the number `number` from the current offset on. If `is_interleaved` is set,
    /// counts all such fields up to the end of the message.
    pub(crate) fn count(mut self, number: u32, is_interleaved: bool) -> Result<usize, WireError> {
        let mut count = 0;
        while let Some(tag) = self.tag()? {
            if tag.number == number {
                count += 1;
            } else if !is_interleaved {
                break;
            }
            self.skip(tag.wire)?;
        }
        Ok(count)
    }
}
