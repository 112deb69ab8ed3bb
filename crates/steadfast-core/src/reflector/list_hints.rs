//! Facts outside the reflector that determine the method of the next list.

/// Facts at the start of a list ([`Reflector::set_list_hints`](super::Reflector::set_list_hints)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListHints {
    /// Set if responses are requested in protobuf. A streamed list then costs a real server a third of the paged list.
    /// In JSON, a streamed list costs twice as much as a paged one.
    pub protobuf: bool,
    /// Set if JSON is requested because protobuf could not be decoded. A full list then reads the affected objects
    /// again.
    pub protobuf_failed: bool,
    /// Number of cached objects.
    pub cached_objects: usize,
    /// Set if the informer's full lists contain only metadata.
    pub metadata_only: bool,
}
