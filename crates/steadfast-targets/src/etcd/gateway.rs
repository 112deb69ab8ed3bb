//! Requests to etcd's JSON gateway. A request goes to the endpoint that responded last. A failed read continues at the
//! next endpoint.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value as Json, json};
use tokio::time::timeout;

use super::client::{Body, EtcdClient};
use super::error::EtcdError;
use crate::rotation::Rotation;
use crate::step_runner::escape_text;

/// Timeout for connecting to an endpoint and receiving the head of its response, and for each further part of the
/// response.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Upper bound of a response.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

/// Permission to send a request to another endpoint after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// Read, or idempotent write.
    Allowed,
    /// Other write. Without a response, only the next read shows its outcome.
    Never,
}

/// A user of etcd.
#[derive(Clone)]
pub(super) struct User {
    pub(super) name: String,
    /// Returns the password for a new token.
    pub(super) password: Arc<dyn Fn() -> Result<String, String> + Send + Sync>,
}

#[derive(Clone)]
pub(super) struct Gateway<R> {
    client: Arc<R>,
    /// Scheme and authority of each endpoint.
    endpoints: Rotation<String>,
    all_endpoints: Vec<String>,
    pub(super) user: Option<User>,
    token: Arc<Mutex<Option<String>>>,
}

impl<R> fmt::Debug for Gateway<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| &user.name);
        f.debug_struct("Gateway").field("endpoints", &self.all_endpoints).field("user", &user).finish_non_exhaustive()
    }
}

impl<R: EtcdClient> Gateway<R> {
    pub(super) fn new(client: R, endpoints: &[&str], schemes: &[&str]) -> Result<Self, EtcdError> {
        let parsed = endpoints.iter().map(|endpoint| {
            parse_endpoint(endpoint, schemes).ok_or_else(|| EtcdError::Endpoint((*endpoint).to_owned()))
        });
        let all_endpoints = parsed.collect::<Result<Vec<_>, _>>()?;
        if all_endpoints.is_empty() {
            return Err(EtcdError::Endpoint(String::new()));
        }
        let (client, endpoints) = (Arc::new(client), Rotation::new(all_endpoints.clone()));
        Ok(Self { client, endpoints, all_endpoints, user: None, token: Arc::default() })
    }

