//! Serde deserializer that presents messages as the JSON of their objects.
//!
//! The bytes are read once, and only the requested values are decoded. Other values are skipped by their lengths.
//! Fields that are missing from the message but present in its JSON follow after all others.

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};

use super::content::Content;
use super::embedded::embedded;
use super::error::{Error, Reason, Step};
use super::json_view::{AsJson, JsonView, MemberName, Presence};
use super::message::{Cardinality, Message, MessageField, Shape, UNNAMED, ValueType};
use super::message_type::MessageType;
use super::numbers::{double, integer};
use super::special::{UnionValue, int_or_string, nanos, only_field, read_union};
use super::table::table;
use super::text::{Timestamp, base64, duration, text};
use super::wire::{Reader, Tag, Wire, WireError};

/// Maximum nesting depth, counted as in `serde_json`, which rejects the 128th level.
pub(super) const MAX_DEPTH: u8 = 128;

/// Members of a message.
pub(super) struct Members<'de> {
    reader: Reader<'de>,
    message: &'static Message,
    /// Bit set of the numbers of the fields that were present.
    seen: u64,
    /// Message that contains this one inline.
    outer: Option<Outer<'de>>,
    /// Further messages around `outer`, from the outermost inwards; rarely any.
    further: Vec<Outer<'de>>,
    depth: u8,
    /// Set if `managedFields` are omitted from the metadata in this message.
    pub(super) omits_managed_fields: bool,
    /// Member whose value follows.
    field: &'static MessageField,
    content: Content<'de>,
}

/// Message that continues after an inline one.
type Outer<'de> = (Reader<'de>, &'static Message, u64);

/// Placeholder before the first field.
static NO_FIELD: MessageField =
    MessageField { name: UNNAMED, number: 0, cardinality: Cardinality::Optional, value: ValueType::Text, omit: true };

impl<'de> Members<'de> {
    #[inline]
    pub(super) fn new(message_type: MessageType, reader: Reader<'de>, depth: u8) -> Result<Self, Error> {
        Ok(Self {
            reader,
            message: message_type.message(),
            seen: 0,
            outer: None,
            further: Vec::new(),
            depth: deeper(depth, &reader)?,
            omits_managed_fields: false,
            field: &NO_FIELD,
            content: Content::Null,
        })
    }

    /// Advances to the next member; returns whether one exists.
    fn advance(&mut self) -> Result<bool, Error> {
        loop {
            let offset = self.reader.at();
            let Some(tag) = self.reader.tag()? else {
                match self.advance_to_absent() {
                    Some(is_one) => return Ok(is_one),
                    None => continue,
                }
            };
            let Some(field) = self.message.field(tag.number) else {
                self.reader.skip(tag.wire)?;
                continue;
            };
            let bit = 1 << tag.number;
            if self.seen & bit != 0 {
                // No server writes a field twice, or a list in separate parts.
                return Err(WireError { at: offset }.into());
            }
            self.seen |= bit;
            self.field = field;
            match field.cardinality {
                Cardinality::Single | Cardinality::Optional => {
                    let content = Content::read(&mut self.reader, tag.wire, field.value)?;
                    // Go omits zero values of these fields in JSON.
                    if field.cardinality == Cardinality::Single && field.omit && content.is_empty(field.value)? {
                        continue;
                    }
                    self.content = content;
                }
                Cardinality::List | Cardinality::Map => {
                    // The elements stay unread until the visitor requests the value.
                    self.reader.seek(offset);
                    self.content = Content::Deferred;
                }
                Cardinality::Inline => {
                    let inner = self.reader.delimited(tag.wire)?;
                    self.enter(field, inner);
                    continue;
                }
            }
            return Ok(true);
        }
    }

    /// Advances to the next field that is missing from the message but present in its JSON. Returns `None` if the next
    /// member must be determined again.
    fn advance_to_absent(&mut self) -> Option<bool> {
        let absent = self.message.present_when_missing & !self.seen;
        if absent == 0 {
            let Some(outer) = self.outer.take() else { return Some(false) };
            self.outer = self.further.pop();
            (self.reader, self.message, self.seen) = outer;
            return None;
        }
        // The lowest bit is first: absent fields follow in the order of their numbers.
        self.seen |= absent & absent.wrapping_neg();
        let field = self.message.field(absent.trailing_zeros())?;
        if field.cardinality == Cardinality::Inline {
            self.enter(field, self.reader.empty());
            return None;
        }
        self.field = field;
        self.content = match (field.cardinality, field.value) {
            (Cardinality::Single, value) if value != ValueType::Bytes => Content::zero(&self.reader, value),
            _ => Content::Null,
        };
        Some(true)
    }

