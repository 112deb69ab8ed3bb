//! Errors of HAProxy backends, each with advice.

use std::path::PathBuf;
use std::time::Duration;

use crate::step_runner;

/// Reason that a backend of HAProxy cannot be read or changed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum HaproxyError {
    /// The name contains characters that HAProxy would interpret.
    #[error("{0:?} is not a valid name in HAProxy: use letters, digits, `-`, `_` and `.`, at most 128 characters")]
    Name(String),
    /// The prefix leaves too few bytes for the name of a server.
    #[error("the prefix {0:?} is longer than 96 bytes; HAProxy allows 128 for the whole name of a server")]
    Prefix(String),
    /// HAProxy accepts no such weight.
    #[error("the server {name} cannot have the weight {weight}: from 0 to 256")]
    Weight {
        /// The server.
        name: String,
        /// Requested weight.
        weight: u16,
    },
    /// HAProxy cannot connect to such an address.
    #[error("the server {name} cannot have the address {address}; use a unicast address and a port")]
    Address {
        /// The server.
        name: String,
        /// Requested address.
        address: std::net::SocketAddr,
    },
    /// An option cannot be given to servers.
    #[error("the servers cannot have the option `{option}`: {reason}")]
    Option {
        /// The option.
        option: String,
        /// The reason.
        reason: String,
    },
    /// No process responds.
    #[error("HAProxy does not respond at {}: {source}; check that its `global` section has `stats socket {} level admin` and that this user may open the socket", .socket.display(), .socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The process did not respond in time.
    #[error("HAProxy did not respond to `{command}` within {}", step_runner::format_seconds(*.within))]
    Timeout {
        /// The command.
        command: String,
        /// The deadline.
        within: Duration,
    },
    /// The process is the old one of a reload, and will end.
    #[error(
        "HAProxy is being reloaded: the process at its socket is about to end; the mirror reads the new process soon"
    )]
    Stopping,
    /// HAProxy did not execute a command.
    #[error("HAProxy rejected `{command}`: {response}{}", remedy(.response))]
    Rejected {
        /// The command.
        command: String,
        /// The response.
        response: String,
    },
    /// The response has an unknown form.
    #[error("the response of HAProxy to `{command}` has an unknown form: {reason}")]
    Unexpected {
        /// The command.
        command: String,
        /// Unknown part of the response.
        reason: String,
    },
    /// Several servers could not be changed.
    #[error("{first}; {}", step_runner::describe_others(others))]
    Several {
        /// The first error.
        first: Box<Self>,
        /// The names of the other servers.
        others: Vec<String>,
    },
}

debug_as_message!(HaproxyError);

impl HaproxyError {
    /// Returns true if an error of a step concerns one server only. Other errors may concern the whole of HAProxy.
    pub(super) fn concerns_one_server(&self) -> bool {
        !matches!(self, Self::Unreachable { .. } | Self::Timeout { .. } | Self::Stopping | Self::Several { .. })
    }

    /// Combines the errors of one run, each with the name of its server.
    pub(super) fn combined(errors: Vec<(String, Self)>) -> Result<(), Self> {
        let mut errors = errors.into_iter();
        let Some((_, first)) = errors.next() else { return Ok(()) };
        let others: Vec<_> = errors.map(|(name, _)| name).collect();
        Err(if others.is_empty() { first } else { Self::Several { first: Box::new(first), others } })
    }
}

/// Returns advice for a response.
fn remedy(response: &str) -> &'static str {
    match response {
        _ if response.contains("ermission") => "; the socket needs `level admin`",
        _ if response.contains("No such backend") || response.contains("Can't find backend") => {
            "; use the name of a backend in HAProxy's configuration"
        }
        _ if response.contains("must use a dynamic load balancing") => {
            "; give the backend `balance roundrobin` or another dynamic algorithm"
        }
        _ if response.contains("unable to load") => {
            "; HAProxy reads no files at run time: also name the file in HAProxy's configuration, or use `ca-file @system-ca`"
        }
        _ if response.contains("not accepted for dynamic server") => "; remove the option from `server_options`",
        _ => "",
    }
}
