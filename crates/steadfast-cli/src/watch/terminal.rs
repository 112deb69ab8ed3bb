//! Properties of the terminal: width and colours.

use std::io::IsTerminal;

/// Width of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// Lines are not shortened: standard output is a file or a pipe.
    Unlimited,
    /// Lines fit the terminal, whose width may change at any time.
    Terminal,
}

impl Width {
    /// Returns the width for standard output.
    pub(super) fn of_stdout() -> Self {
        if std::io::stdout().is_terminal() { Self::Terminal } else { Self::Unlimited }
    }

    /// Returns the current number of columns, or `None` without a limit.
    pub(super) fn columns(self) -> Option<usize> {
        match self {
            Self::Unlimited => None,
            Self::Terminal => terminal_columns(),
        }
    }
}

/// Returns whether standard output shows colours.
pub(crate) fn has_color() -> bool {
    // `NO_COLOR` disables colours by convention, unless it is empty.
    let is_disabled = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    has_cursor_control() && !is_disabled
}

/// Returns whether standard output is a terminal that can erase a row.
pub(crate) fn has_cursor_control() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    std::io::stdout().is_terminal() && !is_dumb
}

#[cfg(unix)]
fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    // A terminal without a known size reports 0.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(not(unix))]
fn terminal_columns() -> Option<usize> {
    std::env::var("COLUMNS").ok()?.parse().ok()
}
