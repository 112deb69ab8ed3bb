//! Definitions of messages.

use super::id::MessageId;

/// Message: its fields by number.
pub(crate) struct Message {
    /// Fields, in the order of their numbers.
    pub(crate) fields: Vec<Field>,
    /// For each field number, the index in `fields` plus one; zero for an unknown number.
    places: Vec<u8>,
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
pub(crate) struct Field {
    /// Name in JSON; [`UNNAMED`] for inline fields and for the elements of an array.
    pub(crate) name: &'static str,
    /// Number of the field, below [`FIELD_NUMBER_END`].
    pub(crate) number: u32,
    /// Cardinality of the field.
    pub(crate) count: Count,
    /// Type of each value.
    pub(crate) value: Value,
    /// Set if JSON omits the field when it is empty.
    pub(crate) omit: bool,
}

/// Placeholder for the name of a field that has no name in JSON.
pub(crate) const UNNAMED: &str = "-";

/// Exclusive upper bound of field numbers, which are bits of a word.
pub(crate) const FIELD_NUMBER_END: u32 = 64;

/// Cardinality of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// One value, perhaps an empty one.
    One,
    /// One or none: a pointer in Go.
    Maybe,
    /// Any number.
    List,
    /// Any number, by key.
    Map,
    /// One value, whose fields are written inline in the message.
    Inline,
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
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
    Message(MessageId),
}

impl Message {
    /// Creates a message of these fields. Fields with numbers from [`FIELD_NUMBER_END`] on are ignored.
    pub(crate) fn new(mut fields: Vec<Field>) -> Self {
        fields.retain(|field| (1..FIELD_NUMBER_END).contains(&field.number));
        fields.sort_by_key(|field| field.number);
        let mut places = vec![0; fields.last().map_or(0, |field| field.number as usize + 1)];
        let mut present_when_missing = 0;
        for (place, field) in fields.iter().enumerate() {
            places[field.number as usize] = place as u8 + 1;
            if field.is_present_when_missing() {
                present_when_missing |= 1 << field.number;
            }
        }
        let is_array = matches!(fields.as_slice(), [Field { count: Count::List, name: UNNAMED, .. }]);
        let shape = if is_array { Shape::Array } else { Shape::Object };
        Self { fields, places, present_when_missing, shape }
    }

    /// Returns the field with this number.
    #[inline]
    pub(crate) fn field(&self, number: u32) -> Option<&Field> {
        let place = *self.places.get(number as usize)?;
        self.fields.get(usize::from(place).checked_sub(1)?)
    }
}

impl Field {
    /// Returns whether JSON contains the field even if the message lacks it. JSON never omits a Go struct as empty,
    /// except for a time with `omitzero`.
    fn is_present_when_missing(&self) -> bool {
        use Value::{Bool, Bytes, Double, Int32, Int64, Text, Time};
        match (self.count, self.value) {
            (Count::Inline, _) => true,
            (Count::One, value) if !matches!(value, Text | Bool | Int32 | Int64 | Double | Bytes | Time) => true,
            _ => !self.omit,
        }
    }
}

impl Value {
    /// Returns whether JSON may contain null although the value is on the wire.
    #[inline]
    pub(crate) fn may_be_null(self) -> bool {
        matches!(self, Self::Time | Self::MicroTime | Self::Raw | Self::SchemaOrArray | Self::SchemaOrTexts)
    }
}
