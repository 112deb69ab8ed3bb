//! How wide the tree is.

/// The most entries of a leaf and children of a node: few are copied sooner, many found sooner.
pub(super) const MOST: usize = 32;
