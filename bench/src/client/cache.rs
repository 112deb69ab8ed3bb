//! Interfaces of a cache and of its objects for the measurements.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use steadfast::CheckpointStats;

use crate::BenchError;
use crate::checksum::Checksum;

/// Cache of a library.
pub(super) trait ClientCache {
    /// Returns the number of objects.
    fn len(&self) -> usize;
    /// Returns the namespaces and names of all objects, in order.
    fn names(&self) -> Vec<(String, String)>;
    /// Returns `true` if the cache contains the object.
    fn has(&self, namespace: &str, name: &str) -> bool;
    /// Returns a function that looks up the n-th object. The keys of all objects are prepared in advance, in order
    /// and in the library's own form.
    fn prepared_lookup(&self) -> Box<dyn Fn(usize) -> bool + '_>;
    /// Returns a function that looks up the n-th object by its prepared key, and reads its node. It returns `true` if
    /// the object exists and has a node.
    fn prepared_node_lookup(&self) -> Box<dyn Fn(usize) -> bool + '_>;
    /// Returns the number of objects in a namespace.
    fn namespace_len(&self, namespace: &str) -> usize;
    /// Returns the number of distinct nodes of the objects.
    fn distinct_nodes(&self) -> usize;
    /// Returns the counts of the checkpoint, or `None` without a checkpoint.
    fn checkpoint_stats(&self) -> Option<CheckpointStats> {
        None
    }
    /// Returns the checksum of all objects.
    fn checksum(&self) -> Result<Checksum, BenchError>;
}

/// Access to the node of an object.
pub(super) trait HasNodeName {
    /// Returns the value of `spec.nodeName`.
    fn node(&self) -> Option<&str>;
}

impl HasNodeName for Pod {
    fn node(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref()
    }
}

impl HasNodeName for DynamicObject {
    fn node(&self) -> Option<&str> {
        self.data.get("spec")?.get("nodeName")?.as_str()
    }
}
