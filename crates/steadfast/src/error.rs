//! Errors of informers, handlers and waits, each with advice.

use std::fmt;
use std::time::Duration;

use steadfast_core::Freshness;

/// Reason that an informer cannot be created.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InformerError {
    /// Another informer of the resource and scope runs with other settings.
    #[error(
        "{resource} in {scope} is already watched with other settings: {}; \
         use the same settings, or request it from another factory", listed(.differences)
    )]
    Conflict {
        /// Resource.
        resource: String,
        /// Scope.
        scope: String,
        /// Settings that differ; at least one.
        differences: Vec<SettingMismatch>,
    },
    /// A namespace was given for a cluster-scoped resource.
    #[error(
        "{resource} are cluster-scoped, in no namespace, and were requested in namespace {namespace:?}; \
         use Scope::all(), and fields(\"metadata.name=…\") for one object"
    )]
    ClusterScoped {
        /// Resource.
        resource: String,
        /// Namespace.
        namespace: String,
    },
    /// An informer of several namespaces was requested without a namespace.
    #[error("no namespace was given; pass at least one, or use Scope::all() for all namespaces")]
    NoNamespace,
    /// An informer cannot be combined with informers of other namespaces.
    #[error(
        "{resource} cannot be combined with informers of other namespaces, because {reason}; pass each namespace once"
    )]
    NotCombined {
        /// Resource and scope.
        resource: String,
        /// Cause.
        reason: &'static str,
    },
    /// The cache cannot be stored in the requested checkpoint.
    #[error("{resource} cannot be kept in a checkpoint: {reason}")]
    Checkpoint {
        /// Resource.
        resource: String,
        /// Cause and advice.
        reason: CheckpointUnsupported,
    },
    /// The factory was shut down.
    #[error("the informer factory was shut down; create a new one")]
    ShutDown,
}

/// Reason that the cache of an informer cannot be stored in a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointUnsupported {
    /// The objects are Secrets, and storing them on disk was not allowed.
    #[error("Secrets are written to disk only on request; omit the checkpoint, or request it with `including_secrets`")]
    Secrets,
    /// A transform changes the objects. The transform of the program's next release may return other results.
    #[error(
        "the transform of the program's next release may keep other parts of the objects; omit the transform or the checkpoint"
    )]
    Transformed,
    /// Another informer uses the part of the checkpoint file for these objects.
    #[error(
        "another informer of these objects uses the checkpoint; stop the other informer, or give one of the two another file"
    )]
    InUse,
}

/// A setting that differs between a request and the running informer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingMismatch {
    /// Name of the builder method for the setting.
    pub setting: &'static str,
    /// Value in the running informer.
    pub running: String,
    /// Requested value.
    pub requested: String,
}

impl fmt::Display for SettingMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (requested: {})", self.setting, self.running, self.requested)
    }
}

fn listed(differences: &[SettingMismatch]) -> String {
    differences.iter().map(SettingMismatch::to_string).collect::<Vec<_>>().join(", ")
}

/// Reason that a handler was not added.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// An async handler was added outside an async runtime.
    #[error("no async runtime is current; register async handlers within a tokio runtime, or use a sync handler")]
    NoRuntime,
    /// The name of a durable handler is not valid. The name identifies its rows in the checkpoint file.
    #[error(
        "{name:?} is not a valid name of a durable handler; use 1 to 63 bytes, the same in each run of the program"
    )]
    InvalidName {
        /// The rejected name.
        name: String,
    },
    /// A durable handler was added to an informer without a checkpoint.
    #[error(
        "{resource} has no checkpoint for the pending events of a durable handler; build the informer with a checkpoint"
    )]
    NoCheckpoint {
        /// Resource and scope.
        resource: String,
    },
    /// A durable handler of this name exists.
    #[error("{resource} already has a durable handler {name:?}; remove it, or choose another name")]
    Taken {
        /// Resource and scope.
        resource: String,
        /// Name of the handler.
        name: String,
    },
    /// The informer was stopped.
    #[error(
        "the informer of {resource} was stopped, so none of its handlers will be called; \
         request the informer again, and add the handler to the new informer"
    )]
    Stopped {
        /// Resource and scope.
        resource: String,
    },
}

/// Error of a cache before the end of its first list.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource} not synced: {state}")]
#[non_exhaustive]
pub struct NotSynced {
    /// Resource and scope.
    pub resource: Box<str>,
    /// State of the cache, with its cause.
    pub state: Freshness,
}

/// Error of a wait in which some caches were not synced before the deadline.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncTimeout {
    /// Duration of the wait.
    pub waited: Duration,
    /// Caches that are not synced, each with its state and the last cause.
    pub missing: Vec<NotSynced>,
}

impl std::error::Error for SyncTimeout {}

impl fmt::Display for SyncTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not synced after {:.1} s: ", self.waited.as_secs_f64())?;
        for (index, missing) in self.missing.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", missing.resource, missing.state)?;
        }
        Ok(())
    }
}

/// Error of a wait that ended before its condition held.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline of a wait for a version, a deletion or a write passed.
    #[error("{resource} did not reach {target} within {:.1} s: {state}", .waited.as_secs_f64())]
    Deadline {
        /// Resource and scope.
        resource: String,
        /// Target of the wait.
        target: String,
        /// Duration of the wait.
        waited: Duration,
        /// State of the cache.
        state: Freshness,
    },
    /// The deadline of a wait for a condition of the caller passed.
    #[error("{resource}: {target} did not hold within {:.1} s; last seen: {seen}; {state}", .waited.as_secs_f64())]
    Unmet {
        /// Resource and scope.
        resource: String,
        /// Target of the wait.
        target: String,
        /// Duration of the wait.
        waited: Duration,
        /// Last input of the condition: the object and its version, or the number of objects; never their contents.
        seen: String,
        /// State of the cache.
        state: Freshness,
    },
    /// The version cannot be compared with others.
    #[error("version {version:?} is opaque, so no wait for it is possible; wait for the change itself instead")]
    Opaque {
        /// Version.
        version: String,
    },
    /// The object carries no version, so it was not returned by a server.
    #[error("the object has no resourceVersion; wait for the object that the server returned")]
    NoVersion,
    /// The informer was stopped.
    #[error("the informer of {resource} was stopped during the wait for {target}")]
    Stopped {
        /// Resource and scope.
        resource: String,
        /// Target of the wait.
        target: String,
    },
}

/// Error of a read of an object whose newest state could not be decoded.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the state of {key} at version {version} could not be decoded; the next decodable state replaces it")]
#[non_exhaustive]
pub struct UndecodableObject {
    /// Object.
    pub key: steadfast_core::ObjectKey,
    /// Version that could not be decoded.
    pub version: steadfast_core::ResourceVersion,
}

debug_as_message!(
    InformerError,
    CheckpointUnsupported,
    HandlerError,
    NotSynced,
    WaitError,
    UndecodableObject,
    SyncTimeout
);
