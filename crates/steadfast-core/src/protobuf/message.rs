//! What is known of a message.

use super::id::MessageId;

/// A message: its fields by their numbers.
pub(crate) struct Message {
    /// Its fields, in the order of their numbers.
    pub(crate) fields: Vec<Field>,
    /// Where in them a number is, plus one; zero where there is none.
    places: Vec<u8>,
    /// The numbers, as bits, of those that JSON has although they are not there.
    pub(crate) told_of_absent: u64,
    /// What it has to do with JSON.
    pub(crate) shape: Shape,
}

/// What a message is in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An object.
    Object,
    /// An array: all there is to it are its elements.
    Array,
}

/// A field of a message.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    /// Its name in JSON; [`UNNAMED`] of one whose fields are written among those of the message it is in, and of an array's
    /// elements.
    pub(crate) name: &'static str,
    /// Its number, below [`HIGHEST`].
    pub(crate) number: u32,
    /// How many values it has.
    pub(crate) count: Count,
    /// What each of them is.
    pub(crate) value: Value,
    /// Whether JSON leaves it out where it is empty.
    pub(crate) omit: bool,
}

/// What is in the place of a name that JSON does not have.
pub(crate) const UNNAMED: &str = "-";

/// One more than the highest number that a field has: they are bits of a word.
pub(crate) const HIGHEST: u32 = 64;

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// One, if only an empty one.
    One,
    /// One or none: a pointer in Go.
    Maybe,
    /// Any.
    List,
    /// Any, by text.
    Map,
    /// One, whose fields are written as if they were the message's own.
    Inline,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text,
    Bool,
    Int32,
    Int64,
    Double,
    /// Base64 in JSON.
    Bytes,
    /// RFC 3339 in JSON, by seconds; null where it is zero.
    Time,
    /// The same, by microseconds.
    MicroTime,
    Duration,
    Quantity,
    IntOrString,
    /// JSON, as bytes.
    Raw,
    /// A schema, or whether anything goes.
    SchemaOrBool,
    /// A schema, or several.
    SchemaOrArray,
    /// A schema, or texts.
    SchemaOrTexts,
    Message(MessageId),
}

impl Message {
    /// A message of these fields, of which only those with numbers below [`HIGHEST`] are taken.
    pub(crate) fn new(mut fields: Vec<Field>) -> Self {
        fields.retain(|field| (1..HIGHEST).contains(&field.number));
        fields.sort_by_key(|field| field.number);
        let mut places = vec![0; fields.last().map_or(0, |field| field.number as usize + 1)];
        let mut told_of_absent = 0;
        for (place, field) in fields.iter().enumerate() {
            places[field.number as usize] = place as u8 + 1;
            if field.is_told_of_absent() {
                told_of_absent |= 1 << field.number;
            }
        }
        let is_array = matches!(fields.as_slice(), [Field { count: Count::List, name: UNNAMED, .. }]);
        let shape = if is_array { Shape::Array } else { Shape::Object };
        Self { fields, places, told_of_absent, shape }
    }

    /// The field with that number.
    #[inline]
    pub(crate) fn field(&self, number: u32) -> Option<&Field> {
        let place = *self.places.get(number as usize)?;
        self.fields.get(usize::from(place).checked_sub(1)?)
    }
}

impl Field {
    /// What Go writes of a field that is not there. What is a struct in Go is never empty to its JSON, but for a time
    /// that says so.
    fn is_told_of_absent(&self) -> bool {
        use Value::{Bool, Bytes, Double, Int32, Int64, Text, Time};
        match (self.count, self.value) {
            (Count::Inline, _) => true,
            (Count::One, value) if !matches!(value, Text | Bool | Int32 | Int64 | Double | Bytes | Time) => true,
            _ => !self.omit,
        }
    }
}

impl Value {
    /// Whether it may be null in JSON although it is there.
    #[inline]
    pub(crate) fn may_be_null(self) -> bool {
        matches!(self, Self::Time | Self::MicroTime | Self::Raw | Self::SchemaOrArray | Self::SchemaOrTexts)
    }
}
