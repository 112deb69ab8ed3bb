//! Versions of the objects of one stream, by a hash of their names.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

use crate::message::ObservedObject;

/// Hash of namespace and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NameHash(u64);

impl NameHash {
    /// Returns the hash of an object. The seed is unknown to tenants, so that no tenant can choose names with equal hashes.
    pub(crate) fn new(seed: u64, object: &ObservedObject) -> Self {
        let mut hasher = DefaultHasher::new();
        (seed, &object.namespace, &object.name).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Hasher of values that are hashes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unchanged(u64);

impl Hasher for Unchanged {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a NameHash is one u64");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Map from names to versions: 17 bytes an object, at a load of at most 7/8.
pub(crate) type VersionTable = HashMap<NameHash, u64, BuildHasherDefault<Unchanged>>;
