//! Errors of sources.

use steadfast::{HandlerError, InformerError};

/// Error while opening a source of a controller.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The informer cannot be created.
    #[error(transparent)]
    Informer(#[from] InformerError),
    /// The informer is stopped.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// No scope was given.
    #[error("a source has no scope; pass at least one namespace, scope or informer")]
    Empty,
    /// No object of an owned resource can have an owner among the controller's objects.
    #[error(
        "{owned} cannot be owned by {owners}: a namespaced owner is in the namespace of its children; request both in the \
         same scope, or use `watches` with a custom mapping"
    )]
    NoOwners {
        /// The owned resource and its scope.
        owned: String,
        /// The controller's resource and its scope.
        owners: String,
    },
}

debug_as_message!(SourceError);
