//! Form in which a cache stores objects, determined by the requested type.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use kube::Resource;
use serde::de::{DeserializeOwned, DeserializeSeed};
use serde_json::Value;

use super::delta_compressed::{DeltaCompressed, DictionaryGroups};
use super::error::error_offset;
use super::size_counting::{ByteCount, SizeCounting};
use super::{DecodeError, DecodeOptions, Encoding, RawObject};
use crate::on_demand::{self, Decode, Decoded, Form, OnDemand};
use crate::protobuf;
use crate::record::Identity;

/// Form in which a cache stores objects.
///
/// Every [`kube::Resource`] that implements deserialization is a form: the types of `k8s-openapi`, derived custom
/// resources, `DynamicObject`, `PartialObjectMeta<K>`, and a custom struct with only the needed fields.
/// [`Lazy<K>`](crate::Lazy) of each of them is a form, too. The identity of an object does not depend on the form: the
/// identity comes from the [`RawObject`].
pub trait Cacheable: Send + Sync + Sized + 'static {
    /// Resource of the form, which determines the endpoint.
    type Resource: Resource + 'static;

    /// Decodes `raw` into the form.
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not fit the form.
    fn decode(raw: &RawObject, decoder: &mut Decoder) -> Result<Self, DecodeError>;

    /// Calls `read` with the object; an encoded object is decoded for the call.
    ///
    /// # Errors
    ///
    /// Returns an error if a kept encoded object does not fit its type.
    fn read_whole<T>(&self, read: impl FnOnce(&Self::Resource) -> T) -> Result<T, DecodeError>;

    /// Returns whether only the objects' metadata are requested.
    fn metadata_only() -> bool;

    /// Returns true if decoding an object costs much more than receiving its bytes. Helper threads then decode when
    /// many objects are pending.
    fn is_costly() -> bool;

    /// Returns the labels, for readers with a selector.
    fn labels(&self) -> Option<Cow<'_, BTreeMap<String, String>>>;

    /// Returns the encoded form of `raw` to cache instead of the decoded object, which takes `bytes` bytes. Returns
    /// `None` to cache the decoded object.
    #[doc(hidden)]
    fn on_demand(raw: &RawObject, bytes: usize, decoder: &mut Decoder) -> Option<OnDemand<Self>> {
        let _ = (raw, bytes, decoder);
        None
    }
}

impl<K> Cacheable for K
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    type Resource = K;

    fn decode(raw: &RawObject, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.decode(raw)
    }

    fn read_whole<T>(&self, read: impl FnOnce(&K) -> T) -> Result<T, DecodeError> {
        Ok(read(self))
    }

    fn metadata_only() -> bool {
        K::metadata_api()
    }

    fn is_costly() -> bool {
        true
    }

    fn labels(&self) -> Option<Cow<'_, BTreeMap<String, String>>> {
        self.meta().labels.as_ref().map(Cow::Borrowed)
    }

    fn on_demand(raw: &RawObject, bytes: usize, decoder: &mut Decoder) -> Option<OnDemand<Self>> {
        decoder.encode(raw, bytes, decode_again)
    }
}

/// Decodes the bytes that a cache contains of an object.
fn decode_again<K: DeserializeOwned>(
    (encoding, message): Form,
    bytes: &[u8],
    identity: &Identity,
) -> Result<K, DecodeError> {
    match (encoding, message) {
        (Encoding::Json, _) => {
            json(bytes).map_err(|error| DecodeError::of_json(identity, error_offset(bytes, &error), &error))
        }
        (Encoding::Protobuf, Some(message)) => {
            protobuf::decode(message, bytes, true).map_err(|error| DecodeError::of_protobuf(identity, &error))
        }
        (Encoding::Protobuf, None) => Err(DecodeError::of_unknown_kind(identity)),
    }
}

