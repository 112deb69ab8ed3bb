//! Memory of a decoded object, counted during its deserialization.
//!
//! A Rust value does not report its heap memory. However, deserialization requests all of it as strings, sequences and
//! maps, and knows the types of their elements. The wrapper in this module sits between a deserializer and the type,
//! and adds up the allocations of the standard library's collections.
//!
//! | requested | counted |
//! |---|---|
//! | a string that is kept | its length |
//! | a parsed string | its length as decoded base64, if it is long; otherwise nothing: it is a number or a time |
//! | bytes | their number |
//! | a sequence | its elements, in the capacity of a `Vec`: the reported length, and more as it grows |
//! | a map | its entries, in the nodes of a `BTreeMap` |
//!
//! Other allocations of a type (another kind of map, shared strings, a `Box`) are not counted, nor is the overhead of
//! the allocator.

use std::cell::Cell;
use std::fmt;
use std::mem::size_of;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::lengths::Lengths;
use crate::footprint::{sequence, tree};

/// Wrapper around a deserializer, or around a visitor, seed or access type of serde. Counts the requested memory.
pub(super) struct SizeCounting<'h, T> {
    inner: T,
    counter: &'h ByteCount<'h>,
    value_use: ValueUse,
}

/// Counter of the memory so far.
#[derive(Default)]
pub(super) struct ByteCount<'t> {
    /// Number of bytes.
    bytes: Cell<usize>,
    /// Lengths of arrays, for deserializers that do not know them in advance.
    lengths: Option<Lengths<'t>>,
}

/// Use of the requested value, mostly of a string.
#[derive(Clone, Copy, PartialEq)]
enum ValueUse {
    Kept,
    /// The input decides about the type. A string is kept. The elements of a sequence are buffered until their type is
    /// known, or are appended one by one to a collection without a type.
    Any,
    /// The string is parsed: a time, a number, bytes in base64.
    Read,
    /// The string is the name of a field.
    Name,
}

/// Maximum number of elements that is reported in advance.
const MAX_REPORTED_ELEMENTS: usize = 4096;

/// Maximum length of a time or number.
const MAX_SCALAR_LENGTH: usize = 64;

impl<'t> ByteCount<'t> {
    /// Creates a counter for values from the JSON `text`.
    pub(super) fn of_json(text: &'t [u8]) -> Self {
        Self { lengths: Some(Lengths::new(text)), ..Self::default() }
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    #[inline]
    fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Calls `read` for a sequence, with its number in the text.
    #[inline]
    fn sequence<T>(&self, read: impl FnOnce(Option<usize>) -> T) -> T {
        let Some(lengths) = &self.lengths else { return read(None) };
        let array = lengths.start();
        let sequence = read(array);
        if let Some(array) = array {
            lengths.end(array);
        }
        sequence
    }

    /// Returns the number of elements of the sequence `array` of the text.
    fn element_count(&self, array: Option<usize>) -> Option<usize> {
        self.lengths.as_ref()?.of(array?)
    }

    /// Records a skipped value.
    #[inline]
    fn skip(&self) {
        if let Some(lengths) = &self.lengths {
            lengths.skip();
        }
    }
}

impl<'h, T> SizeCounting<'h, T> {
    /// Creates a wrapper that adds to `counter`.
    pub(super) fn new(inner: T, counter: &'h ByteCount<'h>) -> Self {
        Self { inner, counter, value_use: ValueUse::Kept }
    }

    #[inline]
    fn of<U>(&self, inner: U) -> SizeCounting<'h, U> {
        SizeCounting { inner, counter: self.counter, value_use: self.value_use }
    }

    #[inline]
    fn text(&self, text: &str) {
        self.counter.add(match self.value_use {
            ValueUse::Kept | ValueUse::Any => text.len(),
            ValueUse::Read if text.len() > MAX_SCALAR_LENGTH => text.len() / 4 * 3,
            ValueUse::Read | ValueUse::Name => 0,
        });
    }
}

