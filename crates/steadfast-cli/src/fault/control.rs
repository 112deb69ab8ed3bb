//! The endpoint of `serve` that switches faults, and its client.
//!
//! The endpoint uses a separate port and token: faults of the API server, such as a black hole, must not reach it.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use steadfast_apiserver::Faults;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::spec::FaultSpec;
use crate::exchange::exchange;
use crate::failure::Failure;

/// Deadline of a request, at both ends.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest text of a fault, in bytes.
const MAX_BODY_BYTES: usize = 4096;

/// Longest response that the client reads, in bytes.
const MAX_RESPONSE_BYTES: u64 = 1024 * 1024;

/// The faults of a server, and a record of the active ones.
pub(crate) struct FaultController {
    faults: Faults,
    replicas: usize,
    active: Mutex<Vec<(String, FaultSpec)>>,
}

impl FaultController {
    pub(crate) fn new(faults: Faults, replicas: usize) -> Self {
        Self { faults, replicas, active: Mutex::default() }
    }

    /// Switches the fault that `text` names.
    pub(crate) fn switch(&self, text: &str) -> Result<(), String> {
        let spec: FaultSpec = text.parse()?;
        // One lock covers both steps, because the record must have the order in which concurrent requests applied their
        // faults.
        let mut active = self.active.lock();
        spec.apply(&self.faults, self.replicas).map_err(|reason| format!("fault {text:?}: {reason}"))?;
        active.retain(|(_, earlier)| !spec.ends_fault(earlier));
        if spec.remains_active() {
            active.push((text.to_owned(), spec));
        }
        Ok(())
    }

    /// Returns the active faults, one per line.
    fn active(&self) -> String {
        let active = self.active.lock();
        active.iter().fold(String::new(), |mut lines, (text, _)| {
            let _ = writeln!(lines, "{text}");
            lines
        })
    }
}

/// Serves `fault_controller` on a free port of 127.0.0.1 until the program ends; returns the address.
pub(crate) async fn serve(fault_controller: Arc<FaultController>, token: &str) -> Result<SocketAddr, Failure> {
    let serve_error = |error| Failure::run(format!("the control endpoint for faults cannot be served: {error}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(serve_error)?;
    let address = listener.local_addr().map_err(serve_error)?;
    let expected_authorization: Arc<str> = format!("Bearer {token}").into();
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // The process has probably no file descriptors left. An immediate retry would loop without a pause.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            tokio::spawn(timeout(
                REQUEST_TIMEOUT,
                converse(stream, fault_controller.clone(), expected_authorization.clone()),
            ));
        }
    });
    Ok(address)
}

async fn converse(stream: TcpStream, fault_controller: Arc<FaultController>, expected_authorization: Arc<str>) {
    let respond = service_fn(move |request: Request<Incoming>| {
        let (fault_controller, expected_authorization) = (fault_controller.clone(), expected_authorization.clone());
        async move {
            let (status, text) = respond(request, &fault_controller, &expected_authorization).await;
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).keep_alive(false);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), respond).await {
        tracing::debug!(%error, "a request to the control endpoint failed");
    }
}

async fn respond(
    request: Request<Incoming>,
    fault_controller: &FaultController,
    expected_authorization: &str,
) -> (StatusCode, String) {
    let authorization = request.headers().get(AUTHORIZATION).map(hyper::header::HeaderValue::as_bytes);
    // The token protects against requests from pages in a local browser, which do not know it.
    if authorization != Some(expected_authorization.as_bytes()) {
        return (StatusCode::UNAUTHORIZED, "the token is missing or wrong\n".to_owned());
    }
    match *request.method() {
        Method::GET => (StatusCode::OK, fault_controller.active()),
        Method::POST => {
            let Ok(body) = Limited::new(request.into_body(), MAX_BODY_BYTES).collect().await else {
                return (
                    StatusCode::BAD_REQUEST,
                    format!("the body cannot be read, or exceeds {MAX_BODY_BYTES} bytes\n"),
                );
            };
            match fault_controller.switch(String::from_utf8_lossy(&body.to_bytes()).trim()) {
                Ok(()) => (StatusCode::OK, String::new()),
                Err(reason) => (StatusCode::BAD_REQUEST, format!("{reason}\n")),
            }
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET and POST are supported\n".to_owned()),
    }
}

/// A client of the endpoint.
pub(crate) struct Control {
    address: SocketAddr,
    token: String,
}

impl Control {
    /// Creates a client of the endpoint at `address`. Returns `None` unless the address is a loopback address.
    pub(crate) fn new(address: &str, token: String) -> Option<Self> {
        let address: SocketAddr = address.parse().ok()?;
        // The token comes from a file: control characters would inject header lines into the request.
        let is_safe_token = token.bytes().all(|byte| byte.is_ascii_graphic());
        // The address comes from the same file, and the token must not leave this machine.
        (address.ip().is_loopback() && is_safe_token).then_some(Self { address, token })
    }

    /// Returns the active faults, one per line.
    pub(crate) async fn active(&self) -> Result<String, Failure> {
        self.request("GET", "").await
    }

    /// Switches the fault that `text` names.
    pub(crate) async fn switch(&self, text: &str) -> Result<(), Failure> {
        self.request("POST", text).await.map(drop)
    }

    async fn request(&self, method: &str, body: &str) -> Result<String, Failure> {
        let Self { address, token } = self;
        let request_failure = |reason: String| {
            Failure::run(format!(
                "the control endpoint of `steadfast serve` at {address}: {reason}; is the server still running?"
            ))
        };
        let request = format!(
            "{method} /faults HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let response = timeout(REQUEST_TIMEOUT, exchange(*address, &request, MAX_RESPONSE_BYTES)).await;
        let response =
            response.map_err(|_| request_failure(format!("no response within {} s", REQUEST_TIMEOUT.as_secs())))?;
        let response = response.map_err(|error| request_failure(error.to_string()))?;
        let (head, body) =
            response.split_once("\r\n\r\n").ok_or_else(|| request_failure("an incomplete response".to_owned()))?;
        match head.split_whitespace().nth(1) {
            Some("200") => Ok(body.to_owned()),
            // The server parses the faults, so a 400 is a mistake on the command line.
            Some("400") => Err(Failure::usage(body.trim_end())),
            status => Err(request_failure(format!("status {}: {}", status.unwrap_or("none"), body.trim_end()))),
        }
    }
}
