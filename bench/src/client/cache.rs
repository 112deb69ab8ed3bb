//! What the measurements know of a cache and of what is in it.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use steadfast::CheckpointCounts;

use crate::Trouble;
use crate::checksum::Checksum;

/// A cache that is kept true, as the measurements need it.
pub(super) trait Cache {
    /// How many objects are in it.
    fn len(&self) -> usize;
    /// The namespaces and names of all, in order.
    fn names(&self) -> Vec<(String, String)>;
    /// Whether an object is there.
    fn has(&self, namespace: &str, name: &str) -> bool;
    /// Says whether the object of the key at a place is there: the keys of all, in order, are made beforehand, as the library
    /// has them.
    fn by_key(&self) -> Box<dyn Fn(usize) -> bool + '_>;
    /// How many objects a namespace has.
    fn list(&self, namespace: &str) -> usize;
    /// How many nodes the objects name.
    fn nodes(&self) -> usize;
    /// What was written of it to a file, where there is one.
    fn kept(&self) -> Option<CheckpointCounts> {
        None
    }
    /// What all objects come to.
    fn checksum(&self) -> Result<Checksum, Trouble>;
}

/// What the measurements need to know of an object.
pub(super) trait Node {
    fn node(&self) -> Option<&str>;
}

impl Node for Pod {
    fn node(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref()
    }
}

impl Node for DynamicObject {
    fn node(&self) -> Option<&str> {
        self.data.get("spec")?.get("nodeName")?.as_str()
    }
}
