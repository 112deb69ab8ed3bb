//! A deserializer of serde that presents messages as the JSON of the same objects.
//!
//! It goes through the bytes once and decodes what is asked for; what nobody wants is passed over by its length. What JSON
//! says of a field that is not there is said after all that are.

use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _};

use super::content::Content;
use super::embedded::embedded;
use super::envelope::{TypeMeta, open};
use super::error::{Error, Reason, Step};
use super::id::MessageId;
use super::message::{Count, Field, Message, Shape, UNNAMED, Value};
use super::numbers::{double, integer};
use super::presented::{AsJson, Name, Presented};
use super::special::{Choice, choice, int_or_string, nanos, only};
use super::table::table;
use super::text::{Moment, base64, duration, text};
use super::wire::{Fault, Reader, Tag, Wire};

/// How deep `serde_json` goes, counted as it does: there is no object in the 128th.
pub(super) const DEPTH: u8 = 128;

/// Decodes the object in `bytes`, which is an `id`, with or without its envelope: to what the JSON would be decoded that the
/// API server has for it, without `metadata.managedFields` unless they are to be kept.
///
/// # Errors
///
/// Where the bytes are no such message, or `T` does not take what they say.
pub fn decode<'de, T: Deserialize<'de>>(
    id: MessageId,
    bytes: &'de [u8],
    keep_managed_fields: bool,
) -> Result<T, Error> {
    decode_seed(PhantomData::<T>, id, bytes, keep_managed_fields)
}

/// Has `seed` decode the object in `bytes`, as [`decode`] does.
///
/// # Errors
///
/// Where the bytes are no such message, or the seed does not take what they say.
pub(crate) fn decode_seed<'de, S: DeserializeSeed<'de>>(
    seed: S,
    id: MessageId,
    bytes: &'de [u8],
    keep_managed_fields: bool,
) -> Result<S::Value, Error> {
    let (types, reader) = open(Reader::new(bytes))?;
    seed.deserialize(AsJson(Whole { types, id, reader, keep_managed_fields }))
}

/// An object that stands for itself.
struct Whole<'de> {
    types: Option<TypeMeta<'de>>,
    id: MessageId,
    reader: Reader<'de>,
    keep_managed_fields: bool,
}

impl<'de> Presented<'de> for Whole<'de> {
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut members = Members::new(self.id, self.reader, DEPTH)?;
        members.trims = !self.keep_managed_fields;
        // The only items of a list that say in JSON what they are: whatever they are of, that is the same.
        let partial = TypeMeta { api_version: b"meta.k8s.io/v1", kind: b"PartialObjectMetadata" };
        let unsaid = if self.id == table().partial { partial } else { TypeMeta::default() };
        let TypeMeta { api_version, kind } = self.types.unwrap_or(unsaid);
        visitor.visit_map(Object { types: [("apiVersion", api_version), ("kind", kind)], told: 0, members })
    }
}

/// The members of an object that stands for itself: what its envelope says, and those of the message.
struct Object<'de> {
    types: [(&'static str, &'de [u8]); 2],
    told: usize,
    members: Members<'de>,
}

impl<'de> MapAccess<'de> for Object<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        while let Some((name, text)) = self.types.get(self.told) {
            self.told += 1;
            if !text.is_empty() {
                return seed.deserialize(AsJson(Name(name))).map(Some);
            }
        }
        self.told = self.types.len() + 1;
        self.members.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        match self.told.checked_sub(1).and_then(|told| self.types.get(told)) {
            Some((name, text)) => {
                let text = One { value: Value::Text, content: Content::Inside(Reader::new(text)), depth: DEPTH };
                seed.deserialize(AsJson(text)).map_err(|error| error.inside(Step::Field(name), 0))
            }
            None => self.members.next_value_seed(seed),
        }
    }
}

/// The members of a message.
struct Members<'de> {
    reader: Reader<'de>,
    message: &'static Message,
    /// The numbers of the fields that were there, as bits.
    seen: u64,
    /// The messages that this one is written inline in.
    outer: Vec<(Reader<'de>, &'static Message, u64)>,
    depth: u8,
    /// Whether the metadata in it lose their `managedFields`.
    trims: bool,
    /// The member whose value comes next.
    field: &'static Field,
    content: Content<'de>,
}

