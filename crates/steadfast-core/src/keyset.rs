//! Set of keys that is cheap to clone.

use std::fmt;

use crate::key::ObjectKey;
use crate::ordmap::OrdMap;

/// Ordered set of keys. A clone takes O(1), since each publication contains a clone.
#[derive(Clone, Default)]
pub struct KeySet(OrdMap<ObjectKey, ()>);

impl KeySet {
    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.iter().map(|(key, ())| key)
    }

    /// Returns whether the set contains `key`.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.0.get(key).is_some()
    }

    /// Returns whether both sets share their memory, without a comparison of keys.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// Returns the memory in bytes, without the keys, which are shared with the objects.
    pub(crate) fn footprint(&self) -> usize {
        self.0.footprint(|()| 0)
    }

    /// Adds or removes `key`. A call without an effect copies nothing.
    pub(crate) fn set(&mut self, key: &ObjectKey, is_in: bool) {
        // Without a change, readers continue to share the map.
        if is_in == self.contains(key) {
            return;
        }
        if is_in {
            self.0.insert(key.clone(), ());
        } else {
            self.0.remove(key);
        }
    }
}

impl FromIterator<ObjectKey> for KeySet {
    fn from_iter<I: IntoIterator<Item = ObjectKey>>(keys: I) -> Self {
        let mut set = Self::default();
        keys.into_iter().for_each(|key| set.set(&key, true));
        set
    }
}

impl PartialEq for KeySet {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for KeySet {}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
