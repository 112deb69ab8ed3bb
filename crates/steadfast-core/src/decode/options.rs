//! Options of a decoder.

/// Parts of objects to decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DecodeOptions {
    /// Set to keep `metadata.managedFields`. They are two fifths of a typical object, and few programs read them.
    /// Defaults to `false`.
    pub keep_managed_fields: bool,
}
