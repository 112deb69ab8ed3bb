//! What an informer takes up in memory.

/// What an informer takes up, in bytes, as an allocator is asked for it; what an allocator adds for itself is not counted.
///
/// What a type does with memory is seen where it asks serde for strings, sequences and maps, as the types of `k8s-openapi`,
/// derived custom resources and `DynamicObject` do: for those it is within 10 % of what is allocated. A type that shares
/// its strings, or has other kinds of maps, takes up less or more, and so does what a transform leaves or adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The objects, as they are kept. An object that somebody holds longer than the cache is not among them, nor is what
    /// a `Lazy` was decoded to.
    pub objects: usize,
    /// Who each object is, and what it is found by.
    pub keys: usize,
    /// The indexes.
    pub indexes: usize,
    /// What waits for handlers, with the states that they have seen, or are to be shown the end of.
    pub queues: usize,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> usize {
        let Self { objects, keys, indexes, queues } = self;
        objects + keys + indexes + queues
    }
}
