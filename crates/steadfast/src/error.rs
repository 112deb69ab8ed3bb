//! What can go wrong when asking, and what to do about it.

use std::fmt;
use std::time::Duration;

use steadfast_core::Freshness;

/// Why an informer cannot be had.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum InformerError {
    /// Another informer of the same resource and scope runs with other settings.
    #[error(
        "{resource} in {scope} is already watched with other settings: {}; \
         set them alike, or request it from a factory of its own", listed(.differences)
    )]
    Conflict {
        /// The resource.
        resource: String,
        /// The scope.
        scope: String,
        /// In what they differ; one at least.
        differences: Vec<Difference>,
    },
    /// A namespace was given for a resource whose objects are in none.
    #[error(
        "{resource} are cluster-scoped, in no namespace, and were requested in namespace {namespace:?}; \
         use Scope::all(), and fields(\"metadata.name=…\") for one object"
    )]
    ClusterScoped {
        /// The resource.
        resource: String,
        /// The namespace.
        namespace: String,
    },
    /// It cannot be kept in the checkpoint that was asked for.
    #[error("{resource} cannot be kept in a checkpoint: {why}")]
    Checkpoint {
        /// The resource.
        resource: String,
        /// The cause, and what to do.
        why: Unkept,
    },
    /// The factory was shut down.
    #[error("the informer factory was shut down; make a new one")]
    ShutDown,
}

/// Why the cache of an informer cannot be kept in a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unkept {
    /// It is of Secrets, and would have them on disk.
    #[error(
        "Secrets are not written to disk unless that is asked for; leave the checkpoint out, or ask with `including_secrets`"
    )]
    Secrets,
    /// A transform changes the objects: what it leaves of them in the next release of the program nobody knows.
    #[error(
        "what a transform leaves of objects may be another thing in the program's next release; leave one of the two out"
    )]
    Transformed,
    /// Another informer is kept there.
    #[error("an informer of these objects is kept in it already; stop that one, or give one of them another file")]
    InUse,
}

/// A setting in which a request differs from the informer that runs already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The setting, by the name under which it is set.
    pub setting: &'static str,
    /// Its value in the informer that runs.
    pub running: String,
    /// The value that was requested.
    pub requested: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (requested: {})", self.setting, self.running, self.requested)
    }
}

fn listed(differences: &[Difference]) -> String {
    differences.iter().map(Difference::to_string).collect::<Vec<_>>().join(", ")
}

/// Why a handler was not added.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandlerError {
    /// It is an async handler, and no async runtime is current.
    #[error("no async runtime is current: register async handlers from within a tokio runtime, or use a sync handler")]
    NoRuntime,
    /// A durable handler goes by a name, which is in the file.
    #[error(
        "{name:?} is no name of a durable handler: give it one of 1 to 63 bytes, the same in each life of the program"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// What a durable handler is owed has to be kept somewhere.
    #[error(
        "{resource} is kept in no checkpoint, and so is what a durable handler would be owed; build the informer with one"
    )]
    Unkept {
        /// The resource and its scope.
        resource: String,
    },
    /// A durable handler of this name is there.
    #[error("{resource} has a durable handler {name:?}; remove that one, or give the other a name of its own")]
    Taken {
        /// The resource and its scope.
        resource: String,
        /// The name.
        name: String,
    },
    /// The informer was stopped.
    #[error(
        "the informer of {resource} was stopped, so no handler of it will be called; \
         request the informer anew, and add the handler to that one"
    )]
    Stopped {
        /// The resource and its scope.
        resource: String,
    },
}

/// A cache has nothing to read yet: its first list is not complete.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource} not synced: {state}")]
pub struct NotSynced {
    /// The resource and its scope.
    pub resource: Box<str>,
    /// The state it is in, and why.
    pub state: Freshness,
}

/// Some caches were not synced before the deadline.
#[derive(Clone, PartialEq, Eq)]
pub struct SyncTimeout {
    /// How long was waited.
    pub waited: Duration,
    /// What is not synced, each with its state and the last cause.
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

/// A wait for a write ended without the write being seen.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The deadline passed.
    #[error("{resource} did not reach {target} within {:.1} s: {state}", .waited.as_secs_f64())]
    Deadline {
        /// The resource and its scope.
        resource: String,
        /// What was waited for.
        target: String,
        /// How long was waited.
        waited: Duration,
        /// The state that the cache is in.
        state: Freshness,
    },
    /// The deadline passed, and a condition did not hold.
    #[error("{resource}: {target} did not hold within {:.1} s; last seen: {seen}; {state}", .waited.as_secs_f64())]
    Unmet {
        /// The resource and its scope.
        resource: String,
        /// What was waited for.
        target: String,
        /// How long was waited.
        waited: Duration,
        /// What the condition was last asked of: which object in which version, or how many; never what is in them.
        seen: String,
        /// The state that the cache is in.
        state: Freshness,
    },
    /// The version cannot be ordered against others.
    #[error("version {version:?} is opaque and cannot be waited for; wait for the change itself instead")]
    Opaque {
        /// The version.
        version: String,
    },
    /// The object carries no version: it does not come from a server.
    #[error("the object has no resourceVersion; wait for what the server returned")]
    NoVersion,
    /// The informer was stopped.
    #[error("the informer of {resource} was stopped while {target} was waited for")]
    Stopped {
        /// The resource and its scope.
        resource: String,
        /// What was waited for.
        target: String,
    },
}

/// The newest state of an object could not be decoded, so the cache does not know it.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the state of {key} at version {version} could not be decoded; the next one that can be will be here")]
pub struct Unknown {
    /// The object.
    pub key: steadfast_core::ObjectKey,
    /// The version that is not known.
    pub version: steadfast_core::ResourceVersion,
}

debug_as_message!(InformerError, Unkept, HandlerError, NotSynced, WaitError, Unknown, SyncTimeout);
