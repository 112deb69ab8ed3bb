//! What ends a command before its time.

/// What ends a command before its time.
pub(crate) type Trouble = Box<dyn std::error::Error + Send + Sync>;
