//! Error of a run.

use std::error::Error;

/// Any error of a run.
pub(crate) type RunError = Box<dyn Error + Send + Sync>;
