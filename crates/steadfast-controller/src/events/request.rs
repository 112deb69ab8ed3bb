//! One request, and what its answer means.

use std::time::Duration;

use http_body_util::{BodyExt, Collected, Limited};
use k8s_openapi::api::events::v1::Event;
use kube::Resource;
use kube::client::Body;
use kube::core::params::{Patch, PatchParams, PostParams};
use kube::core::{Request, Status};
use serde_json::json;
use steadfast::Connection;

use super::answer::{Answer, Refusal};
use super::series::Order;

/// How much of an answer is read, in bytes: an event, or why it was refused.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Makes the request; the number is handed back.
pub(super) async fn sent(connection: Connection, number: u64, order: Order) -> (u64, Answer) {
    (number, send(&connection, &order).await)
}

async fn send(connection: &Connection, order: &Order) -> Answer {
    let at = |namespace: Option<&str>| Request::new(Event::url_path(&(), namespace));
    let request = match order {
        Order::Create(event) => serde_json::to_vec(event)
            .map_err(kube::core::request::Error::SerializeBody)
            .and_then(|body| at(event.metadata.namespace.as_deref()).create(&PostParams::default(), body)),
        Order::Patch { namespace, name, series } => {
            at(Some(namespace)).patch(name, &PatchParams::default(), &Patch::Merge(json!({ "series": series })))
        }
    };
    // It would be the same the next time.
    let Ok(request) = request else { return Answer::Refused(Refusal::default()) };
    // Not by its client, which is patient by itself: here all have to know that the server is busy.
    let answer = match connection.send(request.map(Body::from)).await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::debug!(server = connection.server(), %error, "an event was not sent");
            return Answer::Later { code: None, asked: None };
        }
    };
    let code = answer.status().as_u16();
    let asked = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.trim().parse().ok());
    // To its end, so that the connection can be used again.
    let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    judge(code, asked.map(Duration::from_secs), &body)
}

/// What an answer means for an event: what client-go gives up, gives up, but for those that are refused for now.
fn judge(code: u16, asked: Option<Duration>, body: &[u8]) -> Answer {
    match code {
        200..=299 => return Answer::Accepted,
        // Credentials may come, as may the answer that did not come in time.
        401 | 408 | 429 | 500..=599 => return Answer::Later { code: Some(code), asked },
        404 => return Answer::Missing,
        _ => {}
    }
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    if code == 409 {
        return if status.is_already_exists() { Answer::Exists } else { Answer::Later { code: Some(code), asked } };
    }
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    let is_ending = causes.iter().any(|cause| cause.reason == "NamespaceTerminating");
    let fields = causes.into_iter().map(|cause| cause.field).filter(|field| !field.is_empty()).collect();
    Answer::Refused(Refusal { code, reason: status.reason, fields, is_ending })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str, details: &serde_json::Value) -> Answer {
        let said = json!({
            "kind": "Status", "status": "Failure", "code": code, "reason": reason, "details": details,
            "message": "Event \"a\" is invalid: note: Invalid value: \"the password is 1234\"",
        });
        judge(code, None, said.to_string().as_bytes())
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        for code in [401, 408, 429, 500, 502, 503, 504] {
            let asked = Some(Duration::from_secs(3));
            assert_eq!(judge(code, asked, b"overloaded"), Answer::Later { code: Some(code), asked });
        }
        assert_eq!(status(409, "Conflict", &json!({})), Answer::Later { code: Some(409), asked: None });
    }

    #[test]
    fn what_is_there_and_what_is_not_are_told_apart() {
        assert_eq!(status(409, "AlreadyExists", &json!({})), Answer::Exists);
        assert_eq!(judge(404, None, b"404 page not found"), Answer::Missing);
        assert_eq!(judge(201, None, b"{}"), Answer::Accepted);
    }

    #[test]
    fn what_is_refused_is_told_without_a_word_of_the_note() {
        let causes = json!({"causes": [{"reason": "FieldValueInvalid", "field": "note", "message": "1234"}]});
        let Answer::Refused(refusal) = status(422, "Invalid", &causes) else { panic!("it is refused") };
        assert_eq!(refusal.to_string(), "422 Invalid: note");
        assert!(!format!("{refusal:?}").contains("1234"));
        let Answer::Refused(refusal) = judge(413, None, b"too large") else { panic!("it is refused") };
        assert_eq!(refusal.to_string(), "413");
    }

    #[test]
    fn a_namespace_that_is_being_deleted_is_known_by_its_cause() {
        let causes = json!({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]});
        let Answer::Refused(refusal) = status(403, "Forbidden", &causes) else { panic!("it is refused") };
        assert!(refusal.is_ending);
    }
}
