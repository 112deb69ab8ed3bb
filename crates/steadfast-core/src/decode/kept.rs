//! What is kept of an object is decided by the type that is requested.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use kube::Resource;
use serde::de::{DeserializeOwned, DeserializeSeed};
use serde_json::Value;

use super::error::place;
use super::measured::{Heap, Measured};
use super::packed::{Families, Packed};
use super::{DecodeError, DecodeOptions, Encoding, RawObject};
use crate::protobuf;

/// A form in which objects are kept.
///
/// Every [`kube::Resource`] that can be deserialized is one: the types of `k8s-openapi`, derived custom resources,
/// `DynamicObject`, `PartialObjectMeta<K>`, and a struct of one's own with just the fields one needs. So is
/// [`Lazy<K>`](crate::Lazy) of each of them. Who an object is never depends on the form: that is the [`RawObject`]'s.
pub trait Kept: Send + Sync + Sized + 'static {
    /// What it is a form of: where the objects are to be had.
    type Resource: Resource + 'static;

    /// The form of `raw`.
    ///
    /// # Errors
    ///
    /// Where the object does not fit the form.
    fn decode(raw: &RawObject, decoder: &mut Decoder) -> Result<Self, DecodeError>;

    /// Has `read` look at the object, decoded for that where it is kept encoded.
    ///
    /// # Errors
    ///
    /// Where it is, and does not fit.
    fn read_whole<T>(&self, read: impl FnOnce(&Self::Resource) -> T) -> Result<T, DecodeError>;

    /// Whether only the objects' metadata is requested.
    fn metadata_only() -> bool;

    /// Whether decoding takes so much longer than reading that other threads help where much is waiting.
    fn is_dear() -> bool;

    /// The labels, for readers that select by them.
    fn labels(&self) -> Option<Cow<'_, BTreeMap<String, String>>>;
}

impl<K> Kept for K
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

    fn is_dear() -> bool {
        true
    }

    fn labels(&self) -> Option<Cow<'_, BTreeMap<String, String>>> {
        self.meta().labels.as_ref().map(Cow::Borrowed)
    }
}

/// Decodes objects one after the other, with one buffer for all.
#[derive(Default)]
pub struct Decoder {
    options: DecodeOptions,
    scratch: Vec<u8>,
    /// What the last decoded object holds beyond itself.
    heap: usize,
    /// Where objects are to be packed, what they are packed beside.
    families: Option<Families>,
    unread: Option<Unread>,
    /// What the kept objects share.
    shared: Option<Arc<dyn Any + Send + Sync>>,
}

/// Is told of an object that turns out, when it is read, not to fit.
pub type Unread = Arc<dyn Fn(&DecodeError) + Send + Sync>;

/// What the buffer may hold on to: one large object must not cost its size for ever.
const SCRATCH: usize = 256 * 1024;

impl Decoder {
    /// A decoder with these options.
    pub fn new(options: DecodeOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Has `unread` told of each object that turns out, when it is read, not to fit.
    #[must_use]
    pub fn tell_unread(self, unread: Unread) -> Self {
        Self { unread: Some(unread), ..self }
    }

    /// Keeps what is kept encoded as what differs from a sibling, or else from another object: a tenth to a fifth of its bytes
    /// where objects are alike, and some microseconds for each that is kept or read.
    #[must_use]
    pub fn packed(self) -> Self {
        Self { families: Some(Families::default()), ..self }
    }

    /// How many bytes those have that others are packed beside; no object counts them.
    pub fn beside(&self) -> Option<Arc<AtomicUsize>> {
        self.families.as_ref().map(|families| families.held().clone())
    }

    /// Another one, for another thread, that decodes as this does. It packs nothing: what is packed is not dear.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { options: self.options, unread: self.unread.clone(), shared: self.shared.clone(), ..Self::default() }
    }

    /// What all objects share that this decodes, made for the first of them, with who is told of such objects.
    pub(crate) fn shared<T: Send + Sync + 'static>(&mut self, make: impl FnOnce(Option<Unread>) -> T) -> Arc<T> {
        if let Some(shared) = self.shared.clone().and_then(|shared| shared.downcast().ok()) {
            return shared;
        }
        let first = Arc::new(make(self.unread.clone()));
        self.shared = Some(first.clone());
        first
    }

    /// The form of `raw`, and how many bytes it holds beyond itself, as far as that is known.
    ///
    /// # Errors
    ///
    /// Where the object does not fit the form.
    pub fn weighed<K: Kept>(&mut self, raw: &RawObject) -> Result<(K, usize), DecodeError> {
        self.heap = 0;
        let object = K::decode(raw, self)?;
        Ok((object, self.heap))
    }

    /// What is kept of the bytes of `raw`, to be kept for long.
    pub(crate) fn pack(&mut self, raw: &RawObject) -> Packed {
        let bytes = compact(self.options, &mut self.scratch, raw);
        let packed = match &mut self.families {
            Some(families) => families.pack(&raw.identity.key, bytes),
            None => Packed::plain(bytes),
        };
        self.heap += packed.footprint();
        packed
    }

    /// Decodes `raw`, without its `managedFields` unless they are to be kept.
    ///
    /// # Errors
    ///
    /// Where the object does not fit `T`, or its JSON is not UTF-8.
    pub fn decode<T: DeserializeOwned>(&mut self, raw: &RawObject) -> Result<T, DecodeError> {
        match raw.encoding {
            Encoding::Json => {
                let text = compact(self.options, &mut self.scratch, raw);
                let heap = Heap::of_json(text);
                let decoded = json_seed(Measured::new(PhantomData, &heap), text);
                self.heap += heap.bytes();
                decoded.map_err(|error| {
                    let at = place(text, &error);
                    let cut = raw.managed_fields.as_ref().is_some_and(|cut| at > cut.start);
                    let offset = if cut { at + raw.bytes.len() - text.len() } else { at };
                    DecodeError::of_json(&raw.identity, offset, &error)
                })
            }
            Encoding::Protobuf => {
                let message = raw.message.ok_or_else(|| DecodeError::of_unknown_kind(&raw.identity))?;
                let (heap, keeps) = (Heap::default(), self.options.keep_managed_fields);
                // What is not kept is passed over, and need not be cut out.
                let decoded = protobuf::decode_seed(Measured::new(PhantomData, &heap), message, &raw.bytes, keeps);
                self.heap += heap.bytes();
                decoded.map_err(|error| DecodeError::of_protobuf(&raw.identity, &error))
            }
        }
    }
}

/// What is kept of the bytes of `raw`, in the buffer for all objects where something is cut out.
fn compact<'a>(options: DecodeOptions, scratch: &'a mut Vec<u8>, raw: &'a RawObject) -> &'a [u8] {
    scratch.clear();
    scratch.shrink_to(SCRATCH);
    raw.compact(options, scratch)
}

/// Reads `text`, of which all has to be UTF-8, also where `T` does not look.
pub(crate) fn json<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    json_seed(PhantomData::<T>, text)
}

/// Has `seed` read `text`, as [`json`] does.
fn json_seed<T>(seed: impl for<'de> DeserializeSeed<'de, Value = T>, text: &[u8]) -> serde_json::Result<T> {
    match str::from_utf8(text) {
        // Looked at in one go: `serde_json` would do so string by string, which is an eighth of its work.
        Ok(text) => {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            let value = seed.deserialize(&mut deserializer)?;
            deserializer.end()?;
            Ok(value)
        }
        // The type that looks everywhere finds the place.
        Err(error) => serde_json::from_slice::<Value>(text).and_then(|_| Err(serde::de::Error::custom(error))),
    }
}