    /// Enters an inline message.
    fn enter(&mut self, field: &MessageField, inner: Reader<'de>) {
        if let ValueType::Message(message_type) = field.value {
            // Inline messages rarely nest, so the first level needs no allocation.
            self.further.extend(self.outer.replace((self.reader, self.message, self.seen)));
            (self.reader, self.message, self.seen) = (inner, message_type.message(), 0);
        }
    }
}

impl<'de> MapAccess<'de> for Members<'de> {
    type Error = Error;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if !self.advance()? {
            return Ok(None);
        }
        seed.deserialize(AsJson(MemberName(self.field.name))).map(Some)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let (field, at) = (self.field, self.reader.at());
        let mut value = field.value;
        if self.omits_managed_fields && value == ValueType::Message(table().metadata) {
            value = ValueType::Message(table().trimmed);
        }
        let field_value =
            FieldValue { reader: &mut self.reader, field, value, content: self.content, depth: self.depth };
        let mut value = seed.deserialize(AsJson(field_value));
        step_out(&mut value, Step::Field(field.name), at);
        value
    }
}

/// Value of a field: a single one, or all consecutive ones.
pub(super) struct FieldValue<'a, 'de> {
    pub(super) reader: &'a mut Reader<'de>,
    pub(super) field: &'static MessageField,
    pub(super) value: ValueType,
    pub(super) content: Content<'de>,
    pub(super) depth: u8,
}

impl<'de> FieldValue<'_, 'de> {
    #[inline]
    fn one(&self) -> SingleValue<'de> {
        SingleValue { value: self.value, content: self.content, depth: self.depth }
    }
}

impl<'de> JsonView<'de> for FieldValue<'_, 'de> {
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Self { reader, field, value, content, depth } = self;
        if !matches!(content, Content::Deferred) {
            return SingleValue { value, content, depth }.any(visitor);
        }
        if field.cardinality == Cardinality::Map {
            return MapEntries::visit(reader, field, depth, visitor);
        }
        ListElements::new(reader, field.number, value, false, depth).visit(visitor)
    }

    #[inline]
    fn text<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if matches!(self.content, Content::Deferred) { self.any(visitor) } else { self.one().text(visitor) }
    }

    #[inline]
    fn object<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if matches!(self.content, Content::Deferred) { self.any(visitor) } else { self.one().object(visitor) }
    }

    #[inline]
    fn presence(&self) -> Result<Presence<'de>, Error> {
        if matches!(self.content, Content::Deferred) { Ok(Presence::Present) } else { self.one().presence() }
    }

    #[inline]
    fn pass(self) -> Result<(), Error> {
        match self.content {
            Content::Deferred => Ok(self.reader.skip_all(self.field.number)?),
            _ => Ok(()),
        }
    }
}

/// Single value.
#[derive(Clone, Copy)]
pub(super) struct SingleValue<'de> {
    pub(super) value: ValueType,
    pub(super) content: Content<'de>,
    pub(super) depth: u8,
}

impl<'de> SingleValue<'de> {
    fn visit_union<V: Visitor<'de>>(self, mut reader: Reader<'de>, visitor: V) -> Result<V::Value, Error> {
        let depth = self.depth;
        match read_union(self.value, reader)? {
            UnionValue::Null => visitor.visit_unit(),
            UnionValue::Bool(allows) => visitor.visit_bool(allows),
            UnionValue::Schema(schema) => visitor.visit_map(Members::new(table().schema, schema, depth)?),
            UnionValue::Several(value) => ListElements::new(&mut reader, 2, value, true, depth).visit(visitor),
        }
    }

    fn visit_number<V: Visitor<'de>>(self, number: u64, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            ValueType::Bool => visitor.visit_bool(number != 0),
            ValueType::Int32 => integer(i64::from(number as i32), visitor),
            ValueType::Double => double(f64::from_bits(number), visitor),
            _ => integer(number.cast_signed(), visitor),
        }
    }
}

