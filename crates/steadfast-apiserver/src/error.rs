//! Errors of the server's start.

use std::io;

use crate::status::Status;

/// Error of the server's start.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A port of 127.0.0.1 cannot be opened.
    #[error("cannot open a port of 127.0.0.1")]
    Port(#[from] io::Error),
    /// A certificate cannot be created.
    #[error("cannot create a certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS cannot be configured.
    #[error("cannot configure TLS")]
    Tls(#[from] rustls::Error),
    /// The first objects cannot be created.
    #[error("cannot create the first objects")]
    Object(#[from] Status),
    /// The caller does not run on a tokio runtime.
    #[error("no tokio runtime is running; start the server within one")]
    Runtime(#[from] tokio::runtime::TryCurrentError),
}

debug_as_message!(StartError);
