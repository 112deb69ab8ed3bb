//! What a name is: namespace and name, ordered so that a namespace lies together.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::ordmap::Sought;
use crate::text::told;

/// How much of a name is shown, in bytes: that of a Kubernetes object has 253, but nothing forces a server to see to it.
const LONGEST_TOLD: usize = 300;

/// An object's place: its namespace (none for cluster-scoped objects) and its name.
///
/// Ordered by namespace, then name. Cloning is cheap. The identity of an object is its UID, not its key:
/// a recreated object has the key of the one before.
#[derive(Clone)]
pub struct ObjectKey {
    /// The namespace, and the name right behind it.
    text: Arc<str>,
    /// How long the namespace is; [`CLUSTER`] where there is none.
    namespace: u32,
}

/// In place of a namespace's length: there is none.
const CLUSTER: u32 = u32::MAX;

/// The longest namespace and name that Kubernetes allows, together: such a key is put together on the stack.
const LONGEST: usize = 63 + 253;

impl ObjectKey {
    /// The key of `name` in `namespace`.
    pub fn namespaced(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        let (namespace, name) = (namespace.as_ref(), name.as_ref());
        // No header and no URL is as long; a namespace that were, would be cut and its rest be part of the name.
        let length = u32::try_from(namespace.len()).unwrap_or(CLUSTER).min(CLUSTER - 1);
        Self { text: joined(namespace, name), namespace: length }
    }

    /// The key of the cluster-scoped `name`.
    pub fn cluster(name: impl AsRef<str>) -> Self {
        Self { text: name.as_ref().into(), namespace: CLUSTER }
    }

    /// The namespace, none for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.parts().0
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (Option<&str>, &str) {
        match self.namespace {
            CLUSTER => (None, &self.text),
            length => {
                let (namespace, name) = self.text.split_at(length as usize);
                (Some(namespace), name)
            }
        }
    }

    /// Whether its namespace comes before `namespace`, is it, or comes after it.
    pub(crate) fn order_namespace(&self, namespace: &str) -> Ordering {
        self.bytes().namespace.cmp(&Some(namespace.as_bytes()))
    }

    /// The same as bytes, which are ordered as the text is.
    fn bytes(&self) -> KeyBytes<'_> {
        let bytes = self.text.as_bytes();
        match self.namespace {
            CLUSTER => KeyBytes { namespace: None, name: bytes },
            length => {
                let (namespace, name) = bytes.split_at(length as usize);
                KeyBytes { namespace: Some(namespace), name }
            }
        }
    }
}

/// Both, in one allocation.
fn joined(namespace: &str, name: &str) -> Arc<str> {
    let mut buffer = [0; LONGEST];
    let length = namespace.len() + name.len();
    if let Some(room) = buffer.get_mut(..length) {
        room[..namespace.len()].copy_from_slice(namespace.as_bytes());
        room[namespace.len()..].copy_from_slice(name.as_bytes());
        if let Ok(text) = std::str::from_utf8(room) {
            return text.into();
        }
    }
    [namespace, name].concat().into()
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        self.namespace == other.namespace && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
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
        if self.namespace == other.namespace && Arc::ptr_eq(&self.text, &other.text) {
            return Ordering::Equal;
        }
        self.bytes().cmp(&other.bytes())
    }
}

impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

/// A key in its parts, to look one up by without making it: it is ordered and hashes as the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KeyBytes<'a> {
    namespace: Option<&'a [u8]>,
    name: &'a [u8],
}

impl<'a> KeyBytes<'a> {
    pub(crate) fn new(namespace: Option<&'a str>, name: &'a str) -> Self {
        Self { namespace: namespace.map(str::as_bytes), name: name.as_bytes() }
    }
}

impl Hash for KeyBytes<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.namespace.map_or(usize::MAX, <[u8]>::len));
        state.write(self.namespace.unwrap_or_default());
        state.write(self.name);
    }
}

impl Sought<ObjectKey> for KeyBytes<'_> {
    fn order(&self, held: &ObjectKey) -> Ordering {
        self.cmp(&held.bytes())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (Some(namespace), name) => write!(f, "{}/{}", told(namespace, LONGEST_TOLD), told(name, LONGEST_TOLD)),
            (None, name) => f.write_str(&told(name, LONGEST_TOLD)),
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
    fn keys_are_ordered_by_namespace_then_name_wherever_one_ends_and_the_other_begins() {
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
    fn a_name_longer_than_any_is_kept_whole() {
        let long = "ü".repeat(LONGEST);
        let key = ObjectKey::namespaced("n", &long);
        assert_eq!((key.namespace(), key.name()), (Some("n"), long.as_str()));
    }
}
