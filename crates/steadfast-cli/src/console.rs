//! Output outside the event stream: lines on standard error, whole documents on standard output, and the status line of
//! a terminal.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use parking_lot::Mutex;

use crate::failure::Failure;

/// Moves the cursor to the start of the row, and erases the row.
const ERASE_ROW: &str = "\r\x1b[K";

/// Status line in the last row of the terminal. The lock keeps changes of the status line and lines on standard error
/// from interleaving.
static STATUS: Mutex<Status> = Mutex::new(Status::Disabled);

enum Status {
    Disabled,
    /// No status line is in the last row.
    Hidden,
    Shown(String),
}

/// Writes one line to standard error, above the status line.
pub(crate) fn report(line: impl Display) {
    let status = STATUS.lock();
    // The line is written by one call: lines of standard output must not split it. A closed standard error is ignored:
    // no reader is left.
    let write = |text: &str| drop(io::stderr().write_all(text.as_bytes()));
    match &*status {
        Status::Disabled | Status::Hidden => write(&format!("{line}\n")),
        Status::Shown(text) => {
            write_status(ERASE_ROW);
            write(&format!("{line}\n"));
            write_status(text);
        }
    }
}

/// Enables the status line until the guard is dropped. Standard output must be a terminal.
pub(crate) fn enable_status() -> StatusGuard {
    *STATUS.lock() = Status::Hidden;
    StatusGuard(())
}

/// Erases and disables the status line when dropped.
pub(crate) struct StatusGuard(());

impl Drop for StatusGuard {
    fn drop(&mut self) {
        hide_status();
        *STATUS.lock() = Status::Disabled;
    }
}

/// Shows `text` as the status line, if it is enabled. The cursor must be at the start of a row or in the status line.
pub(crate) fn show_status(text: String) {
    let mut status = STATUS.lock();
    if !matches!(*status, Status::Disabled) {
        write_status(&format!("{ERASE_ROW}{text}"));
        *status = Status::Shown(text);
    }
}

/// Erases the status line before other output.
pub(crate) fn hide_status() {
    let mut status = STATUS.lock();
    if matches!(*status, Status::Shown(_)) {
        write_status(ERASE_ROW);
        *status = Status::Hidden;
    }
}

fn write_status(text: &str) {
    let mut output = io::stdout().lock();
    // An error is ignored here: the next line of the output reports it.
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
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
