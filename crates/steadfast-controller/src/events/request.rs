//! One request and its outcome.

use std::time::Duration;

use http_body_util::{BodyExt, Collected, Limited};
use k8s_openapi::api::events::v1::Event;
use kube::Resource;
use kube::client::Body;
use kube::core::params::{Patch, PatchParams, PostParams};
use kube::core::{Request, Status};
use serde_json::json;
use steadfast::Connection;

use super::outcome::{Rejection, RequestOutcome};
use super::series::EventRequest;

/// Maximum number of bytes read from a response: an event, or a rejection.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Sends a request. Returns its number with the outcome.
pub(super) async fn send(connection: Connection, number: u64, order: EventRequest) -> (u64, RequestOutcome) {
    (number, send_request(&connection, &order).await)
}

async fn send_request(connection: &Connection, order: &EventRequest) -> RequestOutcome {
    let at = |namespace: Option<&str>| Request::new(Event::url_path(&(), namespace));
    let request = match order {
        EventRequest::Create(event) => serde_json::to_vec(event)
            .map_err(kube::core::request::Error::SerializeBody)
            .and_then(|body| at(event.metadata.namespace.as_deref()).create(&PostParams::default(), body)),
        // A merge patch of the series needs no resource version, so concurrent changes never conflict.
        EventRequest::Patch { namespace, name, series } => {
            at(Some(namespace)).patch(name, &PatchParams::default(), &Patch::Merge(json!({ "series": series })))
        }
    };
    // A repeated attempt would fail again.
    let Ok(request) = request else { return RequestOutcome::Rejected(Rejection::default()) };
    // kube's client would retry on its own; here all events must pause while the server is busy.
    let response = match connection.send(request.map(Body::from)).await {
        Ok(response) => response,
        Err(error) => {
            tracing::debug!(server = connection.server(), %error, "an event was not sent");
            return RequestOutcome::RetryLater { code: None, retry_after: None };
        }
    };
    let code = response.status().as_u16();
    // Only a number of seconds is supported. API servers send no dates here.
    let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.trim().parse().ok());
    // Reads to the end, so that the connection stays usable.
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    outcome_of(code, retry_after.map(Duration::from_secs), &body)
}

/// Maps a response to an outcome. Permanent failures match client-go's, except for temporary rejections.
fn outcome_of(code: u16, retry_after: Option<Duration>, body: &[u8]) -> RequestOutcome {
    match code {
        200..=299 => return RequestOutcome::Accepted,
        // Credentials may be renewed, and a timed-out request may succeed later.
        401 | 408 | 429 | 500..=599 => return RequestOutcome::RetryLater { code: Some(code), retry_after },
        404 => return RequestOutcome::Missing,
        _ => {}
    }
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    if code == 409 {
        return if status.is_already_exists() {
            RequestOutcome::Exists
        } else {
            RequestOutcome::RetryLater { code: Some(code), retry_after }
        };
    }
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    // During the deletion of a namespace, the server rejects new objects with 403 and this cause.
    let is_ending = causes.iter().any(|cause| cause.reason == "NamespaceTerminating");
    let fields = causes.into_iter().map(|cause| cause.field).filter(|field| !field.is_empty()).collect();
    RequestOutcome::Rejected(Rejection { code, reason: status.reason, fields, is_ending })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str, details: &serde_json::Value) -> RequestOutcome {
        let body = json!({
            "kind": "Status", "status": "Failure", "code": code, "reason": reason, "details": details,
            "message": "Event \"a\" is invalid: note: Invalid value: \"the password is 1234\"",
        });
        outcome_of(code, None, body.to_string().as_bytes())
    }

    #[test]
    fn temporary_codes_are_retried() {
        for code in [401, 408, 429, 500, 502, 503, 504] {
            let retry_after = Some(Duration::from_secs(3));
            assert_eq!(
                outcome_of(code, retry_after, b"overloaded"),
                RequestOutcome::RetryLater { code: Some(code), retry_after }
            );
        }
        assert_eq!(
            status(409, "Conflict", &json!({})),
            RequestOutcome::RetryLater { code: Some(409), retry_after: None }
        );
    }

    #[test]
    fn existing_and_missing_are_distinguished() {
        assert_eq!(status(409, "AlreadyExists", &json!({})), RequestOutcome::Exists);
        assert_eq!(outcome_of(404, None, b"404 page not found"), RequestOutcome::Missing);
        assert_eq!(outcome_of(201, None, b"{}"), RequestOutcome::Accepted);
    }

    #[test]
    fn rejection_omits_the_note() {
        let causes = json!({"causes": [{"reason": "FieldValueInvalid", "field": "note", "message": "1234"}]});
        let RequestOutcome::Rejected(rejection) = status(422, "Invalid", &causes) else {
            panic!("the event is rejected")
        };
        assert_eq!(rejection.to_string(), "422 Invalid: note");
        assert!(!format!("{rejection:?}").contains("1234"));
        let RequestOutcome::Rejected(rejection) = outcome_of(413, None, b"too large") else {
            panic!("the event is rejected")
        };
        assert_eq!(rejection.to_string(), "413");
    }

    #[test]
    fn terminating_namespace_is_detected() {
        let causes = json!({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]});
        let RequestOutcome::Rejected(rejection) = status(403, "Forbidden", &causes) else {
            panic!("the event is rejected")
        };
        assert!(rejection.is_ending);
    }
}
