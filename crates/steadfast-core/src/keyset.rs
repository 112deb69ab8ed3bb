//! A set of keys that costs nothing to hand on.

use std::fmt;

use crate::key::ObjectKey;
use crate::ordmap::OrdMap;

/// A set of keys, in order, cloned in O(1): what comes with every publication must not cost its size each time.
#[derive(Clone, Default)]
pub struct KeySet(OrdMap<ObjectKey, ()>);

impl KeySet {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.iter().map(|(key, ())| key)
    }

    /// Whether `key` is one of them.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.0.get(key).is_some()
    }

    /// Whether both are one and the same, seen without looking at any key.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }

    /// What it takes, in bytes; the keys themselves are those of the objects.
    pub(crate) fn footprint(&self) -> usize {
        self.0.footprint(|()| 0)
    }

    /// Puts `key` in or takes it out. What changes nothing copies nothing.
    pub(crate) fn set(&mut self, key: &ObjectKey, is_in: bool) {
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
