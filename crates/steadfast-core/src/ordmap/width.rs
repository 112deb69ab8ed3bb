//! Width of the tree.

/// Maximum number of entries in a leaf and of children in a node. Smaller nodes are copied faster, larger ones are
/// searched faster.
pub(super) const MAX_NODE_LENGTH: usize = 32;
