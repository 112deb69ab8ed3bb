//! Standalone objects: the type of the envelope, and the message.

use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess, Visitor};

use super::content::Content;
use super::deserialize::{MAX_DEPTH, Members, SingleValue, step_out};
use super::envelope::{TypeMeta, open_envelope};
use super::error::{Error, Step};
use super::json_view::{AsJson, JsonView, MemberName};
use super::message::ValueType;
use super::message_type::MessageType;
use super::table::table;
use super::wire::Reader;

/// Decodes the object `bytes` of type `message_type`, with or without its envelope. The result equals that of the API
/// server's JSON for the object, without `metadata.managedFields` unless they are kept.
///
/// # Errors
///
/// Returns an error if the bytes are not a valid message, or if `T` rejects a value.
pub fn decode<'de, T: Deserialize<'de>>(
    message_type: MessageType,
    bytes: &'de [u8],
    keep_managed_fields: bool,
) -> Result<T, Error> {
    decode_seed(PhantomData::<T>, message_type, bytes, keep_managed_fields)
}

/// Decodes the object `bytes` by `seed`, as [`decode`] does.
///
/// # Errors
///
/// Returns an error if the bytes are not a valid message, or if the seed rejects a value.
pub(crate) fn decode_seed<'de, S: DeserializeSeed<'de>>(
    seed: S,
    message_type: MessageType,
    bytes: &'de [u8],
    keep_managed_fields: bool,
) -> Result<S::Value, Error> {
    let (types, reader) = open_envelope(Reader::new(bytes))?;
    seed.deserialize(AsJson(StandaloneObject { types, message_type, reader, keep_managed_fields }))
}

/// Standalone object.
struct StandaloneObject<'de> {
    types: Option<TypeMeta<'de>>,
    message_type: MessageType,
    reader: Reader<'de>,
    keep_managed_fields: bool,
}

impl<'de> JsonView<'de> for StandaloneObject<'de> {
    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut members = Members::new(self.message_type, self.reader, MAX_DEPTH)?;
        members.omits_managed_fields = !self.keep_managed_fields;
        // In a protobuf list, items have no envelope and thus no type. In a JSON list, only items of the type
        // `PartialObjectMetadata` contain `apiVersion` and `kind`, and both are constant.
        let partial = TypeMeta { api_version: b"meta.k8s.io/v1", kind: b"PartialObjectMetadata" };
        let implied_type = if self.message_type == table().partial { partial } else { TypeMeta::default() };
        let TypeMeta { api_version, kind } = self.types.unwrap_or(implied_type);
        visitor.visit_map(StandaloneMembers {
            types: [("apiVersion", api_version), ("kind", kind)],
            yielded: 0,
            members,
        })
    }
}

/// Members of a standalone object: the members of the envelope, then the members of the message.
struct StandaloneMembers<'de> {
    types: [(&'static str, &'de [u8]); 2],
    yielded: usize,
    members: Members<'de>,
}

impl<'de> MapAccess<'de> for StandaloneMembers<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        while let Some((name, text)) = self.types.get(self.yielded) {
            self.yielded += 1;
            // Empty types are omitted, as in JSON.
            if !text.is_empty() {
                return seed.deserialize(AsJson(MemberName(name))).map(Some);
            }
        }
        self.yielded = self.types.len() + 1;
        self.members.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        match self.yielded.checked_sub(1).and_then(|yielded| self.types.get(yielded)) {
            Some((name, text)) => {
                let text = SingleValue {
                    value: ValueType::Text,
                    content: Content::Inside(Reader::new(text)),
                    depth: MAX_DEPTH,
                };
                let mut value = seed.deserialize(AsJson(text));
                step_out(&mut value, Step::Field(name), 0);
                value
            }
            None => self.members.next_value_seed(seed),
        }
    }
}
