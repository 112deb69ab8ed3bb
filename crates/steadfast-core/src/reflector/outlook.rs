//! What a reflector cannot know by itself, and chooses by as it begins a list.

/// What is known as a list begins ([`Reflector::expect`](super::Reflector::expect)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Whether answers are requested in protobuf. A real server streams a list for a third of what its pages cost it
    /// then; in JSON a stream costs it twice as much as pages do.
    pub protobuf: bool,
    /// Whether JSON is requested because protobuf could not be read: what was spoilt by that is read anew by a full list.
    pub doubted: bool,
    /// How many objects are held.
    pub held: usize,
    /// Whether metadata are all that is requested in any case.
    pub metadata_only: bool,
}