macro_rules! deserialize {
    ($($method:ident: $kept:ident,)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            self.inner.$method(SizeCounting { inner: visitor, counter: self.counter, value_use: ValueUse::$kept })
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for SizeCounting<'_, D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any: Any,
        deserialize_bool: Read,
        deserialize_i8: Read,
        deserialize_i16: Read,
        deserialize_i32: Read,
        deserialize_i64: Read,
        deserialize_i128: Read,
        deserialize_u8: Read,
        deserialize_u16: Read,
        deserialize_u32: Read,
        deserialize_u64: Read,
        deserialize_u128: Read,
        deserialize_f32: Read,
        deserialize_f64: Read,
        deserialize_char: Read,
        deserialize_str: Read,
        deserialize_string: Kept,
        deserialize_bytes: Kept,
        deserialize_byte_buf: Kept,
        deserialize_option: Kept,
        deserialize_unit: Read,
        deserialize_seq: Kept,
        deserialize_map: Kept,
        deserialize_identifier: Name,
    }

    #[inline]
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.counter.skip();
        self.inner.deserialize_ignored_any(SizeCounting {
            inner: visitor,
            counter: self.counter,
            value_use: ValueUse::Name,
        })
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(
            name,
            SizeCounting { inner: visitor, counter: self.counter, value_use: ValueUse::Read },
        )
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = SizeCounting { inner: visitor, counter: self.counter, value_use: ValueUse::Kept };
        self.inner.deserialize_newtype_struct(name, Newtype(visitor))
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_tuple(
            len,
            Inline(SizeCounting { inner: visitor, counter: self.counter, value_use: ValueUse::Kept }),
        )
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Inline(SizeCounting { inner: visitor, counter: self.counter, value_use: ValueUse::Kept });
        self.inner.deserialize_tuple_struct(name, len, visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Inline(SizeCounting { inner: visitor, counter: self.counter, value_use: ValueUse::Kept });
        self.inner.deserialize_struct(name, fields, visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Inline(SizeCounting { inner: visitor, counter: self.counter, value_use: ValueUse::Kept });
        self.inner.deserialize_enum(name, variants, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident: $type:ty,)*) => {$(
        #[inline]
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for SizeCounting<'_, V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }

    visit! {
        visit_bool: bool,
        visit_i8: i8,
        visit_i16: i16,
        visit_i32: i32,
        visit_i64: i64,
        visit_i128: i128,
        visit_u8: u8,
        visit_u16: u16,
        visit_u32: u32,
        visit_u64: u64,
        visit_u128: u128,
        visit_f32: f32,
        visit_f64: f64,
        visit_char: char,
    }

    #[inline]
    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        self.text(text);
        self.inner.visit_str(text)
    }

    #[inline]
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        self.text(text);
        self.inner.visit_borrowed_str(text)
    }

    #[inline]
    fn visit_string<E: Error>(self, text: String) -> Result<V::Value, E> {
        self.text(&text);
        self.inner.visit_string(text)
    }

    #[inline]
    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<V::Value, E> {
        self.counter.add(bytes.len());
        self.inner.visit_bytes(bytes)
    }

    #[inline]
    fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<V::Value, E> {
        self.counter.add(bytes.len());
        self.inner.visit_borrowed_bytes(bytes)
    }

    #[inline]
    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<V::Value, E> {
        self.counter.add(bytes.len());
        self.inner.visit_byte_buf(bytes)
    }

    #[inline]
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.of(deserializer);
        self.inner.visit_some(deserializer)
    }

    #[inline]
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.of(deserializer);
        self.inner.visit_newtype_struct(deserializer)
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        let mut stats = ElementStats::default();
        let (counter, elements) = (self.counter, self.of(elements));
        let value = counter
            .sequence(|array| self.inner.visit_seq(CountedElements { inner: elements, array, stats: &mut stats }))?;
        counter.add(sequence(stats.count, stats.size, stats.hint.get()));
        Ok(value)
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let mut map = MapStats::default();
        let entries = CountedEntries { inner: self.of(entries), map: &mut map };
        let value = self.inner.visit_map(entries)?;
        self.counter.add(map.nodes());
        Ok(value)
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let variant = self.of(variant);
        self.inner.visit_enum(variant)
    }
}

/// Wrapper for the visitor of a newtype struct. A deserializer passes the inner value to `visit_newtype_struct`, or a
/// sequence of one element.
///
/// Only the verbatim text of a value (`RawValue`) arrives as a map. The deserializer then skips the arrays in the text.
struct Newtype<T>(T);

impl<'de, V: Visitor<'de>> Visitor<'de> for Newtype<SizeCounting<'_, V>> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(deserializer)
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(elements)
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.counter.skip();
        // The value allocates no map.
        Inline(self.0).visit_map(entries)
    }
}

/// Wrapper for values whose parts are inline, such as the fields of a struct.
struct Inline<T>(T);

