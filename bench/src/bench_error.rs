//! The error type of commands.

/// Error that ends a command early.
pub(crate) type BenchError = Box<dyn std::error::Error + Send + Sync>;
