//! Wire format: fields by number.

/// Prefix of every top-level message.
pub(super) const MAGIC: &[u8] = b"k8s\0";

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;

/// Value of a field.
#[derive(Debug)]
pub(super) enum WireValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

impl WireValue<'_> {
    /// Returns whether the value is zero, empty, or a message of such values. Go also writes fields without a value,
    /// unless they are pointers.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Varint(number) | Self::Fixed64(number) => *number == 0,
            Self::Bytes(bytes) => FieldIter(bytes).all(|(_, value)| value.is_some_and(|value| value.is_zero())),
        }
    }
}

/// Iterator over the fields of a message in order. An invalid field yields `None` and ends the iteration.
pub(super) struct FieldIter<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for FieldIter<'a> {
    type Item = (u64, Option<WireValue<'a>>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let tag = read_varint(&mut self.0);
        let value = tag.and_then(|tag| match tag & 7 {
            VARINT => read_varint(&mut self.0).map(WireValue::Varint),
            FIXED64 => {
                let (number, rest) = self.0.split_first_chunk()?;
                self.0 = rest;
                Some(WireValue::Fixed64(u64::from_le_bytes(*number)))
            }
            DELIMITED => {
                let length = usize::try_from(read_varint(&mut self.0)?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Some(WireValue::Bytes(bytes))
            }
            _ => None,
        });
        // The position is uncertain after a malformed field.
        if value.is_none() {
            self.0 = &[];
        }
        Some((tag.unwrap_or_default() >> 3, value))
    }
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    // At most ten groups: a longer varint cannot fit 64 bits and is malformed.
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn put_varint(mut value: u64, buffer: &mut Vec<u8>) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

/// Writes an integer field.
pub(super) fn put_number(number: u64, value: u64, buffer: &mut Vec<u8>) {
    put_varint(number << 3 | VARINT, buffer);
    put_varint(value, buffer);
}

/// Writes a floating-point field.
pub(super) fn put_double(number: u64, value: f64, buffer: &mut Vec<u8>) {
    put_varint(number << 3 | FIXED64, buffer);
    buffer.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Writes the head of a field of `length` bytes.
pub(super) fn put_head(number: u64, length: usize, buffer: &mut Vec<u8>) {
    put_varint(number << 3 | DELIMITED, buffer);
    put_varint(length as u64, buffer);
}

/// Writes a field of bytes, a string or a message.
pub(super) fn put_bytes(number: u64, bytes: &[u8], buffer: &mut Vec<u8>) {
    put_head(number, bytes.len(), buffer);
    buffer.extend_from_slice(bytes);
}

/// Writes a message field with the content that `write` writes.
pub(super) fn put_message(number: u64, buffer: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut message = Vec::new();
    write(&mut message);
    put_bytes(number, &message, buffer);
}
