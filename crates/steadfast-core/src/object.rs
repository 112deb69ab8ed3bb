//! Cached state of an object, and the handle through which callers receive it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use kube::Resource;

use crate::decode::{Cacheable, DecodeError, Decoder, RawObject};
use crate::footprint::shared;
use crate::key::ObjectKey;
use crate::on_demand::{DecodedUse, OnDemand, decoded_footprint};
use crate::record::Identity;
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// State of a cached object: a handle that is cheap to clone and dereferences to the object.
///
/// Identity and version are available without decoding the object, for every cached form.
///
/// ```
/// # use k8s_openapi::api::core::v1::Pod;
/// # use steadfast_core::Object;
/// fn describe(pod: &Object<Pod>) -> String {
///     let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
///     format!("{} at version {} on {}", pod.key(), pod.version(), node.unwrap_or("no node"))
/// }
/// # let mut pod = Pod::default();
/// # (pod.metadata.name, pod.metadata.resource_version) = (Some("web-0".into()), Some("7".into()));
/// assert_eq!(describe(&pod.into()), "web-0 at version 7 on no node");
/// ```
pub struct Object<K>(Arc<State<K>>);

/// State of an object. The object itself is a separate allocation, so that the identities of many objects lie close
/// together in memory.
// This order of the fields places the data that a lookup reads next to the counters that a clone changes.
#[repr(C)]
struct State<K> {
    held: CachedValue<K>,
    identity: Identity,
}

enum CachedValue<K> {
    Known {
        /// Size of the cached object in bytes, at most 4 GB. Stored here because the space next to the variant is
        /// otherwise unused.
        bytes: u32,
        object: Arc<K>,
    },
    /// Encoded, and decoded by readers. Boxed, so that entries of all caches have one small size.
    OnDemand(Box<OnDemand<K>>),
    /// Exists only inside an [`Entry`]; no caller receives a handle of such a state.
    Tainted { last: Option<Object<K>> },
}

/// Decoded object with its size in bytes.
pub struct WithSize<K> {
    /// Decoded object.
    pub object: Arc<K>,
    /// Size in bytes: the object with the counters of its [`Arc`], and its heap memory as far as known.
    pub bytes: usize,
    /// Encoded form to cache instead of the object, if any.
    on_demand: Option<Box<OnDemand<K>>>,
}

impl<K: Cacheable> WithSize<K> {
    /// Decodes `raw` for a cache, with the encoded form if the object is cached encoded.
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not fit the form.
    pub fn decode(raw: &RawObject, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        let (object, beyond) = decoder.decode_with_size(raw)?;
        let object = Self::new(object, beyond);
        let on_demand = K::on_demand(raw, object.bytes, decoder);
        Ok(object.cached_as(on_demand))
    }
}

impl<K> WithSize<K> {
    /// Creates the value for an object whose heap memory is `beyond` bytes.
    pub fn new(object: K, beyond: usize) -> Self {
        Self { object: Arc::new(object), bytes: decoded_footprint::<K>(beyond), on_demand: None }
    }

    /// Sets the encoded form of the object, which is cached instead of the object.
    #[must_use]
    pub fn cached_as(self, on_demand: Option<OnDemand<K>>) -> Self {
        Self { on_demand: on_demand.map(Box::new), ..self }
    }

    /// Returns whether the object is cached encoded.
    pub fn is_on_demand(&self) -> bool {
        self.on_demand.is_some()
    }

    /// Keeps the decoded object next to its encoded form. It counts as unread until a reader uses it.
    pub fn keep_unread(&self) {
        if let Some(on_demand) = &self.on_demand {
            on_demand.set_unread(self.object.clone());
        }
    }

    /// Returns the decoded object if the cache does not contain it.
    pub(crate) fn uncached(&self) -> Option<Arc<K>> {
        self.on_demand.as_ref().map(|_| self.object.clone())
    }

    /// Keeps the decoded object next to its encoded form. [`Entry::report_decoded`] must follow once the entry is in the
    /// cache.
    pub(crate) fn keep_decoded(&self) {
        if let Some(on_demand) = &self.on_demand {
            on_demand.set(self.object.clone());
        }
    }
}

/// Counts only the size of the object itself.
impl<K> From<Arc<K>> for WithSize<K> {
    fn from(object: Arc<K>) -> Self {
        Self { object, bytes: decoded_footprint::<K>(0), on_demand: None }
    }
}

impl<K> From<WithSize<K>> for CachedValue<K> {
    fn from(WithSize { object, bytes, on_demand }: WithSize<K>) -> Self {
        match on_demand {
            Some(on_demand) => Self::OnDemand(on_demand),
            None => Self::Known { bytes: u32::try_from(bytes).unwrap_or(u32::MAX), object },
        }
    }
}

impl<K> Object<K> {
    /// Creates a handle with the given identity.
    pub fn new(identity: Identity, object: Arc<K>) -> Self {
        Self::with_size(identity, WithSize::from(object))
    }