/// Decoder for a sequence of objects, with a shared buffer.
#[derive(Default)]
pub struct Decoder {
    options: DecodeOptions,
    scratch: Vec<u8>,
    /// Heap memory of the last decoded object, in bytes.
    heap: usize,
    /// Dictionaries for packed objects, if objects are packed.
    dictionaries: Option<DictionaryGroups>,
    /// Set if `Lazy` objects are packed.
    packs_lazy: bool,
    on_undecodable: Option<OnUndecodable>,
    on_demand: Option<OnDemandRule>,
    /// State that the kept objects share.
    shared: Option<Arc<dyn Any + Send + Sync>>,
}

/// Rule for objects that are cached encoded and decoded on demand.
#[derive(Clone)]
struct OnDemandRule {
    /// Minimum memory of a decoded object in bytes. Smaller objects are cached decoded.
    min_decoded_bytes: usize,
    decoded: Decoded,
}

/// Minimum memory of a decoded object, as a multiple of its encoded length. Below it, the encoded form saves little.
const MIN_EXPANSION: usize = 2;

/// Callback for an object that a read found to be undecodable.
pub type OnUndecodable = Arc<dyn Fn(&DecodeError) + Send + Sync>;

/// Maximum size of the buffer between objects, so a large object does not occupy memory forever.
const MAX_SCRATCH_BYTES: usize = 256 * 1024;

