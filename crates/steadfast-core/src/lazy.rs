//! Objects that are kept encoded and decoded on each read.

mod decoded_cache;
mod encoded_state;
mod field;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::decode::{
    Cacheable, DecodeError, Decoder, DeltaCompressed, Encoding, OnUndecodable, PartialIdentity, RawObject,
    error_offset, json, list_item,
};
use crate::event::Event;
use crate::frame::Item;
use crate::key::ObjectKey;
use crate::object::Object;
use crate::path::FieldPath;
use crate::protobuf::{self, Found, MessageType};
use crate::record::Identity;
use crate::uid::Uid;
use crate::version::ResourceVersion;
use decoded_cache::DecodedCache;
use encoded_state::{EncodedState, StoredEncoding};
use field::FieldSeed;

/// Object of the type `K` in the server's encoding, without `managedFields`, decoded on each read.
///
/// A pod of 9 KB takes about 6 KB in this form and 38 KB decoded. The handle contains the identity ([`Object::key`],
/// [`Object::identity`]). [`get`](Self::get) decodes the object and shares the result for as long as a caller holds it.
/// [`read`](Self::read) decodes a single field.
///
/// Only a read can detect that an object does not fit `K`. From then on, the cache counts the object as undecodable.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use steadfast_core::decode::DecodeError;
/// # use steadfast_core::{FieldPath, Lazy, Object};
/// fn describe(pod: &Object<Lazy<Pod>>, phase: &FieldPath) -> Result<String, DecodeError> {
///     // The key needs no decoding, and the phase decodes one field.
///     let phase: Option<String> = pod.read(phase)?;
///     Ok(format!("{} {}", pod.key(), phase.unwrap_or_default()))
/// }
/// # let _ = (describe, FieldPath::new("status.phase"));
/// ```
pub struct Lazy<K> {
    packed: DeltaCompressed,
    state: EncodedState,
    cache: Arc<Cache<K>>,
}

// Created once, since the same path is read from many objects.
static LABELS: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("metadata.labels"));
static ANNOTATIONS: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("metadata.annotations"));
static OWNERS: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("metadata.ownerReferences"));
static DELETION: LazyLock<FieldPath> = LazyLock::new(|| FieldPath::new("metadata.deletionTimestamp"));

/// State that the objects of one cache share.
struct Cache<K> {
    decoded: DecodedCache<K>,
    on_undecodable: Option<OnUndecodable>,
}

impl<K: Resource + DeserializeOwned + Send + Sync + 'static> Cacheable for Lazy<K> {
    type Resource = K;

    fn decode(raw: &RawObject, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let written = match (raw.encoding, raw.message) {
            (Encoding::Json, _) => StoredEncoding::Json,
            (Encoding::Protobuf, Some(message)) => StoredEncoding::Protobuf(message),
            (Encoding::Protobuf, None) => return Err(DecodeError::of_unknown_kind(&raw.identity)),
        };
        let cache = decoder.shared(|on_undecodable| Cache { decoded: DecodedCache::<K>::default(), on_undecodable });
        let state = EncodedState::new(cache.decoded.allocate_id(), written);
        Ok(Self { packed: decoder.pack(raw), state, cache })
    }

    fn read_whole<T>(&self, read: impl FnOnce(&K) -> T) -> Result<T, DecodeError> {
        Ok(read(&*self.get()?))
    }

    fn metadata_only() -> bool {
        K::metadata_api()
    }

    // The conversion only copies the bytes.
    fn is_costly() -> bool {
        false
    }

    fn labels(&self) -> Option<Cow<'_, BTreeMap<String, String>>> {
        Self::labels(self).ok().map(Cow::Owned)
    }
}

impl<K: DeserializeOwned> Lazy<K> {
    /// Returns the decoded object. Decodes it unless another caller holds the decoded object.
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not fit `K`.
    pub fn get(&self) -> Result<Arc<K>, DecodeError> {
        if let Some(decoded) = self.cache.decoded.get(self.state.id()) {
            return Ok(decoded);
        }
        let decoded = self.whole().inspect_err(|error| self.report(error))?;
        // Another thread may have decoded the object concurrently. All readers share the first
        // result.
        Ok(self.cache.decoded.put(self.state.id(), &Arc::new(decoded)))
    }
}

impl<K> Lazy<K> {
    fn report(&self, error: &DecodeError) {
        // Each object reports only its first decode error.
        if let Some(on_undecodable) = &self.cache.on_undecodable
            && self.state.mark_reported()
        {
            on_undecodable(error);
        }
    }

    /// Decodes the metadata field at `path`. Reports an error to `on_undecodable`, since the type of this field is
    /// fixed and not chosen by the reader.
    fn metadata<T: DeserializeOwned>(&self, path: &FieldPath) -> Result<Option<T>, DecodeError> {
        self.read(path).inspect_err(|error| self.report(error))
    }

    /// Decodes only the field at `path`, as a `T`; `None` if the field is missing or null.
    ///
    /// ```
    /// # use steadfast_core::{FieldPath, Lazy};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// fn node_of(path: &FieldPath) -> impl Fn(&Lazy<Pod>) -> Option<String> {
    ///     move |pod| pod.read(path).ok()?
    /// }
    /// # let _ = node_of(&FieldPath::new("spec.nodeName"));
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the field does not fit `T`. Such an error does not mark the object as undecodable, since the
    /// reader chose `T`.
    pub fn read<T: DeserializeOwned>(&self, path: &FieldPath) -> Result<Option<T>, DecodeError> {
        let bytes = self.bytes();
        match self.state.encoding() {
            StoredEncoding::Json => match path.find_in_json(&bytes) {
                Ok(Some(span)) => {
                    let start = span.start;
                    json(&bytes[span]).map_err(|error| self.decode_error(&bytes, start, &error))
                }
                Ok(None) => Ok(None),
                // Decoding the whole object produces the most precise error.
                Err(_) => self.whole::<IgnoredAny>().map(|_| None),
            },
            StoredEncoding::Protobuf(message) => {
                // Most paths need no generic traversal: the message table leads directly to the
                // field.
                if let Some(Found(found)) = protobuf::decode_field(message, &bytes, path.names()) {
                    return Ok(found);
                }
                let mut found = None;
                let field = FieldSeed { names: path.names(), found: &mut found };
                let read = protobuf::decode_seed(field, message, &bytes, true);
                read.map_err(|error| DecodeError::of_protobuf(&self.identity(), &error))?;
                Ok(found)
            }
        }
    }