impl<'de, V: Visitor<'de>> Visitor<'de> for Inline<SizeCounting<'_, V>> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    #[inline]
    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        self.0.inner.visit_str(text)
    }

    #[inline]
    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        self.0.inner.visit_borrowed_str(text)
    }

    #[inline]
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.inner.visit_none()
    }

    #[inline]
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.inner.visit_unit()
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(deserializer)
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        let elements = self.0.of(elements);
        self.0.counter.sequence(|_| self.0.inner.visit_seq(elements))
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let entries = self.0.of(entries);
        self.0.inner.visit_map(entries)
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let variant = self.0.of(variant);
        self.0.inner.visit_enum(variant)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for SizeCounting<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let deserializer = self.of(deserializer);
        self.inner.deserialize(deserializer)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for SizeCounting<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.of(seed);
        self.inner.next_element_seed(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for SizeCounting<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.of(seed);
        self.inner.next_key_seed(seed)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.of(seed);
        self.inner.next_value_seed(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// Counters of a sequence.
#[derive(Default)]
struct ElementStats {
    count: usize,
    size: usize,
    /// Reported number of elements, if the type requested it and it is known.
    hint: Cell<usize>,
}

/// Counting access to the elements of a sequence.
struct CountedElements<'h, 'c, A> {
    inner: SizeCounting<'h, A>,
    /// Number of the sequence in the text.
    array: Option<usize>,
    stats: &'c mut ElementStats,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for CountedElements<'_, '_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        // The element stays in place. Moving thousands of bytes would be expensive.
        let element = self.inner.next_element_seed(seed);
        if let Ok(Some(_)) = &element {
            self.stats.count += 1;
            self.stats.size = size_of::<S::Value>();
        }
        element
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        // The collection that a buffer is read into grows, so its capacity does not follow from the length.
        if self.inner.value_use == ValueUse::Any {
            return None;
        }
        // The number comes from the server, and some types allocate for as many elements as reported.
        let all = || Some(self.inner.counter.element_count(self.array)?.saturating_sub(self.stats.count));
        let hint = self.inner.size_hint().or_else(all).map(|hint| hint.min(MAX_REPORTED_ELEMENTS));
        self.stats.hint.set(hint.map_or(0, |hint| self.stats.count + hint));
        hint
    }
}

/// Counters of a map.
#[derive(Default)]
struct MapStats {
    count: usize,
    key: usize,
    value: Option<usize>,
    /// Set for a struct with a `flatten` field. Values of such a struct have several types and are inline.
    is_struct: bool,
}

impl MapStats {
    /// Returns the memory of the nodes that a `BTreeMap` allocates.
    fn nodes(&self) -> usize {
        let entry = self.key + self.value.unwrap_or_default();
        if self.is_struct { 0 } else { tree(self.count, entry) }
    }
}

/// Counting access to the entries of a map.
struct CountedEntries<'h, 'm, A> {
    inner: SizeCounting<'h, A>,
    map: &'m mut MapStats,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for CountedEntries<'_, '_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let key = self.inner.next_key_seed(seed)?;
        self.map.count += usize::from(key.is_some());
        self.map.key = size_of::<S::Value>();
        Ok(key)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let size = size_of::<S::Value>();
        self.map.is_struct |= self.map.value.is_some_and(|other| other != size);
        self.map.value = Some(size);
        self.inner.next_value_seed(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'h, A: EnumAccess<'de>> EnumAccess<'de> for SizeCounting<'h, A> {
    type Error = A::Error;
    type Variant = SizeCounting<'h, A::Variant>;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let counter = self.counter;
        let seed = SizeCounting { inner: seed, counter, value_use: ValueUse::Name };
        let (value, variant) = self.inner.variant_seed(seed)?;
        Ok((value, SizeCounting::new(variant, counter)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for SizeCounting<'_, A> {
    type Error = A::Error;

    #[inline]
    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.of(seed);
        self.inner.newtype_variant_seed(seed)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = Inline(self.of(visitor));
        self.inner.tuple_variant(len, visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = Inline(self.of(visitor));
        self.inner.struct_variant(fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;

    use serde_json::value::RawValue;

    use super::*;

    #[test]
    fn arrays_in_verbatim_text_are_skipped() {
        let text = format!("[{:?}, [1, 2, 3]]", vec![0; 100]);
        let counter = ByteCount::of_json(text.as_bytes());
        let seed = SizeCounting::new(PhantomData::<(Box<RawValue>, Vec<u64>)>, &counter);
        let (_, numbers) = seed.deserialize(&mut serde_json::Deserializer::from_str(&text)).expect("a pair");
        assert!(numbers.capacity() < 100, "the length is that of the array in the text: {}", numbers.capacity());
        // `RawValue` requests its text like a string that is parsed, so only three quarters of it are counted.
        assert_eq!(counter.bytes(), 225 + size_of::<u64>() * numbers.capacity());
    }
}
