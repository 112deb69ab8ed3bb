//! What is written down of a cache, so that the next life of its program begins where this one ends: the rules, without I/O.
//!
//! An object that is kept encoded is written as it is kept. What is written is read again by [`Forms::read`] alone, which takes
//! nothing for granted: bytes that are no row are none, whatever they are.

mod owed;
mod row;

use bytes::Bytes;

use crate::decode::{Encoding, RawObject};
use crate::key::ObjectKey;
use crate::lazy::Lazy;
use crate::object::{Entry, Object};
use crate::protobuf::MessageId;
use crate::record::Identity;
use crate::uid::Uid;
use crate::version::ResourceVersion;
use row::{Form, Row};

pub use owed::{OwedKey, SavedDebt, SavedState};
pub use row::{key_of, write_key};

/// How the objects of one collection may be encoded.
///
/// A message is told by what it is called and not by its place in our table, which is another one with each release.
#[derive(Clone, Copy, Debug)]
pub struct Forms {
    messages: [Option<MessageId>; 2],
}

/// An entry of a cache, as it was written down.
#[derive(Debug)]
pub enum Saved {
    /// The object as it was kept.
    Known(RawObject),
    /// Its newest state could not be decoded: who it is and in which version, and the last state that could.
    Unknown(Identity, Option<RawObject>),
}

impl Saved {
    /// Who it is.
    pub fn identity(&self) -> &Identity {
        match self {
            Self::Known(raw) => &raw.identity,
            Self::Unknown(identity, _) => identity,
        }
    }
}

/// An object is encoded in a way that has no name here, so that it cannot be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchForm;

impl Forms {
    /// Those of the objects of `kind`, or of their metadata alone.
    pub fn of(api_version: &str, kind: &str) -> Self {
        let named = MessageId::of_kind;
        Self { messages: [named(api_version, kind), named("meta.k8s.io/v1", "PartialObjectMetadata")] }
    }

    /// Writes down what `entry` says.
    ///
    /// One that turned out, when it was read, not to fit its type is written as it came: another type may be asked for in
    /// another life.
    ///
    /// # Errors
    ///
    /// Where it is encoded in a way that cannot be named.
    pub fn write<K>(&self, entry: &Entry<Lazy<K>>, out: &mut Vec<u8>) -> Result<(), NoSuchForm> {
        let Identity { uid, version, .. } = entry.identity();
        let as_it_came = |last: &&Object<Lazy<K>>| last.version() == version && last.identity().uid == *uid;
        if let Some(object) = entry.last().filter(as_it_came) {
            return self.write_object(object, out);
        }
        let mut last = Vec::new();
        entry.last().map_or(Ok(()), |object| self.write_object(object, &mut last))?;
        Row { form: Form::Unknown, uid: uid.as_str(), version: version.as_str(), bytes: &last }.write(out);
        Ok(())
    }

    fn write_object<K>(self, object: &Object<Lazy<K>>, out: &mut Vec<u8>) -> Result<(), NoSuchForm> {
        let Identity { uid, version, .. } = object.identity();
        let (form, bytes) = (self.form(object.message())?, Lazy::bytes(object));
        Row { form, uid: uid.as_str(), version: version.as_str(), bytes: &bytes }.write(out);
        Ok(())
    }

    fn form(self, message: Option<MessageId>) -> Result<Form, NoSuchForm> {
        let Some(message) = message else { return Ok(Form::Json) };
        match self.messages.iter().position(|known| *known == Some(message)) {
            Some(0) => Ok(Form::Object),
            Some(_) => Ok(Form::Metadata),
            None => Err(NoSuchForm),
        }
    }

    /// Reads what was written of the object at `key`; nothing where these are no such bytes.
    pub fn read(&self, key: ObjectKey, row: &[u8]) -> Option<Saved> {
        let Row { form, uid, version, bytes } = Row::read(row)?;
        let uid = if uid.is_empty() { Uid::by_name(&key) } else { Uid::from(uid) };
        let identity = Identity { key, uid, version: ResourceVersion::from(version) };
        let (encoding, message) = match form {
            Form::Unknown if bytes.is_empty() => return Some(Saved::Unknown(identity, None)),
            Form::Unknown => {
                return match self.read(identity.key.clone(), bytes)? {
                    Saved::Known(last) => Some(Saved::Unknown(identity, Some(last))),
                    Saved::Unknown(..) => None,
                };
            }
            Form::Json => (Encoding::Json, None),
            Form::Object => (Encoding::Protobuf, Some(self.messages[0]?)),
            Form::Metadata => (Encoding::Protobuf, Some(self.messages[1]?)),
        };
        let bytes = Bytes::copy_from_slice(bytes);
        Some(Saved::Known(RawObject { identity, bytes, managed_fields: None, encoding, message }))
    }
}
