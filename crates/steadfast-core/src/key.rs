//! Object keys: namespace and name, ordered so that a namespace is contiguous.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::short::ShortText;
use crate::text::printable;

/// Maximum length of a name in messages, in bytes. Kubernetes limits names to 253 bytes, but another server may not.
const MAX_PRINTED_BYTES: usize = 300;

/// Key of an object: its namespace (`None` for cluster-scoped objects) and its name.
///
/// Keys are ordered by namespace, then by name. A clone is cheap: nearly all keys are stored inline. The identity of an
/// object is its UID and not its key: a recreated object has the key of its predecessor.
#[derive(Clone)]
pub struct ObjectKey {
    /// Namespace, directly followed by the name. The text is inline, so that a comparison needs no further memory
    /// access.
    text: ShortText<INLINE_BYTES>,
    /// Length of the namespace; [`CLUSTER`] for a cluster-scoped object.
    namespace_length: u32,
    /// Hash of both parts, computed once since keys are looked up repeatedly.
    hash: u32,
}

/// Value that replaces the namespace's length in the keys of cluster-scoped objects.
const CLUSTER: u32 = u32::MAX;

/// Length that a namespace and the name of a Deployment's pod almost never exceed, in bytes.
const INLINE_BYTES: usize = 54;

impl ObjectKey {
    /// Creates the key of `name` in `namespace`.
    pub fn namespaced(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        let (namespace, name) = (namespace.as_ref(), name.as_ref());
        // No server returns a namespace of 4 GB. A longer namespace would be cut, and its rest would become part of the
        // name.
        let length = u32::try_from(namespace.len()).unwrap_or(CLUSTER).min(CLUSTER - 1);
        let text = ShortText::joined(namespace, name);
        let hash = KeyBytes::of(text.as_bytes(), length).hash();
        Self { text, namespace_length: length, hash }
    }

    /// Creates the key of the cluster-scoped `name`.
    pub fn cluster(name: impl AsRef<str>) -> Self {
        let name = name.as_ref();
        Self { text: name.into(), namespace_length: CLUSTER, hash: KeyBytes::new(None, name).hash() }
    }

    /// Returns the namespace; `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.parts().0
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (Option<&str>, &str) {
        let text = self.text.as_str();
        match self.namespace_length {
            CLUSTER => (None, text),
            length => {
                let (namespace, name) = text.split_at(length as usize);
                (Some(namespace), name)
            }
        }
    }

    /// Returns the order of the key's namespace relative to `namespace`.
    pub(crate) fn order_namespace(&self, namespace: &str) -> Ordering {
        self.bytes().namespace.cmp(&Some(namespace.as_bytes()))
    }

    /// Returns the hash. Equal keys have equal hashes; different keys have different hashes with very high probability,
    /// unless they were chosen to collide.
    pub(crate) fn hash(&self) -> u32 {
        self.hash
    }

    /// Returns the parts of the key as bytes, which compare like the keys.
    pub(crate) fn bytes(&self) -> KeyBytes<'_> {
        KeyBytes::of(self.text.as_bytes(), self.namespace_length)
    }

    /// Returns the memory of the text beyond the key itself, in bytes.
    pub(crate) fn footprint(&self) -> usize {
        self.text.footprint()
    }
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        // Hashes of different keys almost always differ, so texts are rarely compared.
        (self.hash, self.namespace_length) == (other.hash, other.namespace_length) && self.text == other.text
    }
}

impl Eq for ObjectKey {}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        // A check for equality is cheaper than an ordering, and most comparisons are with an equal key.
        if self == other { Ordering::Equal } else { self.bytes().cmp(&other.bytes()) }
    }
}

impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.namespace_length, &self.text).hash(state);
    }
}

/// Key in parts, for lookups without an allocation. It has the order and the hash of the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyBytes<'a> {
    namespace: Option<&'a [u8]>,
    name: &'a [u8],
}

impl<'a> KeyBytes<'a> {
    pub(crate) fn new(namespace: Option<&'a str>, name: &'a str) -> Self {
        Self { namespace: namespace.map(str::as_bytes), name: name.as_bytes() }
    }

    /// Splits the text of a key.
    #[inline]
    fn of(text: &'a [u8], namespace_length: u32) -> Self {
        match namespace_length {
            CLUSTER => Self { namespace: None, name: text },
            length => {
                let (namespace, name) = text.split_at(length as usize);
                Self { namespace: Some(namespace), name }
            }
        }
    }