impl<'de> JsonView<'de> for SingleValue<'de> {
    #[inline]
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut reader = match self.content {
            Content::Inside(reader) => reader,
            Content::Number(number) => return self.visit_number(number, visitor),
            Content::Null | Content::Deferred => return visitor.visit_unit(),
        };
        match self.value {
            ValueType::Text => text(reader.rest(), visitor),
            ValueType::Message(message_type) if message_type.message().shape == Shape::Object => {
                visitor.visit_map(Members::new(message_type, reader, self.depth)?)
            }
            ValueType::Message(message_type) => {
                ListElements::new(&mut reader, 1, message_type.message().fields[0].value, true, self.depth)
                    .visit(visitor)
            }
            ValueType::Time | ValueType::MicroTime => {
                match Timestamp::read(reader, self.value == ValueType::MicroTime)? {
                    Some(timestamp) => timestamp.visit(visitor),
                    None => visitor.visit_unit(),
                }
            }
            ValueType::Bytes => base64(reader.rest(), visitor),
            ValueType::Quantity => match only_field(reader)? {
                Some(written) => text(written.rest(), visitor),
                None => visitor.visit_borrowed_str("0"),
            },
            ValueType::Raw => match json(reader)? {
                Some(json) => embedded(json, |json| json.deserialize_any(visitor)),
                None => visitor.visit_unit(),
            },
            ValueType::IntOrString => int_or_string(reader, visitor),
            ValueType::Duration => visitor.visit_string(duration(nanos(reader)?)),
            _ => self.visit_union(reader, visitor),
        }
    }

    #[inline]
    fn text<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.content {
            Content::Inside(reader) if self.value == ValueType::Text => text(reader.rest(), visitor),
            _ => self.any(visitor),
        }
    }

    #[inline]
    fn object<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match (self.value, self.content) {
            (ValueType::Message(message_type), Content::Inside(reader))
                if message_type.message().shape == Shape::Object =>
            {
                visitor.visit_map(Members::new(message_type, reader, self.depth)?)
            }
            _ => self.any(visitor),
        }
    }

    #[inline]
    fn presence(&self) -> Result<Presence<'de>, Error> {
        match self.content {
            Content::Null => Ok(Presence::Null),
            Content::Inside(reader) if self.value.may_be_null() => presence(self.value, reader),
            _ => Ok(Presence::Present),
        }
    }
}

/// Determines the presence of a value that may be null although it is on the wire.
fn presence(value: ValueType, reader: Reader<'_>) -> Result<Presence<'_>, Error> {
    let is_null = match value {
        ValueType::Time | ValueType::MicroTime => Timestamp::is_null(reader, value == ValueType::MicroTime)?,
        ValueType::Raw => match json(reader)? {
            Some(json) => return Ok(Presence::Json(json)),
            None => true,
        },
        ValueType::SchemaOrArray | ValueType::SchemaOrTexts => matches!(read_union(value, reader)?, UnionValue::Null),
        _ => false,
    };
    Ok(if is_null { Presence::Null } else { Presence::Present })
}

/// Returns the JSON in the only field of a message, unless the message is empty.
fn json(message: Reader<'_>) -> Result<Option<Reader<'_>>, Error> {
    Ok(only_field(message)?.filter(|json| !json.rest().is_empty()))
}

/// Adds `step` to the path of an error in `result`. The result is modified in place, since a value may have thousands
/// of bytes and moving it is expensive.
#[inline]
pub(super) fn step_out<T>(result: &mut Result<T, Error>, step: Step, at: usize) {
    if let Err(error) = result {
        error.step_out(step, at);
    }
}

/// Returns the depth within an object or array.
pub(super) fn deeper(depth: u8, reader: &Reader<'_>) -> Result<u8, Error> {
    match depth {
        0 | 1 => Err(Error::new(Reason::TooDeep, reader.at())),
        _ => Ok(depth - 1),
    }
}

/// Elements of a list.
struct ListElements<'a, 'de> {
    reader: &'a mut Reader<'de>,
    number: u32,
    value: ValueType,
    /// Set if the elements may be interleaved with other fields, up to the end of the message.
    is_interleaved: bool,
    /// Packed numbers.
    packed: Option<Reader<'de>>,
    index: usize,
    /// Set after the last element.
    ended: bool,
    depth: u8,
}

impl<'a, 'de> ListElements<'a, 'de> {
    #[inline]
    fn new(reader: &'a mut Reader<'de>, number: u32, value: ValueType, is_interleaved: bool, depth: u8) -> Self {
        Self { reader, number, value, is_interleaved, packed: None, index: 0, ended: false, depth }
    }

    fn visit<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.depth = deeper(self.depth, self.reader)?;
        let value = visitor.visit_seq(&mut self)?;
        // A visitor may stop early, for example for an array of fixed size.
        if !self.ended && self.next()?.is_some() {
            return Err(Error::invalid_length(self.index + 1, &"fewer elements"));
        }
        Ok(value)
    }

    /// Returns whether the elements are numbers, which may be packed.
    #[inline]
    fn packs(&self) -> bool {
        matches!(self.value, ValueType::Bool | ValueType::Int32 | ValueType::Int64)
    }

    fn next(&mut self) -> Result<Option<Content<'de>>, WireError> {
        loop {
            if let Some(packed) = &mut self.packed {
                if !packed.rest().is_empty() {
                    return Content::read(packed, Wire::Varint, self.value).map(Some);
                }
                self.packed = None;
            }
            let offset = self.reader.at();
            match self.reader.tag()? {
                Some(Tag { number, wire }) if number == self.number => {
                    // Scalars may be packed or separate, and a decoder must accept both.
                    if wire == Wire::Delimited && self.packs() {
                        self.packed = Some(self.reader.delimited(wire)?);
                        continue;
                    }
                    return Content::read(self.reader, wire, self.value).map(Some);
                }
                Some(Tag { wire, .. }) if self.is_interleaved => self.reader.skip(wire)?,
                _ => {
                    self.reader.seek(offset);
                    self.ended = true;
                    return Ok(None);
                }
            }
        }
    }
}

