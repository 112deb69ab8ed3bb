//! Standard error: what is no event; and what is printed as a whole.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use crate::failure::Failure;

/// Writes a line to standard error, at once: lines of standard output could come between its parts.
pub(crate) fn say(line: impl Display) {
    // Whoever closed standard error does not want to know.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Writes `text` to standard output; whoever closed it does not want the rest.
pub(crate) fn print(text: &str) -> Result<ExitCode, Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::run(format!("standard output cannot be written to: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