    /// Creates a handle with the given identity, for an object of known size.
    pub(crate) fn with_size(identity: Identity, object: WithSize<K>) -> Self {
        Self(Arc::new(State { held: object.into(), identity }))
    }

    /// Returns the size of the cached object in bytes: the object itself, and its heap memory as far as known.
    pub(crate) fn bytes(&self) -> usize {
        match &self.0.held {
            CachedValue::Known { bytes, .. } => *bytes as usize,
            CachedValue::OnDemand(object) => object.footprint(),
            CachedValue::Tainted { last } => last.as_ref().map_or(0, Self::bytes),
        }
    }

    /// Returns the identity of the object with the version of this state.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Returns the key of the object: its namespace and name.
    pub fn key(&self) -> &ObjectKey {
        &self.0.identity.key
    }

    /// Returns the version of this state.
    pub fn version(&self) -> &ResourceVersion {
        &self.0.identity.version
    }

    /// Returns the object without the handle, for callers that need an [`Arc`].
    ///
    /// A cache may contain only the encoded object. The first access then decodes it.
    pub fn arc(&self) -> &Arc<K> {
        match &self.0.held {
            CachedValue::Known { object, .. } => object,
            CachedValue::OnDemand(object) => object.get(&self.0.identity),
            CachedValue::Tainted { .. } => unreachable!("no caller has a handle of an undecodable state"),
        }
    }

    /// Calls `read` with the object. An object that is not decoded is decoded for this call only.
    pub(crate) fn decoded_for<T>(&self, read: impl FnOnce(&K) -> T) -> T {
        match &self.0.held {
            CachedValue::OnDemand(object) => object.read(&self.0.identity, read),
            _ => read(self.arc()),
        }
    }

    /// Returns a handle for a single reader. If the object is not decoded, its decoded form belongs to this handle and
    /// is dropped with it.
    ///
    /// An associated function, since a method could hide one of `K`.
    #[doc(hidden)]
    #[must_use]
    pub fn private(this: Self) -> Self {
        match &this.0.held {
            CachedValue::OnDemand(object) if !object.is_decoded() => {
                let held = CachedValue::OnDemand(Box::new(object.private()));
                Self(Arc::new(State { held, identity: this.0.identity.clone() }))
            }
            _ => this,
        }
    }

    /// Returns the labels of the object, without decoding the other fields.
    pub(crate) fn cached_labels(&self) -> Option<Cow<'_, BTreeMap<String, String>>>
    where
        K: Cacheable,
    {
        match &self.0.held {
            CachedValue::OnDemand(object) if !object.is_decoded() => match object.labels() {
                Ok(labels) => labels.map(Cow::Owned),
                // The type reads its labels from another field.
                Err(_) => object.read(&self.0.identity, |object| object.labels().map(Cow::into_owned)).map(Cow::Owned),
            },
            _ => K::labels(self),
        }
    }

    /// Returns whether both handles refer to one state, without a comparison of the objects.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<K> Deref for Object<K> {
    type Target = K;

    fn deref(&self) -> &K {
        self.arc()
    }
}

impl<K> AsRef<K> for Object<K> {
    fn as_ref(&self) -> &K {
        self
    }
}

// Not derived: a derive would require clonable objects.
impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> From<Object<K>> for Arc<K> {
    fn from(object: Object<K>) -> Self {
        object.arc().clone()
    }
}

/// Creates a handle with the identity from the object's metadata, for tests of code that takes handles.
impl<K: Resource> From<K> for Object<K> {
    fn from(object: K) -> Self {
        let meta = object.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        let key = match meta.namespace.as_deref() {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        };
        let uid = match meta.uid.as_deref().unwrap_or_default() {
            "" => Uid::by_name(&key),
            uid => Uid::from(uid),
        };
        let version = match meta.resource_version.as_deref().unwrap_or_default() {
            "" => ResourceVersion::substitute_for(&[]),
            version => ResourceVersion::from(version),
        };
        Self::new(Identity { key, uid, version }, Arc::new(object))
    }
}

impl<K: PartialEq> PartialEq for Object<K> {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || **self == **other
    }
}

impl<K: Eq> Eq for Object<K> {}

impl<K: fmt::Display> fmt::Display for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        K::fmt(self, f)
    }
}

// Prints only the identity of the object, since its content may be a Secret.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", short_type_name::<K>(), self.key(), self.version())
    }
}

/// Returns the name of a type without paths: `Pod`, `PartialObjectMeta<Pod>`.
fn short_type_name<K>() -> String {
    let full = std::any::type_name::<K>();
    let ends = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
    full.split_inclusive(ends).map(|path| path.rsplit("::").next().unwrap_or(path)).collect()
}

/// Cache entry of a name, decodable or not. Cheap to clone.
// A single pointer keeps the nodes of a store small. Edits copy these nodes.
pub struct Entry<K>(Object<K>);

impl<K> Entry<K> {
    /// Memory of an entry without its key and the object, in bytes.
    pub(crate) const FOOTPRINT: usize = shared(size_of::<State<K>>());

