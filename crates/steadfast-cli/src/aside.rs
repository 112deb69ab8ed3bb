//! Standard error: what is no event.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a line to standard error, at once: lines of standard output could come between its parts.
pub(crate) fn say(line: impl Display) {
    // Whoever closed standard error does not want to know.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
