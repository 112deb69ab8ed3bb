//! Why a server does not start.

use std::io;

use crate::status::Status;

/// Why a server did not start.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A port could not be had.
    #[error("a port of 127.0.0.1 could not be opened")]
    Port(#[from] io::Error),
    /// A certificate could not be made.
    #[error("a certificate could not be made")]
    Certificate(#[from] rcgen::Error),
    /// TLS could not be set up.
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
    /// The first objects could not be written.
    #[error("the first objects could not be written")]
    Object(#[from] Status),
    /// There is no tokio runtime to run on.
    #[error("there is no tokio runtime here")]
    Runtime(#[from] tokio::runtime::TryCurrentError),
}

debug_as_message!(StartError);
