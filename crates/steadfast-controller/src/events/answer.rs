//! What became of a request, as far as that matters to the event.

use std::fmt;
use std::time::Duration;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was done.
    Accepted,
    /// There is no such event, or no such namespace (404).
    Missing,
    /// There is an event of that name (409, `AlreadyExists`).
    Exists,
    /// Not now, and maybe for as long as it says; it may have been done unless the server says that it was not.
    Later {
        /// The code of the answer; none where none came.
        code: Option<u16>,
        /// How long the server asks to wait.
        asked: Option<Duration>,
    },
    /// Never.
    Refused(Refusal),
}

/// What a server said that refuses an event: its codes, and none of its sentences, which may quote the note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) reason: String,
    /// The fields that are not as they should be.
    pub(super) fields: Vec<String>,
    /// Whether the namespace is being deleted, with all that is in it.
    pub(super) is_ending: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.reason.is_empty() {
            write!(f, " {}", self.reason)?;
        }
        if !self.fields.is_empty() {
            write!(f, ": {}", self.fields.join(", "))?;
        }
        Ok(())
    }
}
