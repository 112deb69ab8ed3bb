//! Limits for values from the server.

/// Maximum length of a UID or version, in bytes. A real server's have 36 and 20 bytes, and only the server creates
/// them.
pub(crate) const LONGEST_MARK: usize = 1024;
