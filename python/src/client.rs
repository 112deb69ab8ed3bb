//! Requests of Python code to the API server, and their errors.

use std::error::Error;

use kube::Client;
use kube::core::Status;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use steadfast::connection::SendError;
use steadfast::transport::TransportError;
use steadfast::unstable::cause::root_cause;

use crate::errors::{exception, python_class};

/// Request to the API server.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    pub(crate) method: String,
    /// Path with its query.
    pub(crate) path: String,
    /// JSON body; empty for requests without one.
    pub(crate) body: Vec<u8>,
    pub(crate) content_type: String,
}

/// Failure of a request.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The server responded with an error status.
    Status(Box<Status>),
    /// The lease of the leader may have expired. The request was not sent, or its response was dropped.
    NotLeader(String),
    /// No response. The server may have processed the request.
    Failed(String),
}

impl ApiRequest {
    /// Sends the request and returns the body of the response.
    pub(crate) async fn send(self, client: &Client) -> Result<Vec<u8>, RequestError> {
        let mut request = http::Request::builder().method(self.method.as_str()).uri(self.path.as_str());
        if !self.body.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, self.content_type.as_str());
        }
        let failed =
            |cause_text: String| RequestError::Failed(format!("cannot {} {}: {cause_text}", self.method, self.path));
        let request = request.body(self.body).map_err(|error| failed(error.to_string()))?;
        match client.request_text(request).await {
            Ok(text) => Ok(text.into_bytes()),
            Err(kube::Error::Api(status)) => Err(RequestError::Status(status)),
            Err(error) if is_fenced(&error) => Err(RequestError::NotLeader(root_cause(&error))),
            Err(error) => Err(failed(root_cause(&error))),
        }
    }
}

/// Returns true if the client of a leader stopped the request.
fn is_fenced(error: &kube::Error) -> bool {
    let is_fenced = |error: &(dyn Error + 'static)| {
        let send_error = error.downcast_ref::<SendError>();
        let transport = match send_error {
            Some(SendError::Transport(error)) => Some(error),
            _ => error.downcast_ref::<TransportError>(),
        };
        matches!(transport, Some(TransportError::Fenced { .. }))
    };
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if is_fenced(error) {
            return true;
        }
        cause = error.source();
    }
    false
}

impl RequestError {
    pub(crate) fn into_python(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Status(status) => {
                let fields = (status.message.as_str(), status.code, status.reason.as_str());
                match status.code {
                    404 => exception!(py, "NotFound", fields),
                    409 => exception!(py, "Conflict", fields),
                    _ => exception!(py, "ApiError", fields),
                }
            }
            Self::NotLeader(message) => exception!(py, "NotLeader", (message,)),
            Self::Failed(message) => exception!(py, "RequestFailed", (message,)),
        }
    }
}

/// Returns the response as `bytes`, or raises the error.
pub(crate) fn response(py: Python<'_>, response: Result<Vec<u8>, RequestError>) -> PyResult<Py<PyAny>> {
    match response {
        Ok(body) => Ok(PyBytes::new(py, &body).into_any().unbind()),
        Err(error) => Err(error.into_python(py)),
    }
}