impl<'de> SeqAccess<'de> for &mut ListElements<'_, 'de> {
    type Error = Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(content) = self.next()? else { return Ok(None) };
        let (index, at) = (self.index, self.reader.at());
        self.index += 1;
        let element = SingleValue { value: self.value, content, depth: self.depth };
        match seed.deserialize(AsJson(element)) {
            Ok(value) => Ok(Some(value)),
            Err(mut error) => {
                error.step_out(Step::Element(index), at);
                Err(error)
            }
        }
    }

    /// Returns the exact number of elements, so that a collection allocates only once; `None` if the elements may be
    /// packed.
    fn size_hint(&self) -> Option<usize> {
        // The number of packed elements is unknown before decoding.
        if self.packs() { None } else { self.reader.count(self.number, self.is_interleaved).ok() }
    }
}

/// Entries of a map.
struct MapEntries<'a, 'de> {
    reader: &'a mut Reader<'de>,
    field: &'static MessageField,
    /// Value of the entry whose key was read.
    content: Content<'de>,
    /// Set after the last entry.
    ended: bool,
    depth: u8,
}

impl<'a, 'de> MapEntries<'a, 'de> {
    fn visit<V: Visitor<'de>>(
        reader: &'a mut Reader<'de>,
        field: &'static MessageField,
        depth: u8,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let depth = deeper(depth, reader)?;
        let mut entries = Self { reader, field, content: Content::Null, ended: false, depth };
        let value = visitor.visit_map(&mut entries)?;
        if !entries.ended && entries.next()?.is_some() {
            return Err(Error::invalid_length(1, &"fewer entries"));
        }
        Ok(value)
    }

    /// Returns the key of the next entry.
    fn next(&mut self) -> Result<Option<Reader<'de>>, WireError> {
        let offset = self.reader.at();
        let Some(tag) = self.reader.tag()?.filter(|tag| tag.number == self.field.number) else {
            self.reader.seek(offset);
            self.ended = true;
            return Ok(None);
        };
        let mut entry = self.reader.delimited(tag.wire)?;
        // A map entry may omit an empty key and a zero value.
        let mut key = entry.empty();
        self.content = Content::zero(&entry, self.field.value);
        while let Some(tag) = entry.tag()? {
            match tag.number {
                1 => key = entry.delimited(tag.wire)?,
                2 => self.content = Content::read(&mut entry, tag.wire, self.field.value)?,
                _ => entry.skip(tag.wire)?,
            }
        }
        Ok(Some(key))
    }
}

impl<'de> MapAccess<'de> for &mut MapEntries<'_, 'de> {
    type Error = Error;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(key) = self.next()? else { return Ok(None) };
        seed.deserialize(AsJson(SingleValue {
            value: ValueType::Text,
            content: Content::Inside(key),
            depth: self.depth,
        }))
        .map(Some)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let value = SingleValue { value: self.field.value, content: self.content, depth: self.depth };
        let at = self.reader.at();
        let mut value = seed.deserialize(AsJson(value));
        step_out(&mut value, Step::Entry, at);
        value
    }
}