    /// Creates the entry of an object.
    #[doc(hidden)]
    pub fn known(object: Object<K>) -> Self {
        Self(object)
    }

    /// Creates the entry of an object whose newest state could not be decoded. `last` is its last decodable state.
    #[doc(hidden)]
    pub fn tainted(identity: Identity, last: Option<Object<K>>) -> Self {
        Self(Object(Arc::new(State { held: CachedValue::Tainted { last }, identity })))
    }

    /// Returns the memory of the entry with its key and the object, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        Self::FOOTPRINT + self.key().footprint() + self.bytes()
    }

    /// Returns the size of the cached object in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Returns the identity of the object, with the version of its newest state, decodable or not.
    pub fn identity(&self) -> &Identity {
        self.0.identity()
    }

    /// Returns the key of the object.
    pub fn key(&self) -> &ObjectKey {
        self.0.key()
    }

    /// Returns the UID, which distinguishes the object from earlier ones of the same name.
    pub fn uid(&self) -> &Uid {
        &self.identity().uid
    }

    /// Returns the version of the newest state, decodable or not.
    pub fn version(&self) -> &ResourceVersion {
        self.0.version()
    }

    /// Returns the newest state of the object; `None` if it could not be decoded.
    pub fn object(&self) -> Option<&Object<K>> {
        (!self.is_tainted()).then_some(&self.0)
    }

    /// Returns the last decodable state of the object; `None` if no state was decodable.
    pub fn last(&self) -> Option<&Object<K>> {
        match &self.0.0.held {
            CachedValue::Known { .. } | CachedValue::OnDemand(_) => Some(&self.0),
            CachedValue::Tainted { last } => last.as_ref(),
        }
    }

    /// Returns whether the newest state could not be decoded.
    pub fn is_tainted(&self) -> bool {
        matches!(self.0.0.held, CachedValue::Tainted { .. })
    }

    /// Returns whether the newest state was delivered before a read found that it cannot be decoded. Another attempt
    /// would fail in the same way.
    pub(crate) fn is_delivered_undecodable(&self) -> bool {
        matches!(&self.0.0.held, CachedValue::Tainted { last: Some(last) } if last.version() == self.version())
    }

    /// Returns a handle of `object`, the decoded form of this state.
    pub(crate) fn with_decoded(&self, object: Arc<K>) -> Object<K> {
        let bytes = match &self.0.0.held {
            CachedValue::OnDemand(held) => held.decoded_bytes(),
            _ => self.bytes(),
        };
        Object::with_size(self.identity().clone(), WithSize { object, bytes, on_demand: None })
    }

    /// Reports a decoded form that was kept before the entry was in the cache.
    pub(crate) fn report_decoded(&self) {
        if let CachedValue::OnDemand(held) = &self.0.0.held {
            held.report(self.identity());
        }
    }

    /// Returns the use of the decoded form since the last call. Returns `None` if the entry has no encoded form, or no
    /// decoded one.
    pub(crate) fn sweep_decoded(&self) -> Option<DecodedUse> {
        match &self.0.0.held {
            CachedValue::OnDemand(held) => held.sweep(),
            CachedValue::Tainted { last } => Self(last.clone()?).sweep_decoded(),
            CachedValue::Known { .. } => None,
        }
    }

    /// Returns a copy of the entry without the decoded form; `None` if the entry has no encoded or no decoded form.
    pub(crate) fn without_decoded(&self) -> Option<Self> {
        match &self.0.0.held {
            CachedValue::OnDemand(held) if held.is_decoded() => {
                let held = CachedValue::OnDemand(Box::new(held.without_decoded()));
                Some(Self(Object(Arc::new(State { held, identity: self.identity().clone() }))))
            }
            CachedValue::Tainted { last: Some(last) } => {
                let Self(last) = Self(last.clone()).without_decoded()?;
                Some(Self::tainted(self.identity().clone(), Some(last)))
            }
            _ => None,
        }
    }

    /// Returns a mutable reference to the identity; `None` if another handle shares the entry.
    pub(crate) fn identity_mut(&mut self) -> Option<&mut Identity> {
        Arc::get_mut(&mut self.0.0).map(|state| &mut state.identity)
    }

    /// Sets the decoded state of an entry that was not decoded yet and is not shared.
    pub(crate) fn fill(&mut self, object: WithSize<K>) {
        // An unshared entry is filled in place. A shared entry must stay unchanged.
        match Arc::get_mut(&mut self.0.0) {
            Some(state) => state.held = object.into(),
            None => *self = Self::known(Object::with_size(self.identity().clone(), object)),
        }
    }

    /// Returns whether both handles refer to one entry, without a comparison of the content.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }
}

// Not derived: a derive would require clonable objects.
impl<K> Clone for Entry<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

// Prints only the identity of the object, since its content may be a Secret.
impl<K> fmt::Debug for Entry<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.0, if self.is_tainted() { ", not decodable" } else { "" })
    }
}
