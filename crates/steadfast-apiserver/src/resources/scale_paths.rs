//! Paths of the fields that `scale` reads and writes.

/// Paths of the fields of `scale` from the root of an object, such as `.spec.replicas`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    /// Path of the selector; empty if absent.
    pub(crate) selector: String,
}
