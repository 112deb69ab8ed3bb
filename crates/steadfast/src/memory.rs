//! Memory use of an informer.

use std::mem::size_of;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use serde_json::Value;
use steadfast_core::decode::{Cacheable, DecodeOptions, Decoder, Encoding, RawObject};
use steadfast_core::record::Identity;
use steadfast_core::{ObjectKey, ResourceVersion, Uid};

/// Memory use of an informer in bytes, as requested from the allocator, without the allocator's overhead.
///
/// The size of an object is measured by the strings, sequences and maps that its type requests from serde. For the
/// types of `k8s-openapi`, derived custom resources and `DynamicObject`, the result is within 10 % of the allocated
/// size. The deviation is larger for a type that shares strings or uses other maps, and for the result of a transform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Cached objects. Objects that a caller holds longer than the cache are not included, nor are the values decoded
    /// from a `Lazy`.
    pub objects: usize,
    /// Keys and identities of the objects.
    pub keys: usize,
    /// Indexes.
    pub indexes: usize,
    /// Queues of the handlers, including the last delivered states needed for later events.
    pub queues: usize,
}

impl Memory {
    /// Returns the sum of all parts.
    pub fn total(&self) -> usize {
        let Self { objects, keys, indexes, queues } = self;
        objects + keys + indexes + queues
    }
}

/// Returns the memory in bytes that `objects` take in a cache of the form `K`, without keys and indexes. Returns `None`
/// if an object cannot be decoded.
pub(crate) fn cached_bytes<K: Cacheable>(objects: &[Value], packed: bool) -> Option<usize> {
    let decoder = Decoder::new(DecodeOptions::default());
    let mut decoder = if packed { decoder.delta_compressed() } else { decoder };
    let mut bytes = 0;
    // The objects are kept until the end: a dictionary without users is dropped, and would not count.
    let mut kept = Vec::new();
    for object in objects {
        let (object, heap) = decoder.decode_with_size::<K>(&raw_object(object)?).ok()?;
        bytes += size_of::<K>() + heap;
        kept.push(object);
    }
    let dictionaries = decoder.dictionary_bytes().map_or(0, |bytes| bytes.load(Ordering::Relaxed));
    drop(kept);
    Some(bytes + dictionaries)
}

/// Returns the object as the transport delivers it, without `managedFields`.
fn raw_object(object: &Value) -> Option<RawObject> {
    let mut object = object.clone();
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("managedFields");
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let key = match metadata.get("namespace").and_then(Value::as_str) {
        Some(namespace) => ObjectKey::namespaced(namespace, text("name")),
        None => ObjectKey::cluster(text("name")),
    };
    let identity = Identity { key, uid: Uid::new(text("uid")), version: ResourceVersion::new(text("resourceVersion")) };
    let bytes = Bytes::from(object.to_string());
    Some(RawObject { identity, bytes, managed_fields: None, encoding: Encoding::Json, message: None })
}
