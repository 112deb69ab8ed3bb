//! What a log line of a controller would say.

use std::fmt;
use std::time::Duration;

use steadfast::ObjectKey;

/// What there is to tell of a controller's work: what went wrong, and what is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerDiagnostic {
    /// A call ended with an error.
    Failed {
        /// What it was called for.
        key: ObjectKey,
        /// The error, with its causes.
        error: String,
        /// How often in a row.
        failures: u32,
        /// When it is called again at the latest; never, where the policy for errors waits for a change.
        again: Option<Duration>,
    },
    /// A call panicked.
    Panicked {
        /// What it was called for.
        key: ObjectKey,
        /// What it panicked with, where that is text.
        message: String,
        /// When it is called again at the latest.
        again: Duration,
    },
    /// A call took longer than it may, and was cancelled.
    TimedOut {
        /// What it was called for.
        key: ObjectKey,
        /// How long it may take.
        timeout: Duration,
        /// When it is called again at the latest.
        again: Duration,
    },
    /// A call holds up its thread: it computes or blocks for so long without an await, and cannot be cancelled.
    Blocked {
        /// What it was called for.
        key: ObjectKey,
        /// How long so far.
        lasting: Duration,
    },
    /// A key wants to be called again at once, time after time: it is slowed down.
    Spins {
        /// The key.
        key: ObjectKey,
        /// How often in a row.
        times: u32,
    },
    /// A key waits, since a cache lacks what its last call wrote, or what led to the next one.
    LacksWrites {
        /// The key.
        key: ObjectKey,
        /// Which cache lacks what, and why.
        why: String,
        /// How long so far.
        lasting: Duration,
    },
    /// It cannot be known whether a cache has what the last call wrote: versions there have no order. It is called.
    CannotCompare {
        /// The key.
        key: ObjectKey,
        /// Which cache, and why.
        why: String,
    },
    /// Keys that another process may have acted on wait, since a cache may lack what that has written: all keys at the start, and
    /// those that were gained where [they are shared](crate::Controller::shared_by).
    LacksOthers {
        /// Which cache lacks what, and why.
        why: String,
        /// How long so far.
        lasting: Duration,
    },
    /// It cannot be known whether a cache has what another process has written before: versions there have no order. Its keys are
    /// called.
    CannotCatchUp {
        /// Which cache, and why.
        why: String,
    },
    /// Nothing is called, or only what is safe, since a cache has been in doubt for too long.
    Paused {
        /// Which cache, since when, and why.
        why: String,
    },
    /// Calls go on: every cache is true again.
    Resumed {
        /// How long nothing was called.
        lasted: Duration,
    },
    /// A source is not there: what it would lead to is not called for its sake.
    SourceMissing {
        /// Which one, since when, and why.
        why: String,
        /// Whether the first calls wait for it, since they read it; the other sources do not, otherwise.
        waits: bool,
    },
    /// A source maps to a key that no object of the controller can have, so that it is never reconciled. Reported for the
    /// first such key of each source; [`ControllerStats::outside_scope`](crate::ControllerStats::outside_scope) counts
    /// them all.
    OutsideScope {
        /// The source: a resource and its scope, or a stream of keys.
        source: String,
        /// The key.
        key: ObjectKey,
        /// The controller's resource and its scope.
        scope: String,
    },
    /// Something of the user's beside the calls has panicked: what the first calls wait for, or a stream of keys, which is over then;
    /// or what maps objects to keys, and then all objects are called for.
    Broken {
        /// What it was.
        what: &'static str,
        /// What it panicked with, where that is text.
        message: String,
    },
    /// The state of an object cannot be decoded: it is called again when there is one that can.
    Undecodable {
        /// The object.
        key: ObjectKey,
    },
}

impl ControllerDiagnostic {
    /// Whether somebody should look at it; it is of interest only, otherwise.
    pub fn is_grave(&self) -> bool {
        !matches!(self, Self::Resumed { .. })
    }
}

impl fmt::Display for ControllerDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { key, error, failures, again } => {
                write!(f, "{key} failed: {error}; {failures} in a row, {}", Again(*again))
            }
            Self::Panicked { key, message, again } => {
                write!(f, "the call for {key} panicked: {message}; again in {again:.1?}")
            }
            Self::TimedOut { key, timeout, again } => {
                write!(f, "the call for {key} took longer than {timeout:.1?} and was cancelled; again in {again:.1?}")
            }
            Self::Blocked { key, lasting } => write!(
                f,
                "the call for {key} holds up its thread for {lasting:.1?}: what blocks belongs into spawn_blocking; it cannot \
                 be cancelled, and others of this runtime may wait"
            ),
            Self::Spins { key, times } => {
                write!(f, "{key} was to be called again at once {times} times in a row: it waits longer and longer now")
            }
            Self::LacksWrites { key, why, lasting } => {
                write!(
                    f,
                    "{key} waits for {lasting:.1?}, since a cache lacks what its last call wrote, or what led to it: {why}"
                )
            }
            Self::CannotCompare { key, why } => {
                write!(f, "{key} is called, though it is not known whether a cache has what its last call wrote: {why}")
            }
            Self::LacksOthers { why, lasting } => {
                write!(
                    f,
                    "keys that come from another process wait for {lasting:.1?}, since a cache may lack its last writes: {why}"
                )
            }
            Self::CannotCatchUp { why } => {
                write!(
                    f,
                    "keys that come from another process are called, though a cache may lack its last writes: {why}"
                )
            }
            Self::Paused { why } => write!(f, "no calls while a cache is in doubt, unless they are safe: {why}"),
            Self::Resumed { lasted } => write!(f, "calls go on, after {lasted:.1?}"),
            Self::SourceMissing { why, waits: false } => {
                write!(f, "a source is not there, the others do without it: {why}")
            }
            Self::SourceMissing { why, waits: true } => {
                write!(f, "a source is not there, and the first calls, which read it, wait for it: {why}")
            }
            Self::OutsideScope { source, key, scope } => write!(
                f,
                "{source} leads to {key}, which is not among {scope} and is never reconciled: widen the scope of the controller, \
                 or narrow that of the source"
            ),
            Self::Broken { what, message } => write!(f, "{what} panicked: {message}"),
            Self::Undecodable { key } => write!(f, "{key} cannot be decoded, and is not called"),
        }
    }
}

/// When a key is called again.
struct Again(Option<Duration>);

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(again) => write!(f, "again in {again:.1?}"),
            None => f.write_str("not again before it changes"),
        }
    }
}
