//! Limits for values from the server.

/// Maximum length of a UID or version, in bytes. Real UIDs have 36 bytes and real versions at most 20, and only the
/// server creates them.
pub(crate) const MAX_IDENTIFIER_BYTES: usize = 1024;
