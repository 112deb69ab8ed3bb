//! Injected responses: rules that replace the response of selected requests.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::records::{RequestRecord, Verb};
use crate::status::Status;

/// Selection of requests. Matches all requests unless it is narrowed.
#[derive(Clone, Debug, Default)]
pub struct RequestRule {
    verbs: Vec<Verb>,
    resource: Option<String>,
    namespace: Option<String>,
    remaining_uses: Option<u32>,
}

impl RequestRule {
    /// Creates a rule for every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Restricts the rule to requests with this verb. Further calls add verbs.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    /// Restricts the rule to a resource: `pods`, or `deployments.apps` with its group.
    #[must_use]
    pub fn resource(mut self, resource: &str) -> Self {
        self.resource = Some(resource.to_owned());
        self
    }

    /// Restricts the rule to requests in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Restricts the rule to the next `times` matching requests.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.remaining_uses = Some(times);
        self
    }

    fn is_for(&self, replica: Option<usize>, request: &RequestRecord) -> bool {
        let is_resource = |resource_name: &String| {
            request
                .resource
                .as_ref()
                .is_some_and(|resource| resource.resource() == resource_name || resource.to_string() == *resource_name)
        };
        // Whole segments are compared, so that a rule for `shop` does not match requests of `shop-2`.
        let is_in_namespace = |namespace: &String| {
            let mut segments = request.path.split('/');
            segments.any(|segment| segment == "namespaces") && segments.next() == Some(namespace.as_str())
        };
        self.remaining_uses != Some(0)
            && replica.is_none_or(|replica| replica == request.replica)
            && (self.verbs.is_empty() || self.verbs.contains(&request.verb))
            && self.resource.as_ref().is_none_or(is_resource)
            && self.namespace.as_ref().is_none_or(is_in_namespace)
    }
}

/// Response that replaces the real one.
#[derive(Clone, Debug, PartialEq)]
pub enum InjectedResponse {
    /// Status as an HTTP response.
    Status(Status),
    /// Status within a watch: HTTP 200 and one `ERROR` event, then the end of the stream. Other requests receive a
    /// plain status.
    InStream(Status),
    /// HTTP 200 and one `ERROR` event with this object instead of a `Status`, then the end of the stream. Requests
    /// other than watches receive status 500.
    ErrorObject(Value),
    /// `403` with the message of a real server.
    Forbidden,
}

impl InjectedResponse {
    /// Creates a response with an HTTP code and its usual reason and message.
    pub fn code(code: u16) -> Self {
        Self::Status(Status::of_code(code))
    }

    /// Creates a `ResourceVersionTooLarge` response in the form of a server version.
    pub fn too_large(form: TooLargeVersionForm) -> Self {
        let cause_form = Status::too_large_resource_version(9_000_000, 1);
        // Servers report this condition in three forms, depending on the release.
        Self::Status(match form {
            TooLargeVersionForm::Cause => cause_form,
            TooLargeVersionForm::CauseMessage => cause_form
                .with_details(json!({"causes": [{"message": "Too large resource version"}], "retryAfterSeconds": 1})),
            TooLargeVersionForm::Message => cause_form.with_details(Value::Null),
        })
    }

    /// Creates a response with an HTTP code and a `Retry-After` header. The header contains `wait` in whole seconds,
    /// rounded up.
    pub fn retry_after(code: u16, wait: Duration) -> Self {
        Self::Status(Status::of_code(code).with_retry_after(wait))
    }
}

/// Form of the error for a version that the server has not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLargeVersionForm {
    /// A cause with its own reason: since 1.19.
    Cause,
    /// A cause with a message only: 1.17 and 1.18.
    CauseMessage,
    /// The message of the status only: before 1.17.
    Message,
}

impl From<Status> for InjectedResponse {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Corruption of an object. The identity of the object stays readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectCorruption {
    /// Fields of a wrong type.
    WrongTypes,
    /// A field nested this number of levels deep, and `managedFields` of the same depth.
    Deep(usize),
    /// A string of this number of bytes.
    Huge(usize),
}

/// Corruption of the body of a real response; for a stream, of its first chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyCorruption {
    /// A changed byte in the middle makes the JSON invalid.
    Malformed,
    /// The body ends in the middle; the HTTP response itself is valid.
    Truncated,
    /// A string of this number of bytes is added, which makes one object that large.
    Oversized(usize),
    /// The list and its objects have no version, and the objects have no UID, like `metrics.k8s.io`.
    MissingIdentity,
    /// The content type and the body are HTML.
    WrongContentType,
}

/// Effect of a rule.
#[derive(Clone, Debug)]
pub(crate) enum RuleEffect {
    Respond(InjectedResponse),
    Corrupt(BodyCorruption),
    /// A delay, and then a replacement of the response, if any.
    Delay(Duration, Option<InjectedResponse>),
}

/// Active rules.
#[derive(Default)]
pub(crate) struct Rules(Mutex<Vec<(Option<usize>, RequestRule, RuleEffect)>>);

impl Rules {
    pub(crate) fn add(&self, replica: Option<usize>, rule: RequestRule, effect: RuleEffect) {
        self.0.lock().push((replica, rule, effect));
    }

    /// Removes the rules that were added for a replica. Removes all rules if `replica` is `None`.
    pub(crate) fn clear(&self, replica: Option<usize>) {
        let mut rules = self.0.lock();
        rules.retain(|(rule_replica, _, _)| replica.is_some() && *rule_replica != replica);
    }

    /// Returns the first rule for a request, and counts its use.
    pub(crate) fn apply(&self, request: &RequestRecord) -> Option<RuleEffect> {
        let mut rules = self.0.lock();
        // The first matching rule counts, in the order of their addition.
        let (_, rule, effect) = rules.iter_mut().find(|(replica, rule, _)| rule.is_for(*replica, request))?;
        if let Some(times) = &mut rule.remaining_uses {
            *times -= 1;
        }
        Some(effect.clone())
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.lock().iter()).finish()
    }
}
