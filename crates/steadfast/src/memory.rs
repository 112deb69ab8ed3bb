//! Memory use of an informer.

/// Memory use of an informer in bytes, as requested from the allocator, without the allocator's overhead.
///
/// The size of an object is measured by the strings, sequences and maps that its type requests from serde. For the
/// types of `k8s-openapi`, derived custom resources and `DynamicObject`, the result is within 10 % of the allocated
/// size. The deviation is larger for a type that shares strings or uses other maps, and for the result of a transform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Cached objects. Objects that a caller holds longer than the cache are not included, nor are the values decoded
    /// from a `Lazy`.
    pub objects: usize,
    /// Keys and identities of the objects.
    pub keys: usize,
    /// Indexes.
    pub indexes: usize,
    /// Queues of the handlers, including the last delivered states needed for later events.
    pub queues: usize,
}

impl Memory {
    /// Returns the sum of all parts.
    pub fn total(&self) -> usize {
        let Self { objects, keys, indexes, queues } = self;
        objects + keys + indexes + queues
    }
}
