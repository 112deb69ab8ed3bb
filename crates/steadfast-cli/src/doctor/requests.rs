//! Bounded requests: each has a deadline, and reads a limited number of bytes.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, Request, StatusCode};
use kube::client::Body;
use serde_json::Value;
use steadfast::Connection;
use steadfast::connection::SendError;
use steadfast::transport::{Deadlines, ResponseBody, TransportError};
use tokio::time::timeout;

/// Deadline of an ordinary request.
pub(super) const REQUEST_DEADLINE: Duration = Duration::from_secs(5);

/// Maximum size of a response, and of a record of a watch.
pub(super) const MAX_BODY_BYTES: usize = 8 << 20;

/// Reason why a request has no usable response.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum RequestError {
    /// No response, or an interrupted one.
    NoResponse(String),
    /// No complete response before the deadline.
    Deadline(Duration),
    /// The response exceeds [`MAX_BODY_BYTES`].
    TooLarge,
    /// The server rejected the request with this HTTP status and message.
    Status(u16, String),
    /// The body is not JSON.
    Unreadable(String),
}

impl RequestError {
    /// Returns the HTTP status of a rejected request.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Status(code, _) => Some(*code),
            _ => None,
        }
    }

    /// Returns whether the server has no such API, or forbids the request.
    pub(super) fn is_missing_or_forbidden(&self) -> bool {
        matches!(self.status(), Some(403..=405))
    }
}

impl std::fmt::Display for RequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoResponse(reason) => f.write_str(reason),
            Self::Deadline(limit) => write!(f, "no complete response within {:.0} s", limit.as_secs_f64()),
            Self::TooLarge => write!(f, "the response is longer than {} MiB", MAX_BODY_BYTES >> 20),
            Self::Status(code, message) => write!(f, "{code} {message}"),
            Self::Unreadable(reason) => write!(f, "the response is not JSON: {reason}"),
        }
    }
}

/// Response with its complete body.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Time from the start of the request to the end of the response.
    pub(super) elapsed: Duration,
}

impl Reply {
    /// Returns the body of a successful response.
    pub(super) fn json(&self) -> Result<Value, RequestError> {
        if !self.status.is_success() {
            return Err(rejection(self.status, &self.body));
        }
        serde_json::from_slice(&self.body).map_err(|error| RequestError::Unreadable(error.to_string()))
    }
}

/// Returns the error of a response with the unsuccessful `status`.
fn rejection(status: StatusCode, body: &[u8]) -> RequestError {
    // API servers explain a rejection in a `Status`. A proxy may send HTML, which does not help.
    let explanation: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = explanation["message"].as_str().or(status.canonical_reason()).unwrap_or_default();
    RequestError::Status(status.as_u16(), message.to_owned())
}

/// Returns the error of an `ERROR` record of a watch; `None` for another record.
pub(super) fn stream_error(record: &Value) -> Option<RequestError> {
    if record["type"] != "ERROR" {
        return None;
    }
    let status = &record["object"];
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
    let message = status["message"].as_str().unwrap_or_default();
    Some(RequestError::Status(code, message.to_owned()))
}

/// Sends `GET path` and reads the response.
pub(super) async fn get(connection: &Connection, path: &str, deadline: Duration) -> Result<Reply, RequestError> {
    send(connection, Method::GET, path, Vec::new(), deadline).await
}

/// Sends `GET path` with the ordinary deadline, and returns the JSON of a successful response.
pub(super) async fn get_json(connection: &Connection, path: &str) -> Result<Value, RequestError> {
    get(connection, path, REQUEST_DEADLINE).await?.json()
}

/// Posts `object` to `path`, and returns the JSON of a successful response.
pub(super) async fn post_json(connection: &Connection, path: &str, object: &Value) -> Result<Value, RequestError> {
    send(connection, Method::POST, path, object.to_string().into_bytes(), REQUEST_DEADLINE).await?.json()
}

async fn send(
    connection: &Connection,
    method: Method,
    path: &str,
    body: Vec<u8>,
    deadline: Duration,
) -> Result<Reply, RequestError> {
    let started = Instant::now();
    let exchange = async {
        let response = connection.send(request(method, path, body, deadline)?).await.map_err(send_failure)?;
        let (head, body) = response.into_parts();
        let body = read_body(body).await?;
        Ok(Reply { status: head.status, headers: head.headers, body, elapsed: started.elapsed() })
    };
    timeout(deadline, exchange).await.unwrap_or(Err(RequestError::Deadline(deadline)))
}