    /// Returns the endpoints in the format of etcdctl.
    pub(super) fn endpoints(&self) -> String {
        self.all_endpoints
            .iter()
            .map(|endpoint| endpoint.strip_prefix("http://").unwrap_or(endpoint))
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Returns the endpoints in the order of requests.
    pub(super) fn order(&self) -> Vec<String> {
        self.endpoints.order()
    }

    pub(super) fn unexpected(&self, method: &'static str, reason: &str) -> EtcdError {
        EtcdError::Unexpected { method, reason: format!("{reason} (from {})", self.endpoints()) }
    }

    /// Returns the response to `body` at `/v3/METHOD`.
    pub(super) async fn request(&self, retry: Retry, method: &'static str, body: &Json) -> Result<Json, EtcdError> {
        let mut first_error = None;
        for endpoint in self.endpoints.order() {
            match self.request_at(&endpoint, method, body).await {
                Err(error) if error.may_succeed_elsewhere() => {
                    // The endpoint may have executed the request before the connection failed.
                    if retry == Retry::Never {
                        return Err(error);
                    }
                    first_error = first_error.or(Some(error));
                }
                result => return result,
            }
        }
        Err(first_error.unwrap_or(EtcdError::EmptyPrefixOrMark))
    }

    /// Returns the response of one endpoint.
    pub(super) async fn request_at(
        &self,
        endpoint: &str,
        method: &'static str,
        body: &Json,
    ) -> Result<Json, EtcdError> {
        let result = self.request_with_token(endpoint, method, body).await;
        self.record_result(endpoint, &result);
        result
    }

    async fn request_with_token(&self, endpoint: &str, method: &'static str, body: &Json) -> Result<Json, EtcdError> {
        self.ensure_token(endpoint).await?;
        match self.attempt(endpoint, method, body).await {
            // The token has expired: the request was rejected, and may be sent again.
            Err(error) if self.user.is_some() && error.needs_new_token() => {
                self.authenticate(endpoint).await?;
                self.attempt(endpoint, method, body).await
            }
            result => result,
        }
    }

    /// Opens a stream of responses to `body` at `/v3/METHOD` of one endpoint.
    pub(super) async fn open(&self, endpoint: &str, method: &'static str, body: &Json) -> Result<Lines, EtcdError> {
        let result = self.try_open(endpoint, method, body).await;
        if result.is_err() {
            self.record_result(endpoint, &result);
        }
        result
    }

    async fn try_open(&self, endpoint: &str, method: &'static str, body: &Json) -> Result<Lines, EtcdError> {
        self.ensure_token(endpoint).await?;
        let (status, body) = self.send(endpoint, method, body).await?;
        let lines = Lines { endpoint: endpoint.to_owned(), body, buffer: Vec::new() };
        if status.is_success() {
            return Ok(lines);
        }
        let text = lines.read_to_end().await?;
        let error = self.parse_response(method, status, &text).err();
        let error = error.unwrap_or_else(|| self.unexpected(method, "it is not a stream"));
        self.forget_token(&error);
        Err(error)
    }

    fn record_result<T>(&self, endpoint: &str, result: &Result<T, EtcdError>) {
        match result {
            Err(error) if error.may_succeed_elsewhere() => self.endpoints.record_failure(&endpoint.to_owned()),
            _ => self.endpoints.record_success(&endpoint.to_owned()),
        }
    }

    /// Drops the token if `error` concerns it, so that the next attempt requests another token.
    pub(super) fn forget_token(&self, error: &EtcdError) {
        if error.needs_new_token() {
            *self.token() = None;
        }
    }

    async fn ensure_token(&self, endpoint: &str) -> Result<(), EtcdError> {
        let is_missing = self.user.is_some() && self.token().is_none();
        if is_missing { self.authenticate(endpoint).await } else { Ok(()) }
    }

    fn token(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock()
    }

    async fn authenticate(&self, endpoint: &str) -> Result<(), EtcdError> {
        let Some(User { name, password }) = &self.user else { return Ok(()) };
        // The token is cleared first: an expired token on the authentication request itself would be rejected.
        *self.token() = None;
        let password = password().map_err(|reason| EtcdError::Password { user: name.clone(), reason })?;
        let method = "auth/authenticate";
        let response = self.attempt(endpoint, method, &json!({ "name": name, "password": password })).await?;
        let token = response["token"].as_str().ok_or_else(|| self.unexpected(method, "it has no token"))?;
        *self.token() = Some(token.to_owned());
        Ok(())
    }

    async fn attempt(&self, endpoint: &str, method: &'static str, body: &Json) -> Result<Json, EtcdError> {
        let (status, body) = self.send(endpoint, method, body).await?;
        let text = Lines { endpoint: endpoint.to_owned(), body, buffer: Vec::new() }.read_to_end().await?;
        self.parse_response(method, status, &text)
    }

    async fn send(&self, endpoint: &str, method: &'static str, body: &Json) -> Result<(StatusCode, Body), EtcdError> {
        let unreachable = |reason: String| EtcdError::Unreachable { endpoint: display_endpoint(endpoint), reason };
        let mut request = Request::post(format!("{endpoint}/v3/{method}")).header(CONTENT_TYPE, "application/json");
        if let Some(token) = &*self.token() {
            let mut token =
                HeaderValue::from_str(token).map_err(|_| self.unexpected(method, "its token is unusable"))?;
            token.set_sensitive(true);
            request = request.header(AUTHORIZATION, token);
        }
        let body = serde_json::to_vec(body).map_err(|error| unreachable(error.to_string()))?;
        let request = request.body(body).map_err(|error| unreachable(error.to_string()))?;
        let sent = timeout(ATTEMPT_TIMEOUT, self.client.send(request)).await;
        let response: Response<Body> = sent.map_err(|_| unreachable(timeout_message()))?.map_err(unreachable)?;
        let (head, body) = response.into_parts();
        Ok((head.status, body))
    }

    fn parse_response(&self, method: &'static str, status: StatusCode, text: &[u8]) -> Result<Json, EtcdError> {
        let json: Result<Json, _> = serde_json::from_slice(text);
        if !status.is_success() {
            // An error page of a proxy contains no message of etcd.
            let message = json.ok().and_then(|json| json["error"].as_str().map(escape_text));
            return Err(EtcdError::Rejected { method, message: message.unwrap_or_else(|| status.to_string()) });
        }
        let json = json.map_err(|error| self.unexpected(method, &format!("it is not JSON: {error}")))?;
        // The gateway wraps stream errors in an object and reports other errors as text.
        match json["error"]["message"].as_str().or(json["error"].as_str()) {
            Some(message) => Err(EtcdError::Rejected { method, message: escape_text(message) }),
            None => Ok(json),
        }
    }
}

fn timeout_message() -> String {
    format!("no response within {ATTEMPT_TIMEOUT:?}")
}

/// Returns an endpoint for error messages.
fn display_endpoint(endpoint: &str) -> String {
    endpoint.strip_prefix("http://").unwrap_or(endpoint).to_owned()
}

/// Returns scheme and authority of a client URL.
fn parse_endpoint(endpoint: &str, schemes: &[&str]) -> Option<String> {
    let uri: Uri = endpoint.parse().ok()?;
    let scheme = uri.scheme_str().filter(|scheme| schemes.contains(scheme))?;
    let is_root = matches!(uri.path(), "" | "/") && uri.query().is_none();
    let authority = uri.authority().filter(|authority| is_root && authority.port_u16().is_some())?;
    (!authority.as_str().contains('@')).then(|| format!("{scheme}://{authority}"))
}

/// Response that is read incrementally.
pub(super) struct Lines {
    pub(super) endpoint: String,
    body: Body,
    buffer: Vec<u8>,
}

impl Lines {
    /// Returns the next part; `None` at the end.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, EtcdError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => return Err(self.unreachable(error.to_string())),
            }
        }
    }

    fn unreachable(&self, reason: String) -> EtcdError {
        EtcdError::Unreachable { endpoint: display_endpoint(&self.endpoint), reason }
    }

    /// Returns the remaining body. Each part has its own deadline, so that a large response may take longer than a
    /// stalled one.
    async fn read_to_end(mut self) -> Result<Vec<u8>, EtcdError> {
        loop {
            let chunk = timeout(ATTEMPT_TIMEOUT, self.next_chunk()).await;
            let Some(chunk) = chunk.map_err(|_| self.unreachable(timeout_message()))?? else { return Ok(self.buffer) };
            if self.buffer.len() + chunk.len() > MAX_RESPONSE_BYTES {
                // The caller requests a smaller page after this error.
                return Err(EtcdError::Rejected { method: "kv/range", message: TOO_LARGE.to_owned() });
            }
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// Returns the next line; `None` at the end. A line of more than `limit` bytes is returned incomplete. No data is
    /// lost if the caller drops the future and calls `next` again.
    pub(super) async fn next_line(&mut self, limit: usize) -> Result<Option<Vec<u8>>, EtcdError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            if self.buffer.len() > limit {
                // A line above the limit is returned incomplete. The caller cannot parse it, and treats it as a change.
                return Ok(Some(std::mem::take(&mut self.buffer)));
            }
            match self.next_chunk().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.buffer))),
            }
        }
    }
}

/// A page of keys was larger than a response may be.
pub(super) const TOO_LARGE: &str = "the response is larger than 64 MiB";
