//! A server that takes `CloudEvents` 1.0, one a request (structured) or several (batched).
//!
//! Requests go over the library's own connections: a dead one is never handed out again, proxies and certificates are the
//! same as for API servers. `Retry-After` is kept. What the server answers with 4xx it will never take, but for 408, 425
//! and 429, which are for another time as 5xx are.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use kube::Client;
use kube::client::Body;
use ring::hmac;
use serde_json::{Value, json};
use steadfast::Connection;
use tokio::time::timeout;

use super::stream::{Delivering, Stream};
use crate::message::Message;
use crate::outcome::Outcome;
use crate::secret::Secret;

/// The header that a body's signature is in: `sha256=` and the HMAC in hexadecimal digits.
pub const SIGNATURE: &str = "steadfast-signature";

/// A server that takes `CloudEvents`.
pub struct Webhook {
    client: Client,
    path: String,
    headers: HeaderMap,
    key: Option<hmac::Key>,
    is_batched: bool,
    timeout: Duration,
}

impl Webhook {
    /// Sends to `path` of the server that `connection` leads to.
    pub(super) fn new(
        connection: &Connection,
        path: String,
        headers: HeaderMap,
        key: Option<&Secret>,
        is_batched: bool,
        timeout: Duration,
    ) -> Self {
        let key = key.map(|key| hmac::Key::new(hmac::HMAC_SHA256, key.bytes()));
        Self { client: connection.client(), path, headers, key, is_batched, timeout }
    }

    fn request(&self, messages: &[Arc<Message>]) -> Result<Request<Body>, http::Error> {
        let events: Vec<Value> = messages.iter().map(|message| cloud_event(message)).collect();
        let (body, kind) = match (self.is_batched, &events[..]) {
            (false, [event]) => (event.to_string(), "application/cloudevents+json; charset=utf-8"),
            _ => (Value::Array(events).to_string(), "application/cloudevents-batch+json; charset=utf-8"),
        };
        let mut request = Request::builder().method(Method::POST).uri(&self.path);
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.headers.clone());
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            if let Some(key) = &self.key {
                let mut signature = "sha256=".to_owned();
                for byte in hmac::sign(key, body.as_bytes()).as_ref() {
                    let _ = write!(signature, "{byte:02x}");
                }
                headers.insert(HeaderName::from_static(SIGNATURE), HeaderValue::try_from(signature)?);
            }
        }
        request.body(Body::from(body.into_bytes()))
    }
}

impl Stream for Webhook {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> Delivering<'a> {
        Box::pin(async move {
            let request = match self.request(messages) {
                Ok(request) => request,
                Err(error) => return Outcome::Refused { why: format!("it makes no request: {error}") },
            };
            match timeout(self.timeout, self.client.send(request)).await {
                Ok(Ok(response)) => outcome(&response, Timestamp::now()),
                Ok(Err(error)) => Outcome::Retry { after: None, why: innermost(&error) },
                Err(_) => Outcome::Retry { after: None, why: format!("there was no answer within {:?}", self.timeout) },
            }
        })
    }
}

/// A message as a `CloudEvent`.
fn cloud_event(message: &Message) -> Value {
    let Message { id, time, kind, rule, cluster, resource, namespace, name, uid, data } = message;
    let subject = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
    json!({
        "specversion": "1.0", "id": id, "source": format!("/clusters/{cluster}/{resource}"),
        "type": format!("dev.steadfast.{}", kind.to_ascii_lowercase()), "subject": subject, "time": time.to_string(),
        "datacontenttype": "application/json", "rule": rule, "uid": uid, "data": data,
    })
}

fn outcome<B>(response: &Response<B>, now: Timestamp) -> Outcome {
    let status = response.status();
    let why = format!("the server answered {status}");
    if status.is_success() {
        return Outcome::Delivered;
    }
    let is_for_later = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    if status.is_client_error() && !is_for_later.contains(&status) {
        return Outcome::Refused { why };
    }
    let after = response.headers().get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?.trim(), now));
    Outcome::Retry { after, why }
}

/// How long `Retry-After` asks for: seconds, or until a date.
fn retry_after(asked: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = rfc2822::DateTimeParser::new().parse_timestamp(asked).ok()?;
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

/// What went wrong, without the request.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, after: Option<&str>) -> Outcome {
        let mut response = Response::builder().status(status);
        if let Some(after) = after {
            response = response.header(RETRY_AFTER, after);
        }
        let now = "2026-01-02T03:04:05Z".parse().expect("a time");
        outcome(&response.body(()).expect("an answer"), now)
    }

    #[test]
    fn what_an_answer_means_is_known_by_its_status() {
        assert_eq!((answered(200, None), answered(202, None)), (Outcome::Delivered, Outcome::Delivered));
        for status in [400, 401, 403, 404, 410, 413, 422] {
            assert!(matches!(answered(status, None), Outcome::Refused { .. }), "{status}");
        }
        for status in [301, 408, 425, 429, 500, 502, 503, 504] {
            assert!(matches!(answered(status, None), Outcome::Retry { after: None, .. }), "{status}");
        }
    }

    #[test]
    fn retry_after_is_understood_in_seconds_and_as_a_date() {
        let after = |asked| match answered(503, Some(asked)) {
            Outcome::Retry { after, .. } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        assert_eq!(after("Fri, 02 Jan 2026 03:05:05 GMT"), Some(Duration::from_secs(60)));
        // It is over already.
        assert_eq!(after("Fri, 02 Jan 2026 03:00:05 GMT"), Some(Duration::ZERO));
        assert_eq!(after("soon"), None);
    }
}