    /// Decodes the object's labels.
    ///
    /// # Errors
    ///
    /// Returns an error if the field does not contain labels.
    pub fn labels(&self) -> Result<BTreeMap<String, String>, DecodeError> {
        Ok(self.metadata(&LABELS)?.unwrap_or_default())
    }

    /// Decodes the object's annotations.
    ///
    /// # Errors
    ///
    /// Returns an error if the field does not contain annotations.
    pub fn annotations(&self) -> Result<BTreeMap<String, String>, DecodeError> {
        Ok(self.metadata(&ANNOTATIONS)?.unwrap_or_default())
    }

    /// Decodes the owner references of the object.
    ///
    /// # Errors
    ///
    /// Returns an error if the field does not contain owner references.
    pub fn owner_references(&self) -> Result<Vec<OwnerReference>, DecodeError> {
        Ok(self.metadata(&OWNERS)?.unwrap_or_default())
    }

    /// Returns whether the object is being deleted and waits for its finalizers.
    ///
    /// # Errors
    ///
    /// Returns an error if the deletion timestamp is not a valid time.
    pub fn is_being_deleted(&self) -> Result<bool, DecodeError> {
        Ok(self.metadata::<String>(&DELETION)?.is_some())
    }

    /// Returns the server's bytes without `managedFields`. They are borrowed, unless the object is
    /// [delta-compressed](Decoder::delta_compressed).
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        self.packed.bytes()
    }

    /// Returns the encoding of [`bytes`](Self::bytes).
    pub fn encoding(&self) -> Encoding {
        match self.state.encoding() {
            StoredEncoding::Json => Encoding::Json,
            StoredEncoding::Protobuf(_) => Encoding::Protobuf,
        }
    }

    /// Returns the message type of [`bytes`](Self::bytes); `None` for JSON.
    #[doc(hidden)]
    pub fn message(&self) -> Option<MessageType> {
        match self.state.encoding() {
            StoredEncoding::Json => None,
            StoredEncoding::Protobuf(message) => Some(message),
        }
    }

    fn whole<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        let bytes = self.bytes();
        match self.state.encoding() {
            StoredEncoding::Json => json(&bytes).map_err(|error| self.decode_error(&bytes, 0, &error)),
            StoredEncoding::Protobuf(message) => protobuf::decode(message, &bytes, true)
                .map_err(|error| DecodeError::of_protobuf(&self.identity(), &error)),
        }
    }

    /// Creates the error for the JSON in `bytes` from `start` on.
    fn decode_error(&self, bytes: &[u8], start: usize, error: &serde_json::Error) -> DecodeError {
        DecodeError::of_json(&self.identity(), start + error_offset(&bytes[start..], error), error)
    }

    /// Decodes the identity of the object from its bytes. Only errors need it, since the handle contains the identity.
    fn identity(&self) -> Identity {
        let bytes = Bytes::from(self.bytes().into_owned());
        let item = match self.state.encoding() {
            StoredEncoding::Json => bytes.clone().into(),
            StoredEncoding::Protobuf(message) => Item::of_message(bytes.clone(), message),
        };
        let PartialIdentity { key, uid, version } = match list_item(self.encoding(), &item, None) {
            Ok(raw) => return raw.identity,
            Err(error) => *error.identity,
        };
        let key = key.unwrap_or_else(|| ObjectKey::cluster(""));
        let uid = uid.unwrap_or_else(|| Uid::by_name(&key));
        let version = version.unwrap_or_else(|| ResourceVersion::substitute_for(&bytes));
        Identity { key, uid, version }
    }
}

impl<K: DeserializeOwned> Object<Lazy<K>> {
    /// Returns a handle of the decoded object.
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not fit `K`.
    pub fn decoded(&self) -> Result<Object<K>, DecodeError> {
        Ok(Object::new(self.identity().clone(), self.get()?))
    }
}

impl<K: DeserializeOwned> Event<Lazy<K>> {
    /// Converts the event to an event of the decoded object, as a cache of decoded objects would deliver it. If the
    /// earlier state of an update does not fit `K`, the result is `Added` with the current state.
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not fit `K`.
    pub fn decoded(&self) -> Result<Event<K>, DecodeError> {
        Ok(match self {
            Self::Added { object, initial } => Event::Added { object: object.decoded()?, initial: *initial },
            Self::Updated { old, new } => match (old.decoded(), new.decoded()?) {
                (Ok(old), new) => Event::Updated { old, new },
                // The handler never received the undecodable old state, so the new state is an
                // addition.
                (Err(_), object) => Event::Added { object, initial: false },
            },
            Self::Deleted { last, version, certainty, reason } => Event::Deleted {
                last: last.decoded()?,
                version: version.clone(),
                certainty: *certainty,
                reason: *reason,
            },
            Self::Resynced { object } => Event::Resynced { object: object.decoded()? },
        })
    }
}

// Prints only the size, since the object may be a Secret.
impl<K> fmt::Debug for Lazy<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lazy({} bytes)", self.bytes().len())
    }
}
