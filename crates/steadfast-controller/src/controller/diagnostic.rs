//! Diagnostics of a controller.

use std::fmt;
use std::time::Duration;

use steadfast::ObjectKey;

/// Event in a controller's operation: a failed reconcile, or a wait and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerDiagnostic {
    /// A reconcile returned an error.
    Failed {
        /// Key of the reconcile.
        key: ObjectKey,
        /// The error, with its sources.
        error: String,
        /// Number of failures in a row.
        failures: u32,
        /// Maximum delay until the next attempt. None if the error policy waits for a change.
        retry_after: Option<Duration>,
    },
    /// A reconcile panicked.
    Panicked {
        /// Key of the reconcile.
        key: ObjectKey,
        /// Message of the panic, if the payload contains text.
        message: String,
        /// Maximum delay until the next attempt.
        retry_after: Duration,
    },
    /// A reconcile exceeded its timeout and was cancelled.
    TimedOut {
        /// Key of the reconcile.
        key: ObjectKey,
        /// The timeout.
        timeout: Duration,
        /// Maximum delay until the next attempt.
        retry_after: Duration,
    },
    /// A reconcile blocks its thread: it runs without reaching an `.await`, and cannot be cancelled.
    Blocked {
        /// Key of the reconcile.
        key: ObjectKey,
        /// Duration of the block so far.
        elapsed: Duration,
    },
    /// A key requested an immediate requeue many times in a row, and is delayed.
    HotLoop {
        /// The key.
        key: ObjectKey,
        /// Number of immediate requeues in a row.
        requeues: u32,
    },
    /// A key waits because a cache lacks a write of the key's last reconcile, or the change that triggered the next
    /// reconcile.
    WaitsForWrites {
        /// The key.
        key: ObjectKey,
        /// The cache, the missing write and the reason.
        reason: String,
        /// Duration of the wait so far.
        elapsed: Duration,
    },
    /// A cache cannot be compared with the writes of the last reconcile, because its versions have no order. The
    /// reconcile runs anyway.
    CannotCompareVersions {
        /// The key.
        key: ObjectKey,
        /// The cache and the reason.
        reason: String,
    },
    /// Keys wait because a cache may lack the writes of another process: all keys at the start, and gained keys of a
    /// [sharded](crate::Controller::sharded_by) controller.
    WaitsForOtherProcess {
        /// The cache, the missing write and the reason.
        reason: String,
        /// Duration of the wait so far.
        elapsed: Duration,
    },
    /// A cache cannot be compared with the writes of another process, because its versions have no order. Reconciles
    /// run anyway.
    CannotCatchUp {
        /// The cache and the reason.
        reason: String,
    },
    /// Reconciles are paused, except for safe keys, because a cache has been in doubt for too long, or may lack writes
    /// of another process after such a doubt.
    Paused {
        /// The cache, the start of the doubt and its reason.
        reason: String,
        /// Namespaces whose keys are paused. Empty if all keys are paused.
        namespaces: Vec<String>,
    },
    /// Reconciles resume: all caches are current again.
    Resumed {
        /// Duration of the pause.
        elapsed: Duration,
    },
    /// The cache of a source is unavailable, so that the source triggers no reconciles.
    CacheUnavailable {
        /// The cache, the start of the outage and its reason.
        reason: String,
        /// True if the first reconciles wait for this cache, because they read it.
        delays_start: bool,
    },
    /// A source maps to a key outside the scope of the controller. No object of the controller can have this key, so
    /// the key is never reconciled. Only the first such key of each source is reported;
    /// [`ControllerStats::outside_scope`](crate::ControllerStats::outside_scope) counts them all.
    OutsideScope {
        /// The source: a resource and its scope, or a stream of keys.
        source: String,
        /// The key.
        key: ObjectKey,
        /// The controller's resource and its scope.
        scope: String,
    },
    /// A user callback panicked. A start condition or a stream of keys ends with the panic. After a panic in a mapping
    /// of objects to keys, all objects are reconciled.
    CallbackPanicked {
        /// The callback.
        callback: &'static str,
        /// Message of the panic, if the payload contains text.
        message: String,
    },
    /// The state of an object cannot be decoded. The object is reconciled again after its next change.
    Undecodable {
        /// Key of the object.
        key: ObjectKey,
    },
}

impl ControllerDiagnostic {
    /// Returns true for warnings, false for information.
    pub fn is_warning(&self) -> bool {
        !matches!(self, Self::Resumed { .. })
    }
}

impl fmt::Display for ControllerDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { key, error, failures, retry_after } => {
                write!(f, "reconcile of {key} failed: {error}; {failures} in a row, {}", RetryAfter(*retry_after))
            }
            Self::Panicked { key, message, retry_after } => {
                write!(f, "reconcile of {key} panicked: {message}; retry in {retry_after:.1?}")
            }
            Self::TimedOut { key, timeout, retry_after } => {
                write!(
                    f,
                    "reconcile of {key} timed out after {timeout:.1?} and was cancelled; retry in {retry_after:.1?}"
                )
            }
            Self::Blocked { key, elapsed } => write!(
                f,
                "reconcile of {key} has blocked its thread for {elapsed:.1?} and cannot be cancelled; move blocking code \
                 into spawn_blocking, because other tasks of this runtime may wait"
            ),
            Self::HotLoop { key, requeues } => {
                write!(
                    f,
                    "{key} requeued at once {requeues} times in a row; further immediate requeues are delayed by up to \
                 1 s"
                )
            }
            Self::WaitsForWrites { key, reason, elapsed } => {
                write!(
                    f,
                    "{key} has waited {elapsed:.1?} for a cache that lacks a write of its last reconcile or the change \
                     that triggered it: {reason}"
                )
            }
            Self::CannotCompareVersions { key, reason } => {
                write!(f, "{key} is reconciled, though a cache may lack the writes of its last reconcile: {reason}")
            }
            Self::WaitsForOtherProcess { reason, elapsed } => {
                write!(
                    f,
                    "keys of another process have waited {elapsed:.1?} for a cache that may lack its last writes: {reason}"
                )
            }
            Self::CannotCatchUp { reason } => {
                write!(f, "keys of another process are reconciled, though a cache may lack its last writes: {reason}")
            }
            Self::Paused { reason, namespaces } if !namespaces.is_empty() => write!(
                f,
                "reconciles of the namespace {} are paused, except for safe keys, because a cache is in doubt: {reason}",
                namespaces.join(", ")
            ),
            Self::Paused { reason, .. } => write!(
                f,
                "reconciles are paused, except for safe keys, because a cache is in doubt: \
             {reason}"
            ),
            Self::Resumed { elapsed } => write!(f, "reconciles resume after a pause of {elapsed:.1?}"),
            Self::CacheUnavailable { reason, delays_start: false } => {
                write!(f, "a source is unavailable, and reconciles run without its cache: {reason}")
            }
            Self::CacheUnavailable { reason, delays_start: true } => {
                write!(f, "a source is unavailable, and the first reconciles wait for its cache: {reason}")
            }
            Self::OutsideScope { source, key, scope } => write!(
                f,
                "{source} maps to {key}, which is outside {scope} and never reconciled; widen the scope of the \
                 controller, or narrow the scope of the source"
            ),
            Self::CallbackPanicked { callback, message } => write!(f, "{callback} panicked: {message}"),
            Self::Undecodable { key } => write!(f, "{key} cannot be decoded and is not reconciled"),
        }
    }
}

/// Time of the next attempt.
struct RetryAfter(Option<Duration>);

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(retry_after) => write!(f, "retry in {retry_after:.1?}"),
            None => f.write_str("no retry until a change"),
        }
    }
}
