//! Runtime that drives a connection.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;

use crate::environment::{OnRuntime, SharedEnvironment};

/// Runtime that drives a connection and its socket. As a request extension, it selects the runtime of the request's
/// connection.
///
/// A request never uses a connection of another runtime than requested. A blocked runtime then delays only its own
/// requests.
#[derive(Clone, Default)]
pub(crate) enum ConnectionRuntime {
    /// The runtime of the environment.
    #[default]
    Environment,
    /// A runtime of the program.
    Runtime(Handle),
}

impl ConnectionRuntime {
    /// Returns the environment of a connection with this runtime.
    pub(super) fn environment(&self, base: &SharedEnvironment) -> SharedEnvironment {
        match self {
            Self::Environment => base.clone(),
            Self::Runtime(runtime) => Arc::new(OnRuntime::new(base.clone(), runtime.clone())),
        }
    }
}

impl PartialEq for ConnectionRuntime {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Environment, Self::Environment) => true,
            (Self::Runtime(one), Self::Runtime(other)) => one.id() == other.id(),
            _ => false,
        }
    }
}

impl Eq for ConnectionRuntime {}

impl fmt::Debug for ConnectionRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => f.write_str("Environment"),
            Self::Runtime(runtime) => f.debug_tuple("Runtime").field(&runtime.id()).finish(),
        }
    }
}