impl Decoder {
    /// Creates a decoder with these options.
    pub fn new(options: DecodeOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Sets the callback for objects that a read finds to be undecodable.
    #[must_use]
    pub fn on_undecodable(self, on_undecodable: OnUndecodable) -> Self {
        Self { on_undecodable: Some(on_undecodable), ..self }
    }

    /// Packs encoded objects: the decoder keeps only the differences to a similar object. Similar objects take a tenth
    /// to a fifth of their bytes. Each decoding and each read costs some microseconds.
    #[must_use]
    pub fn delta_compressed(self) -> Self {
        Self { dictionaries: Some(DictionaryGroups::default()), packs_lazy: true, ..self }
    }

    /// Caches objects in packed form if their decoded form takes at least `min_decoded_bytes` bytes and twice their
    /// encoded length; with 0, all objects. Readers decode them again. `decoded` is called for each decoded form that
    /// stays in the cache.
    #[must_use]
    pub fn on_demand(self, min_decoded_bytes: usize, decoded: Decoded) -> Self {
        let on_demand = Some(OnDemandRule { min_decoded_bytes, decoded });
        Self { on_demand, dictionaries: Some(DictionaryGroups::default()), ..self }
    }

    /// Returns the size of the dictionaries in bytes. The size of an object does not include its dictionary. `None` if
    /// objects are not packed.
    pub fn dictionary_bytes(&self) -> Option<Arc<AtomicUsize>> {
        self.dictionaries.as_ref().map(|dictionaries| dictionaries.dictionary_bytes().clone())
    }

    /// Creates a decoder with the same options for a helper thread. The new decoder does not pack: decoding to a packed
    /// form is cheap, and helper threads run only costly decoding.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            options: self.options,
            on_undecodable: self.on_undecodable.clone(),
            on_demand: self.on_demand.clone(),
            shared: self.shared.clone(),
            ..Self::default()
        }
    }

    /// Returns the encoded form of `raw`, if it should be cached instead of the decoded object of `bytes` bytes.
    fn encode<K: Send + Sync + 'static>(
        &mut self,
        raw: &RawObject,
        bytes: usize,
        decode: Decode<K>,
    ) -> Option<OnDemand<K>> {
        let rule = self.on_demand.as_ref()?;
        let is_worthwhile = rule.min_decoded_bytes == 0 || bytes >= MIN_EXPANSION * raw.bytes.len();
        if bytes < rule.min_decoded_bytes || !is_worthwhile {
            return None;
        }
        let decoded = rule.decoded.clone();
        let shared = self.shared(|_| on_demand::Shared::new(decode, decoded));
        let packed = self.compressed(raw, true);
        Some(OnDemand::new(packed, (raw.encoding, raw.message), bytes, shared))
    }

    /// Returns the state that all objects of this decoder share. `make` creates it for the first object, with the
    /// callback for undecodable objects.
    pub(crate) fn shared<T: Send + Sync + 'static>(&mut self, make: impl FnOnce(Option<OnUndecodable>) -> T) -> Arc<T> {
        if let Some(shared) = self.shared.clone().and_then(|shared| shared.downcast().ok()) {
            return shared;
        }
        let first = Arc::new(make(self.on_undecodable.clone()));
        self.shared = Some(first.clone());
        first
    }

    /// Decodes `raw` into the form, and returns its heap memory in bytes, as far as known.
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not fit the form.
    pub fn decode_with_size<K: Cacheable>(&mut self, raw: &RawObject) -> Result<(K, usize), DecodeError> {
        self.heap = 0;
        let object = K::decode(raw, self)?;
        Ok((object, self.heap))
    }

    /// Returns the bytes of `raw` to store in the cache, packed if possible.
    pub(crate) fn pack(&mut self, raw: &RawObject) -> DeltaCompressed {
        self.compressed(raw, self.packs_lazy)
    }

    fn compressed(&mut self, raw: &RawObject, packs: bool) -> DeltaCompressed {
        let bytes = compact(self.options, &mut self.scratch, raw);
        let packed = match &mut self.dictionaries {
            Some(dictionaries) if packs => dictionaries.pack(&raw.identity.key, bytes),
            _ => DeltaCompressed::plain(bytes),
        };
        self.heap += packed.footprint();
        packed
    }

    /// Decodes `raw`, without `managedFields` unless the options keep them.
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not fit `T`, or if its JSON is not valid UTF-8.
    pub fn decode<T: DeserializeOwned>(&mut self, raw: &RawObject) -> Result<T, DecodeError> {
        match raw.encoding {
            Encoding::Json => {
                let text = compact(self.options, &mut self.scratch, raw);
                let heap = ByteCount::of_json(text);
                let decoded = json_seed(SizeCounting::new(PhantomData, &heap), text);
                self.heap += heap.bytes();
                decoded.map_err(|error| {
                    // The error position refers to the text without `managedFields`, so the length
                    // of the cut is added.
                    let at = error_offset(text, &error);
                    let cut = raw.managed_fields.as_ref().is_some_and(|cut| at > cut.start);
                    let offset = if cut { at + raw.bytes.len() - text.len() } else { at };
                    DecodeError::of_json(&raw.identity, offset, &error)
                })
            }
            Encoding::Protobuf => {
                let message = raw.message.ok_or_else(|| DecodeError::of_unknown_kind(&raw.identity))?;
                let (heap, keeps) = (ByteCount::default(), self.options.keep_managed_fields);
                // The decoder skips dropped fields, so no cut is necessary first.
                let decoded = protobuf::decode_seed(SizeCounting::new(PhantomData, &heap), message, &raw.bytes, keeps);
                self.heap += heap.bytes();
                decoded.map_err(|error| DecodeError::of_protobuf(&raw.identity, &error))
            }
        }
    }
}

/// Returns the bytes of `raw` to store. They are in the shared buffer if `managedFields` are removed.
fn compact<'a>(options: DecodeOptions, scratch: &'a mut Vec<u8>, raw: &'a RawObject) -> &'a [u8] {
    scratch.clear();
    // A huge object must not keep a huge buffer for all later objects.
    scratch.shrink_to(MAX_SCRATCH_BYTES);
    raw.compact(options, scratch)
}

/// Decodes `text`. All of it must be UTF-8, including the parts that `T` skips.
pub(crate) fn json<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    json_seed(PhantomData::<T>, text)
}

/// Decodes `text` by `seed`, as [`json`] does.
fn json_seed<T>(seed: impl for<'de> DeserializeSeed<'de, Value = T>, text: &[u8]) -> serde_json::Result<T> {
    match str::from_utf8(text) {
        // A single pass checks UTF-8. `serde_json` would check each string, an eighth of the total work.
        Ok(text) => {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            let value = seed.deserialize(&mut deserializer)?;
            deserializer.end()?;
            Ok(value)
        }
        // A `Value` reads all parts of the text and therefore finds the position of the error.
        Err(error) => serde_json::from_slice::<Value>(text).and_then(|_| Err(serde::de::Error::custom(error))),
    }
}
