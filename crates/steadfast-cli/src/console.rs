//! Output outside the event stream: lines on standard error, and whole documents on standard output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use crate::failure::Failure;

/// Writes one line to standard error.
pub(crate) fn report(line: impl Display) {
    // The line is written by one call: lines of standard output must not split it. A closed standard error is ignored:
    // no reader is left.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Writes `text` to standard output. A closed pipe counts as success, since no reader is left.
pub(crate) fn print(text: &str) -> Result<ExitCode, Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::run(format!("standard output cannot be written to: {error}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
