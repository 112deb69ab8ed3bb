//! Interfaces of a cache and of its objects for the measurements.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use steadfast::CheckpointStats;

use crate::Trouble;
use crate::checksum::Checksum;

/// Cache of a library.
pub(super) trait Cache {
    /// Returns the number of objects.
    fn len(&self) -> usize;
    /// Returns the namespaces and names of all objects, in order.
    fn names(&self) -> Vec<(String, String)>;
    /// Returns `true` if the cache contains the object.
    fn has(&self, namespace: &str, name: &str) -> bool;
    /// Returns a lookup of objects by the index of their key. The keys of all objects are prepared in order, in the
    /// form that the library uses.
    fn by_key(&self) -> Box<dyn Fn(usize) -> bool + '_>;
    /// Returns the number of objects in a namespace.
    fn list(&self, namespace: &str) -> usize;
    /// Returns the number of distinct nodes of the objects.
    fn nodes(&self) -> usize;
    /// Returns the counts of the checkpoint, if there is one.
    fn kept(&self) -> Option<CheckpointStats> {
        None
    }
    /// Returns the checksum of all objects.
    fn checksum(&self) -> Result<Checksum, Trouble>;
}

/// Properties of an object for the measurements.
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
