//! Definitions of messages.

use super::message_type::MessageType;

/// Message: its fields by number.
pub(crate) struct Message {
    /// Fields, in the order of their numbers.
    pub(crate) fields: Vec<MessageField>,
    /// For each field number, the index in `fields` plus one; zero for an unknown number.
    indices: Vec<u8>,
    /// Bit set of the numbers of those fields that JSON contains even if the message lacks them.
    pub(crate) present_when_missing: u64,
    /// Form of the message in JSON.
    pub(crate) shape: Shape,
}

/// Form of a message in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Object.
    Object,
    /// Array: the message contains only the elements.
    Array,
}

/// Field of a message.
#[derive(Clone, Debug)]
pub(crate) struct MessageField {
    /// Name in JSON; [`UNNAMED`] for inline fields and for the elements of an array.
    pub(crate) name: &'static str,
    /// Number of the field, below [`FIELD_NUMBER_END`].
    pub(crate) number: u32,
    /// Cardinality of the field.
    pub(crate) cardinality: Cardinality,
    /// Type of each value.
    pub(crate) value: ValueType,
    /// Set if JSON omits the field when it is empty.
    pub(crate) omit: bool,
}

/// Placeholder for the name of a field that has no name in JSON.
pub(crate) const UNNAMED: &str = "-";

/// Exclusive upper bound of field numbers, which are bits of a word.
pub(crate) const FIELD_NUMBER_END: u32 = 64;

/// Cardinality of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cardinality {
    /// One value, perhaps an empty one.
    Single,
    /// One or none: a pointer in Go.
    Optional,
    /// Any number.
    List,
    /// Any number, by key.
    Map,
    /// One value, whose fields are written inline in the message.
    Inline,
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    Text,
    Bool,
    Int32,
    Int64,
    Double,
    /// Base64 in JSON.
    Bytes,
    /// RFC 3339 in JSON, with seconds; null for the zero time.
    Time,
    /// RFC 3339 in JSON, with microseconds; null for the zero time.
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// JSON as bytes.
    Raw,
    /// Schema or boolean.
    SchemaOrBool,
    /// Schema or a list of schemas.
    SchemaOrArray,
    /// Schema or a list of texts.
    SchemaOrTexts,
    Message(MessageType),
}

impl Message {
    /// Creates a message of these fields. Fields with numbers from [`FIELD_NUMBER_END`] on are ignored.
    pub(crate) fn new(mut fields: Vec<MessageField>) -> Self {
        fields.retain(|field| (1..FIELD_NUMBER_END).contains(&field.number));
        fields.sort_by_key(|field| field.number);
        let mut indices = vec![0; fields.last().map_or(0, |field| field.number as usize + 1)];
        let mut present_when_missing = 0;
        for (index, field) in fields.iter().enumerate() {
            indices[field.number as usize] = index as u8 + 1;
            if field.is_present_when_missing() {
                present_when_missing |= 1 << field.number;
            }
        }
        let is_array =
            matches!(fields.as_slice(), [MessageField { cardinality: Cardinality::List, name: UNNAMED, .. }]);
        let shape = if is_array { Shape::Array } else { Shape::Object };
        Self { fields, indices, present_when_missing, shape }
    }

    /// Returns the field with this number.
    #[inline]
    pub(crate) fn field(&self, number: u32) -> Option<&MessageField> {
        let index = *self.indices.get(number as usize)?;
        self.fields.get(usize::from(index).checked_sub(1)?)
    }
}

impl MessageField {
    /// Returns whether JSON contains the field even if the message lacks it. JSON never omits a Go struct as empty,
    /// except for a time with `omitzero`.
    fn is_present_when_missing(&self) -> bool {
        use ValueType::{Bool, Bytes, Double, Int32, Int64, Text, Time};
        match (self.cardinality, self.value) {
            (Cardinality::Inline, _) => true,
            (Cardinality::Single, value) if !matches!(value, Text | Bool | Int32 | Int64 | Double | Bytes | Time) => {
                true
            }
            _ => !self.omit,
        }
    }
}

impl ValueType {
    /// Returns whether JSON may contain null although the value is on the wire.
    #[inline]
    pub(crate) fn may_be_null(self) -> bool {
        matches!(self, Self::Time | Self::MicroTime | Self::Raw | Self::SchemaOrArray | Self::SchemaOrTexts)
    }
}
