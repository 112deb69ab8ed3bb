//! What a decoder leaves of objects.

/// What is decoded of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DecodeOptions {
    /// Whether `metadata.managedFields` is kept. It is two fifths of a usual object, and few programs look at it.
    pub keep_managed_fields: bool,
}
