//! Outcomes of requests.

use std::fmt;
use std::time::Duration;

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    /// The server accepted the request.
    Accepted,
    /// The event or the namespace is missing (404).
    Missing,
    /// An event of this name exists (409, `AlreadyExists`).
    Exists,
    /// Temporary failure. The server may have processed the request, unless the code rules this out.
    RetryLater {
        /// HTTP code of the response. None without a response.
        code: Option<u16>,
        /// Pause that the server requested.
        retry_after: Option<Duration>,
    },
    /// Permanent failure.
    Rejected(Rejection),
}

/// Rejection of an event. Contains only codes, because messages may quote the note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) code: u16,
    pub(super) reason: String,
    /// The invalid fields.
    pub(super) fields: Vec<String>,
    /// True if the namespace is being deleted.
    pub(super) is_ending: bool,
}

impl fmt::Display for Rejection {
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
