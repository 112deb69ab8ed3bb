//! What a cache holds of an object, and the handle by which it is given away.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use kube::Resource;

use crate::footprint::shared;
use crate::key::ObjectKey;
use crate::record::Identity;
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// An object in one of its states, as a cache holds it: a handle that is cheap to clone and derefs to the object.
///
/// Who the object is, and in which version, is at hand without a look at the object itself, whatever is kept of it.
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

/// The object apart from who it is: that lies close together with that of others, however large the objects are.
// In this order, so that what a search looks at lies beside the counts that a clone changes.
#[repr(C)]
struct State<K> {
    held: Held<K>,
    identity: Identity,
}

enum Held<K> {
    Known {
        /// What the object takes up as it is kept, in bytes; of one that is larger than 4 GB, that. Here, where there is room
        /// for it beside the variant.
        bytes: u32,
        object: Arc<K>,
    },
    /// In an [`Entry`] alone: nobody is given the handle of such a state.
    Tainted { last: Option<Object<K>> },
}

/// An object that was decoded, and how many bytes it takes up.
pub struct Weighed<K> {
    /// The object.
    pub object: Arc<K>,
    /// Itself with the counts of its [`Arc`], and what it holds beyond that as far as that is known.
    pub bytes: usize,
}

impl<K> Weighed<K> {
    /// An object that holds `beyond` bytes beyond itself.
    pub fn new(object: K, beyond: usize) -> Self {
        Self { object: Arc::new(object), bytes: shared(size_of::<K>()) + beyond }
    }
}

/// Of which is known what it is itself.
impl<K> From<Arc<K>> for Weighed<K> {
    fn from(object: Arc<K>) -> Self {
        Self { object, bytes: shared(size_of::<K>()) }
    }
}

impl<K> From<Weighed<K>> for Held<K> {
    fn from(Weighed { object, bytes }: Weighed<K>) -> Self {
        Self::Known { bytes: u32::try_from(bytes).unwrap_or(u32::MAX), object }
    }
}

impl<K> Object<K> {
    /// The object of this identity.
    pub fn new(identity: Identity, object: Arc<K>) -> Self {
        Self::weighed(identity, Weighed::from(object))
    }

    /// The same, of which it is known what it takes up.
    pub(crate) fn weighed(identity: Identity, object: Weighed<K>) -> Self {
        Self(Arc::new(State { held: object.into(), identity }))
    }

    /// What the object takes up as it is kept, in bytes: itself, and what it holds beyond that as far as that is known.
    pub(crate) fn bytes(&self) -> usize {
        match &self.0.held {
            Held::Known { bytes, .. } => *bytes as usize,
            Held::Tainted { last } => last.as_ref().map_or(0, Self::bytes),
        }
    }

    /// Who the object is, and in which of its versions.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Where the object is found: its namespace and its name.
    pub fn key(&self) -> &ObjectKey {
        &self.0.identity.key
    }

    /// The version of this state.
    pub fn version(&self) -> &ResourceVersion {
        &self.0.identity.version
    }

    /// The object without the handle, for whoever needs an [`Arc`] of it.
    pub fn arc(&self) -> &Arc<K> {
        match &self.0.held {
            Held::Known { object, .. } => object,
            Held::Tainted { .. } => unreachable!("nobody is given the handle of what could not be decoded"),
        }
    }

    /// Whether both are one and the same, seen without a look at the object.
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

// By hand: a derive would ask for clonable objects.
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

/// The handle of an object by what its metadata say of it: for tests of what takes handles.
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
            "" => ResourceVersion::made_of(&[]),
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

// Who an object is, and nothing else of it: it may be a Secret.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", short_type_name::<K>(), self.key(), self.version())
    }
}

/// A type's name without the paths in it: `Pod`, `PartialObjectMeta<Pod>`.
fn short_type_name<K>() -> String {
    let full = std::any::type_name::<K>();
    let ends = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
    full.split_inclusive(ends).map(|path| path.rsplit("::").next().unwrap_or(path)).collect()
}

/// What a cache holds under a name, decodable or not. Cheap to clone.
// One pointer, so that the nodes of a store, which edits copy, are small.
pub struct Entry<K>(Object<K>);

impl<K> Entry<K> {
    /// What an entry takes beside its key and the object, in bytes.
    pub(crate) const FOOTPRINT: usize = shared(size_of::<State<K>>());

    /// The entry of an object.
    #[doc(hidden)]
    pub fn known(object: Object<K>) -> Self {
        Self(object)
    }

    /// The entry of an object whose newest state could not be decoded, and the last one that could.
    #[doc(hidden)]
    pub fn tainted(identity: Identity, last: Option<Object<K>>) -> Self {
        Self(Object(Arc::new(State { held: Held::Tainted { last }, identity })))
    }

    /// What it takes with its key and the object, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        Self::FOOTPRINT + self.key().footprint() + self.bytes()
    }

    /// What is kept of the object takes up, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Who the object is, in the version of its newest state, decodable or not.
    pub fn identity(&self) -> &Identity {
        self.0.identity()
    }

    /// Where the object is found.
    pub fn key(&self) -> &ObjectKey {
        self.0.key()
    }

    /// What makes it this object and not the one that had its name before.
    pub fn uid(&self) -> &Uid {
        &self.identity().uid
    }

    /// The version of its newest state, decodable or not.
    pub fn version(&self) -> &ResourceVersion {
        self.0.version()
    }

    /// The object in its newest state; none where that could not be decoded.
    pub fn object(&self) -> Option<&Object<K>> {
        (!self.is_tainted()).then_some(&self.0)
    }

    /// The object in the last state that could be decoded; none while there has been no such state.
    pub fn last(&self) -> Option<&Object<K>> {
        match &self.0.0.held {
            Held::Known { .. } => Some(&self.0),
            Held::Tainted { last } => last.as_ref(),
        }
    }

    /// Whether the newest state could not be decoded.
    pub fn is_tainted(&self) -> bool {
        matches!(self.0.0.held, Held::Tainted { .. })
    }

    /// Whether its newest state was given away, and could not be decoded when it was read: it will not fit another time.
    pub(crate) fn is_unfit(&self) -> bool {
        matches!(&self.0.0.held, Held::Tainted { last: Some(last) } if last.version() == self.version())
    }

    /// Who the object is, to be changed; none where others hold this entry, for whom it never changes.
    pub(crate) fn identity_mut(&mut self) -> Option<&mut Identity> {
        Arc::get_mut(&mut self.0.0).map(|state| &mut state.identity)
    }

    /// Says what the state is that was not decoded yet, in an entry that nobody else holds.
    pub(crate) fn fill(&mut self, object: Weighed<K>) {
        match Arc::get_mut(&mut self.0.0) {
            Some(state) => state.held = object.into(),
            None => *self = Self::known(Object::weighed(self.identity().clone(), object)),
        }
    }

    /// Whether both are one and the same, seen without a look at what is in them.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }
}

// By hand: a derive would ask for clonable objects.
impl<K> Clone for Entry<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

// Who the object is, and nothing else of it: it may be a Secret.
impl<K> fmt::Debug for Entry<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.0, if self.is_tainted() { ", not decodable" } else { "" })
    }
}
