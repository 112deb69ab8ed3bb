//! How long what a server makes may be.

/// The longest UID or version that is taken for one, in bytes: a server's have 36 and 20, and both are for it alone to make.
pub(crate) const LONGEST_MARK: usize = 1024;
