//! Why a controller cannot have a source.

use steadfast::{HandlerError, InformerError};

/// Why a controller has no such source.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// There is no such informer.
    #[error(transparent)]
    Informer(#[from] InformerError),
    /// It was stopped.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// No scope was given.
    #[error("a source without a scope leads to nothing: give it one namespace, scope or informer at least")]
    Empty,
    /// No object of an owned resource can have an owner among the controller's objects.
    #[error(
        "{owned} cannot be owned by {owners}: a namespaced owner is in the namespace of its children; request both in the same \
         scope, or use `watches` with a mapping of your own"
    )]
    NoOwners {
        /// The owned resource and its scope.
        owned: String,
        /// The controller's resource and its scope.
        owners: String,
    },
}

debug_as_message!(SourceError);