/// Reads a body of at most [`MAX_BODY_BYTES`].
async fn read_body(body: ResponseBody) -> Result<Bytes, RequestError> {
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(RequestError::TooLarge),
        Err(error) => {
            let cause = error.downcast_ref::<TransportError>().map(TransportError::cause);
            Err(RequestError::NoResponse(cause.unwrap_or_else(|| error.to_string())))
        }
    }
}

fn request(method: Method, path: &str, body: Vec<u8>, deadline: Duration) -> Result<Request<Body>, RequestError> {
    let request = Request::builder().method(method).uri(path).header("accept", "application/json");
    let request = request.header("content-type", "application/json");
    // A watch may be silent, so the transport does not limit the silence of its body. The transport's timeout of the
    // headers is twice `deadline`, so that the caller's timeout always expires first.
    let deadlines = Deadlines { headers: Some(deadline * 2), progress: None };
    request.extension(deadlines).body(Body::from(body)).map_err(|error| RequestError::NoResponse(error.to_string()))
}

/// Returns the cause of a transport error without its advice about repeated writes. The checks create no stored
/// objects, so a repeated request is harmless.
fn send_failure(error: SendError) -> RequestError {
    RequestError::NoResponse(match error {
        SendError::Transport(error) => error.cause(),
        other => other.to_string(),
    })
}

/// Opens the watch at `path`, and passes each record to `read` until `read` returns `Break`, the server ends the watch,
/// or `limit` expires. All three ends are a success.
pub(super) async fn watch(
    connection: &Connection,
    path: &str,
    limit: Duration,
    mut read: impl FnMut(Value) -> ControlFlow<()> + Send,
) -> Result<(), RequestError> {
    let opened = timeout(REQUEST_DEADLINE, async {
        connection.send(request(Method::GET, path, Vec::new(), REQUEST_DEADLINE)?).await.map_err(send_failure)
    });
    let response = opened.await.unwrap_or(Err(RequestError::Deadline(REQUEST_DEADLINE)))?;
    let (head, mut body) = response.into_parts();
    if !head.status.is_success() {
        // Without a complete body, a rejection still has its status.
        let body = timeout(REQUEST_DEADLINE, read_body(body)).await.ok().and_then(Result::ok).unwrap_or_default();
        return Err(rejection(head.status, &body));
    }
    let records = async {
        let mut pending = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| RequestError::NoResponse(error.cause()))?.into_data() else {
                continue;
            };
            if take_records(&mut pending, &data, &mut read)?.is_break() {
                break;
            }
        }
        Ok(())
    };
    timeout(limit, records).await.unwrap_or(Ok(()))
}

/// Passes the complete lines of `pending` and `data` to `read`. The rest stays in `pending`.
fn take_records(
    pending: &mut Vec<u8>,
    data: &Bytes,
    read: &mut impl FnMut(Value) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, RequestError> {
    for part in data.split_inclusive(|byte| *byte == b'\n') {
        pending.extend_from_slice(part);
        if pending.len() > MAX_BODY_BYTES {
            return Err(RequestError::TooLarge);
        }
        if part.ends_with(b"\n") {
            let record = serde_json::from_slice(pending).map_err(|error| RequestError::Unreadable(error.to_string()));
            pending.clear();
            if read(record?).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_split_at_lines() {
        let (mut pending, mut seen) = (Vec::new(), Vec::new());
        for data in ["{\"a\":", "1}\n{\"a\":2}", "\n{\"a\":3}\n{\"a\":4}\n"] {
            let mut read = |record: Value| {
                seen.push(record["a"].as_u64());
                if seen.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let _ = take_records(&mut pending, &Bytes::from(data), &mut read).expect("JSON");
        }
        assert_eq!(seen, [Some(1), Some(2), Some(3)]);
        let broken = take_records(&mut Vec::new(), &Bytes::from("<html>\n"), &mut |_| ControlFlow::Continue(()));
        assert!(matches!(broken, Err(RequestError::Unreadable(_))));
    }
}