/// In the place of a field, before the first.
static NO_FIELD: Field = Field { name: UNNAMED, number: 0, count: Count::Maybe, value: Value::Text, omit: true };

impl<'de> Members<'de> {
    fn new(id: MessageId, reader: Reader<'de>, depth: u8) -> Result<Self, Error> {
        Ok(Self {
            reader,
            message: id.message(),
            seen: 0,
            outer: Vec::new(),
            depth: deeper(depth, &reader)?,
            trims: false,
            field: &NO_FIELD,
            content: Content::Null,
        })
    }

    /// Goes on to the next member; whether there is one.
    fn advance(&mut self) -> Result<bool, Error> {
        loop {
            let before = self.reader.at();
            if let Some(tag) = self.reader.tag()? {
                if self.is_told(tag, before)? {
                    return Ok(true);
                }
                continue;
            }
            let absent = self.message.told_of_absent & !self.seen;
            if absent == 0 {
                let Some(outer) = self.outer.pop() else { return Ok(false) };
                (self.reader, self.message, self.seen) = outer;
                continue;
            }
            self.seen |= absent & absent.wrapping_neg();
            let Some(field) = self.message.field(absent.trailing_zeros()) else { continue };
            if field.count == Count::Inline {
                self.enter(field, self.reader.nothing());
                continue;
            }
            self.field = field;
            self.content = match (field.count, field.value) {
                (Count::One, value) if value != Value::Bytes => Content::zero(&self.reader, value),
                _ => Content::Null,
            };
            return Ok(true);
        }
    }

    /// Begins the field of `tag`, which was read at `before`; whether JSON has it as a member of its own.
    #[inline]
    fn is_told(&mut self, tag: Tag, before: usize) -> Result<bool, Error> {
        let Some(field) = self.message.field(tag.number) else {
            self.reader.skip(tag.wire)?;
            return Ok(false);
        };
        let bit = 1 << tag.number;
        if self.seen & bit != 0 {
            // No server writes a field twice, or a list in pieces.
            return Err(Fault { at: before }.into());
        }
        self.seen |= bit;
        match field.count {
            Count::Inline => {
                let inner = self.reader.delimited(tag.wire)?;
                self.enter(field, inner);
                return Ok(false);
            }
            Count::One => {
                self.content = Content::read(&mut self.reader, tag.wire, field.value)?;
                if field.omit && self.content.is_empty(field.value)? {
                    return Ok(false);
                }
            }
            Count::Maybe => self.content = Content::read(&mut self.reader, tag.wire, field.value)?,
            Count::List | Count::Map => {
                self.reader.stand(before);
                self.content = Content::Next;
            }
        }
        self.field = field;
        Ok(true)
    }

    /// Goes into a message that is written inline.
    fn enter(&mut self, field: &Field, inner: Reader<'de>) {
        if let Value::Message(id) = field.value {
            self.outer.push((self.reader, self.message, self.seen));
            (self.reader, self.message, self.seen) = (inner, id.message(), 0);
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
        seed.deserialize(AsJson(Name(self.field.name))).map(Some)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let (field, at) = (self.field, self.reader.at());
        let mut value = field.value;
        if self.trims && value == Value::Message(table().metadata) {
            value = Value::Message(table().trimmed);
        }
        let given = Given { reader: &mut self.reader, field, value, content: self.content, depth: self.depth };
        seed.deserialize(AsJson(given)).map_err(|error| error.inside(Step::Field(field.name), at))
    }
}

/// The value of a field: one, or all that come next.
pub(super) struct Given<'a, 'de> {
    pub(super) reader: &'a mut Reader<'de>,
    pub(super) field: &'static Field,
    pub(super) value: Value,
    pub(super) content: Content<'de>,
    pub(super) depth: u8,
}

impl<'de> Given<'_, 'de> {
    #[inline]
    fn one(&self) -> One<'de> {
        One { value: self.value, content: self.content, depth: self.depth }
    }
}

