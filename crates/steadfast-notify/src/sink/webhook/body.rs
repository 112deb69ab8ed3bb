//! Bodies of requests: `CloudEvents`, or the result of an expression.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::expression::{Bindings, Expression};
use crate::message::Message;
use crate::secret::Secret;

/// Body of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestBody {
    pub(super) body: String,
    /// Content type.
    pub(super) content_type: String,
    /// True if the body may contain a secret. Such a body must not be sent to other origins.
    pub(super) is_secret: bool,
}

/// Returns the body in the format of `CloudEvents` 1.0.
pub(super) fn cloud_events(messages: &[Arc<Message>], is_batched: bool) -> RequestBody {
    let events: Vec<Value> = messages.iter().map(|message| cloud_event(message)).collect();
    let (body, content_type) = match (is_batched, &events[..]) {
        (false, [event]) => (event.to_string(), "application/cloudevents+json; charset=utf-8"),
        _ => (Value::Array(events).to_string(), "application/cloudevents-batch+json; charset=utf-8"),
    };
    RequestBody { body, content_type: content_type.to_owned(), is_secret: false }
}

/// Evaluates the `body` of a sink for the messages. A string is sent unchanged, other values as JSON.
pub(super) fn evaluate_body(
    expression: &Expression,
    messages: &[Arc<Message>],
    is_batched: bool,
    secrets: &BTreeMap<String, Secret>,
    content_type: Option<&str>,
) -> Result<RequestBody, String> {
    let mut values: Vec<Value> = messages.iter().map(|message| message_fields(message)).collect();
    let message_variable =
        if is_batched { ("messages", Value::Array(values)) } else { ("message", values.pop().unwrap_or_default()) };
    let secret = |(name, secret): (&String, &Secret)| Some((name.clone(), secret.text()?.to_owned().into()));
    let values = Value::Object(secrets.iter().filter_map(secret).collect());
    let mut bindings = Bindings::for_values([message_variable, ("secrets", values)]);
    let (body, default_type) =
        match expression.evaluate(&mut bindings).map_err(|reason| format!("`body` failed: {reason}"))? {
            Value::Null => return Err("`body` returned null; return text or JSON instead".to_owned()),
            Value::String(text) => (text, "text/plain; charset=utf-8"),
            value => (value.to_string(), "application/json"),
        };
    Ok(RequestBody {
        body,
        content_type: content_type.unwrap_or(default_type).to_owned(),
        is_secret: !secrets.is_empty(),
    })
}

/// Returns a message as a variable of `body`, with two further forms of its time: seconds and nanoseconds since 1970.
fn message_fields(message: &Message) -> Value {
    let mut value = serde_json::to_value(message).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("unix_seconds".to_owned(), message.time.as_second().into());
        // As text, since a double cannot represent nanoseconds since 1970 exactly.
        fields.insert("unix_nanos".to_owned(), message.time.as_nanosecond().to_string().into());
    }
    value
}

/// Returns a message as a `CloudEvent`.
fn cloud_event(message: &Message) -> Value {
    let Message { id, time, kind, rule, cluster, resource, namespace, name, uid, data } = message;
    let subject = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
    json!({
        "specversion": "1.0", "id": id, "source": format!("/clusters/{cluster}/{resource}"),
        "type": format!("dev.steadfast.{}", kind.to_ascii_lowercase()), "subject": subject, "time": time.to_string(),
        "datacontenttype": "application/json", "rule": rule, "uid": uid, "data": data,
    })
}
