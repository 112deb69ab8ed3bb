//! Relation of a server to the checkpoint of an earlier run.

use std::sync::Arc;

/// Relation of the server to the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterMatch {
    /// The server belongs to the cluster of the checkpoint.
    Same,
    /// The cluster cannot be determined. A list is correct in either case and shows the changes.
    Unsure(Arc<str>),
    /// The server belongs to another cluster, in which a cached version may denote another state.
    Other(Arc<str>),
}
