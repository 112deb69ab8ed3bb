//! Texts of connection errors.

use std::io;

use steadfast_core::cause::root_cause;

use super::connection::TransportConnection;
use super::error::TransportError;

/// Converts an error on a stream of `connection` to the error of its request.
pub(super) fn cut(connection: &TransportConnection, error: &h2::Error, maybe_sent: bool) -> TransportError {
    if error.is_reset() {
        TransportError::Reset { peer: connection.peer(), reason: http2(error), maybe_sent }
    } else {
        connection.lost_error(http2(error), maybe_sent)
    }
}

/// Formats an HTTP/2 error.
pub(super) fn http2(error: &h2::Error) -> String {
    if let Some(error) = error.get_io() {
        return match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
            _ => error.to_string(),
        };
    }
    error.to_string()
}

/// Formats an HTTP/1.1 error.
pub(super) fn http1(error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        "the server closed the connection before the response was complete".to_owned()
    } else if error.is_canceled() || error.is_closed() {
        "the server closed the connection".to_owned()
    } else {
        root_cause(error)
    }
}
