//! Ownership records: which process maintains the entries of a mark.

/// Validity of an ownership record after its last renewal, in seconds. An older record is taken over.
pub const OWNER_EXPIRES_SECS: u64 = 300;

/// Minimum interval between two writes of an ownership record, in seconds.
pub(crate) const OWNER_RENEW_SECS: u64 = 60;

/// Result of claiming a mark at a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// The record names this instance, or the target keeps no record.
    Ours,
    /// Another process maintains the entries of the same mark. Neither process may remove entries of the other.
    Other {
        /// ID of the other process, escaped.
        instance: String,
        /// When the record was last renewed, in seconds since 1970 by the clock of the other process.
        renewed: u64,
    },
}
