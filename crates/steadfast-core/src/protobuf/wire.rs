//! The wire format: tags, varints, and slices whose length comes before them.
//!
//! Nothing here allocates, and nothing is believed of a length but that it ends within the message that it is in.

/// What lies on the wire after a tag ([encoding](https://protobuf.dev/programming-guides/encoding/#structure)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Varint,
    Fixed64,
    Delimited,
    GroupStart,
    GroupEnd,
    Fixed32,
}

/// The number of a field, and how its value lies on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) number: u32,
    pub(crate) wire: Wire,
}

/// Bytes that are no message. It says where, never what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Where in the outermost message.
    pub(crate) at: usize,
}

/// Reads one message; positions are those in the outermost.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    /// The outermost message, up to the end of this one.
    bytes: &'a [u8],
    at: usize,
}

/// The longest varint, in bytes: 64 bits, seven in each.
const LONGEST_VARINT: usize = 10;

impl<'a> Reader<'a> {
    /// Reads `bytes` from their beginning.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// A message without any fields, where this one stands.
    pub(crate) fn nothing(&self) -> Self {
        Self { bytes: &self.bytes[..self.at], at: self.at }
    }

    /// Where it stands.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Goes back, or forth, to where it stood.
    pub(crate) fn stand(&mut self, at: usize) {
        self.at = at;
    }

    /// What has not been read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    fn fault<T>(&self) -> Result<T, Fault> {
        Err(Fault { at: self.at })
    }

    /// The next tag; none at the message's end.
    #[inline]
    pub(crate) fn tag(&mut self) -> Result<Option<Tag>, Fault> {
        let begin = self.at;
        if begin == self.bytes.len() {
            return Ok(None);
        }
        let fault = Err(Fault { at: begin });
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
        if tag < 8 { fault } else { Ok(Some(Tag { number: tag >> 3, wire })) }
    }

    /// A varint. Bits beyond the 64th are dropped, as Go does.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Fault> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Fault> {
        // Of two bytes are the numbers and the lengths that are not of one, nearly all.
        if let [low, high @ ..0x80, ..] = *self.rest() {
            self.at += 2;
            return Ok(u64::from(low & 0x7f) | u64::from(high) << 7);
        }
        let mut value = 0;
        for (place, byte) in self.rest().iter().take(LONGEST_VARINT).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if *byte < 0x80 {
                self.at += place + 1;
                return Ok(value);
            }
        }
        self.fault()
    }

    /// A number that has to lie as a varint.
    #[inline]
    pub(crate) fn number(&mut self, wire: Wire) -> Result<u64, Fault> {
        if wire == Wire::Varint { self.varint() } else { self.fault() }
    }

    /// Eight bytes, the lowest first.
    pub(crate) fn fixed64(&mut self) -> Result<u64, Fault> {
        let Some((bytes, _)) = self.rest().split_first_chunk::<8>() else { return self.fault() };
        self.at += bytes.len();
        Ok(u64::from_le_bytes(*bytes))
    }

    /// What is `wire`, and has its length before it; a fault where that is longer than what is left.
    #[inline]
    pub(crate) fn delimited(&mut self, wire: Wire) -> Result<Self, Fault> {
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

    /// Passes over a value that nobody wants. Groups, which Kubernetes has none of, are passed over to their end.
    #[inline]
    pub(crate) fn skip(&mut self, wire: Wire) -> Result<(), Fault> {
        match wire {
            Wire::Delimited => self.delimited(wire).map(drop),
            Wire::Varint => self.varint().map(drop),
            _ => self.skip_rare(wire),
        }
    }

    fn skip_rare(&mut self, wire: Wire) -> Result<(), Fault> {
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

    /// Passes over the fields that come next and have the `number`.
    pub(crate) fn skip_all(&mut self, number: u32) -> Result<(), Fault> {
        loop {
            let before = self.at;
            match self.tag()? {
                Some(tag) if tag.number == number => self.skip(tag.wire)?,
                _ => {
                    self.at = before;
                    return Ok(());
                }
            }
        }
    }

    /// How many fields have the `number`, of those that come next, or of all where they lie `among` others.
    pub(crate) fn count(mut self, number: u32, among: bool) -> Result<usize, Fault> {
        let mut count = 0;
        while let Some(tag) = self.tag()? {
            if tag.number == number {
                count += 1;
            } else if !among {
                break;
            }
            self.skip(tag.wire)?;
        }
        Ok(count)
    }
}