impl<'de> Presented<'de> for Given<'_, 'de> {
    #[inline]
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Self { reader, field, value, content, depth } = self;
        if !matches!(content, Content::Next) {
            return One { value, content, depth }.any(visitor);
        }
        if field.count == Count::Map {
            return Entries::visit(reader, field, depth, visitor);
        }
        Elements { reader, number: field.number, value, among: false, packed: None, index: 0, depth }.visit(visitor)
    }

    #[inline]
    fn is_null(&self) -> Result<bool, Error> {
        self.one().is_null()
    }

    #[inline]
    fn json(&self) -> Result<Option<Reader<'de>>, Error> {
        self.one().json()
    }

    #[inline]
    fn pass(self) -> Result<(), Error> {
        match self.content {
            Content::Next => Ok(self.reader.skip_all(self.field.number)?),
            _ => Ok(()),
        }
    }
}

/// A single value.
#[derive(Clone, Copy)]
struct One<'de> {
    value: Value,
    content: Content<'de>,
    depth: u8,
}

impl<'de> One<'de> {
    fn visit_choice<V: Visitor<'de>>(self, mut reader: Reader<'de>, visitor: V) -> Result<V::Value, Error> {
        let depth = self.depth;
        match choice(self.value, reader)? {
            Choice::Null => visitor.visit_unit(),
            Choice::Bool(allows) => visitor.visit_bool(allows),
            Choice::Schema(schema) => visitor.visit_map(Members::new(table().schema, schema, depth)?),
            Choice::Several(value) => {
                let reader = &mut reader;
                Elements { reader, number: 2, value, among: true, packed: None, index: 0, depth }.visit(visitor)
            }
        }
    }

    fn visit_number<V: Visitor<'de>>(self, number: u64, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Bool => visitor.visit_bool(number != 0),
            Value::Int32 => integer(i64::from(number as i32), visitor),
            Value::Double => double(f64::from_bits(number), visitor),
            _ => integer(number.cast_signed(), visitor),
        }
    }
}

impl<'de> Presented<'de> for One<'de> {
    #[inline]
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut reader = match self.content {
            Content::Inside(reader) => reader,
            Content::Number(number) => return self.visit_number(number, visitor),
            Content::Null | Content::Next => return visitor.visit_unit(),
        };
        match self.value {
            Value::Text => text(reader.rest(), visitor),
            Value::Message(id) if id.message().shape == Shape::Object => {
                visitor.visit_map(Members::new(id, reader, self.depth)?)
            }
            Value::Message(id) => {
                let (reader, value) = (&mut reader, id.message().fields[0].value);
                Elements { reader, number: 1, value, among: true, packed: None, index: 0, depth: self.depth }
                    .visit(visitor)
            }
            Value::Time | Value::MicroTime => match Moment::read(reader, self.value == Value::MicroTime)? {
                Some(moment) => moment.visit(visitor),
                None => visitor.visit_unit(),
            },
            Value::Bytes => base64(reader.rest(), visitor),
            Value::Quantity => match only(reader)? {
                Some(written) => text(written.rest(), visitor),
                None => visitor.visit_borrowed_str("0"),
            },
            Value::Raw => match self.json()? {
                Some(json) => embedded(json, |json| json.deserialize_any(visitor)),
                None => visitor.visit_unit(),
            },
            Value::IntOrString => int_or_string(reader, visitor),
            Value::Duration => visitor.visit_string(duration(nanos(reader)?)),
            _ => self.visit_choice(reader, visitor),
        }
    }

    #[inline]
    fn is_null(&self) -> Result<bool, Error> {
        let Content::Inside(reader) = self.content else { return Ok(matches!(self.content, Content::Null)) };
        Ok(match self.value {
            Value::Time => Moment::read(reader, false)?.is_none(),
            Value::MicroTime => Moment::read(reader, true)?.is_none(),
            Value::Raw => self.json()?.is_none(),
            Value::SchemaOrArray | Value::SchemaOrTexts => matches!(choice(self.value, reader)?, Choice::Null),
            _ => false,
        })
    }

    #[inline]
    fn json(&self) -> Result<Option<Reader<'de>>, Error> {
        match (self.value, self.content) {
            (Value::Raw, Content::Inside(reader)) => Ok(only(reader)?.filter(|json| !json.rest().is_empty())),
            _ => Ok(None),
        }
    }
}