    /// Returns the value of [`ObjectKey::hash`].
    pub(crate) fn hash(&self) -> u32 {
        // The start value distinguishes a missing namespace from an empty one.
        let namespace_hash = self.namespace.map_or(1, |namespace| add_to_hash(0, namespace));
        (add_to_hash(namespace_hash, self.name) >> 32) as u32
    }
}

/// Multiplies and folds both halves of the product, so that each result bit depends on all bits of both factors. This
/// is the function of wyhash, without a seed.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// Adds a text to a hash, eight bytes at a time. The last eight bytes overlap the previous ones.
fn add_to_hash(mut hash: u64, text: &[u8]) -> u64 {
    // Odd constants without a pattern: the golden ratio, and a constant of xxHash.
    const WORD_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    const LAST_WORD_FACTOR: u64 = 0xc2b2_ae3d_27d4_eb4f;
    if let Some(last) = text.last_chunk::<8>() {
        for word in text[..text.len() - 1].as_chunks::<8>().0 {
            hash = mix(hash ^ u64::from_le_bytes(*word), WORD_FACTOR);
        }
        return mix(hash ^ u64::from_le_bytes(*last), LAST_WORD_FACTOR ^ text.len() as u64);
    }
    let short = text.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    mix(hash ^ short, LAST_WORD_FACTOR ^ text.len() as u64)
}

/// Error for a text that is not the key of an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not the key of an object: give it a name, or a namespace and a name as in \"default/web\"")]
pub struct InvalidKey {
    text: String,
}

/// Parses `namespace/name`, or the `name` of a cluster-scoped object, as client-go's `SplitMetaNamespaceKey` does.
///
/// # Errors
///
/// Returns an error if a part is empty, or if the text has more than two parts.
///
/// ```
/// use steadfast_core::ObjectKey;
///
/// assert_eq!("default/web".parse(), Ok(ObjectKey::namespaced("default", "web")));
/// assert_eq!("node-1".parse(), Ok(ObjectKey::cluster("node-1")));
/// assert!("default/".parse::<ObjectKey>().is_err());
/// ```
impl FromStr for ObjectKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(name), None, None) if !name.is_empty() => Ok(Self::cluster(name)),
            (Some(namespace), Some(name), None) if !namespace.is_empty() && !name.is_empty() => {
                Ok(Self::namespaced(namespace, name))
            }
            _ => Err(InvalidKey { text: printable(text, MAX_PRINTED_BYTES).to_string() }),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (Some(namespace), name) => {
                write!(f, "{}/{}", printable(namespace, MAX_PRINTED_BYTES), printable(name, MAX_PRINTED_BYTES))
            }
            (None, name) => f.write_str(&printable(name, MAX_PRINTED_BYTES)),
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_by_namespace_then_name() {
        let keys = [
            ObjectKey::cluster("ab"),
            ObjectKey::namespaced("", "ab"),
            ObjectKey::namespaced("a", "b"),
            ObjectKey::namespaced("a", "bb"),
            ObjectKey::namespaced("a-b", "a"),
            ObjectKey::namespaced("ab", ""),
        ];
        assert!(keys.is_sorted_by(|a, b| a < b && a != b), "{keys:?}");
        let parts = keys.each_ref().map(|key| (key.namespace(), key.name()));
        assert_eq!(
            parts,
            [(None, "ab"), (Some(""), "ab"), (Some("a"), "b"), (Some("a"), "bb"), (Some("a-b"), "a"), (Some("ab"), "")]
        );
    }

    #[test]
    fn displayed_key_parses_unchanged() {
        for key in [ObjectKey::cluster("node-1"), ObjectKey::namespaced("default", "web")] {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        for text in ["", "/", "/web", "default/", "a/b/c", "a//b"] {
            let error = text.parse::<ObjectKey>().expect_err("not a key");
            assert!(error.to_string().starts_with(&format!("{text:?} is not the key of an object: ")), "{error}");
        }
    }

    #[test]
    fn overlong_name_is_kept_complete() {
        for length in [INLINE_BYTES / 2 - 1, INLINE_BYTES / 2, 253] {
            let long = "ü".repeat(length);
            let key = ObjectKey::namespaced("n", &long);
            assert_eq!((key.namespace(), key.name()), (Some("n"), long.as_str()));
            assert_eq!(key, ObjectKey::namespaced("n", &long));
            assert_ne!(key, ObjectKey::namespaced("n", &long[2..]));
        }
    }
}