/// The depth of what is inside an object or an array.
pub(super) fn deeper(depth: u8, reader: &Reader<'_>) -> Result<u8, Error> {
    match depth {
        0 | 1 => Err(Error::new(Reason::TooDeep, reader.at())),
        _ => Ok(depth - 1),
    }
}

/// The elements of a list.
struct Elements<'a, 'de> {
    reader: &'a mut Reader<'de>,
    number: u32,
    value: Value,
    /// Whether they may lie among other fields, to the message's end.
    among: bool,
    /// Numbers that lie together.
    packed: Option<Reader<'de>>,
    index: usize,
    depth: u8,
}

impl<'de> Elements<'_, 'de> {
    fn visit<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.depth = deeper(self.depth, self.reader)?;
        let value = visitor.visit_seq(&mut self)?;
        match self.next()? {
            Some(_) => Err(Error::invalid_length(self.index + 1, &"fewer elements")),
            None => Ok(value),
        }
    }

    fn next(&mut self) -> Result<Option<Content<'de>>, Fault> {
        loop {
            if let Some(packed) = &mut self.packed {
                if !packed.rest().is_empty() {
                    return Content::read(packed, Wire::Varint, self.value).map(Some);
                }
                self.packed = None;
            }
            let before = self.reader.at();
            let Some(tag) = self.reader.tag()? else { return Ok(None) };
            let packs = matches!(self.value, Value::Bool | Value::Int32 | Value::Int64);
            match tag {
                Tag { number, wire: Wire::Delimited } if number == self.number && packs => {
                    self.packed = Some(self.reader.delimited(Wire::Delimited)?);
                }
                Tag { number, wire } if number == self.number => {
                    return Content::read(self.reader, wire, self.value).map(Some);
                }
                Tag { wire, .. } if self.among => self.reader.skip(wire)?,
                _ => {
                    self.reader.stand(before);
                    return Ok(None);
                }
            }
        }
    }
}

impl<'de> SeqAccess<'de> for &mut Elements<'_, 'de> {
    type Error = Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        let Some(content) = self.next()? else { return Ok(None) };
        let (index, at) = (self.index, self.reader.at());
        self.index += 1;
        let element = One { value: self.value, content, depth: self.depth };
        seed.deserialize(AsJson(element)).map(Some).map_err(|error| error.inside(Step::Element(index), at))
    }
}

/// The entries of a map.
struct Entries<'a, 'de> {
    reader: &'a mut Reader<'de>,
    field: &'static Field,
    /// The value of the entry whose key was asked for.
    content: Content<'de>,
    depth: u8,
}

impl<'a, 'de> Entries<'a, 'de> {
    fn visit<V: Visitor<'de>>(
        reader: &'a mut Reader<'de>,
        field: &'static Field,
        depth: u8,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let depth = deeper(depth, reader)?;
        let mut entries = Self { reader, field, content: Content::Null, depth };
        let value = visitor.visit_map(&mut entries)?;
        match entries.next()? {
            Some(_) => Err(Error::invalid_length(1, &"fewer entries")),
            None => Ok(value),
        }
    }

    /// The key of the next entry.
    fn next(&mut self) -> Result<Option<Reader<'de>>, Fault> {
        let before = self.reader.at();
        let Some(tag) = self.reader.tag()?.filter(|tag| tag.number == self.field.number) else {
            self.reader.stand(before);
            return Ok(None);
        };
        let mut entry = self.reader.delimited(tag.wire)?;
        let mut key = entry.nothing();
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

impl<'de> MapAccess<'de> for &mut Entries<'_, 'de> {
    type Error = Error;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(key) = self.next()? else { return Ok(None) };
        seed.deserialize(AsJson(One { value: Value::Text, content: Content::Inside(key), depth: self.depth })).map(Some)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let value = One { value: self.field.value, content: self.content, depth: self.depth };
        let at = self.reader.at();
        seed.deserialize(AsJson(value)).map_err(|error| error.inside(Step::Entry, at))
    }
}
