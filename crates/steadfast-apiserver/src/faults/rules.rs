//! Answers on demand: which requests get another answer than the true one.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::records::{RequestRecord, Verb};
use crate::status::Status;

/// Which requests a rule is for: all, until narrowed.
#[derive(Clone, Debug, Default)]
pub struct RequestRule {
    verbs: Vec<Verb>,
    resource: Option<String>,
    namespace: Option<String>,
    times: Option<u32>,
}

impl RequestRule {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Only requests with this verb; called again, with one of these verbs.
    #[must_use]
    pub fn verb(mut self, verb: Verb) -> Self {
        self.verbs.push(verb);
        self
    }

    /// Only requests for this resource: `pods`, or with its group `deployments.apps`.
    #[must_use]
    pub fn resource(mut self, resource: &str) -> Self {
        self.resource = Some(resource.to_owned());
        self
    }

    /// Only requests within this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only the next so many of these requests.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    fn is_for(&self, replica: Option<usize>, request: &RequestRecord) -> bool {
        let named = |wanted: &String| {
            request
                .resource
                .as_ref()
                .is_some_and(|resource| resource.resource() == wanted || resource.to_string() == *wanted)
        };
        let within = |namespace: &String| request.path.contains(&format!("/namespaces/{namespace}"));
        self.times != Some(0)
            && replica.is_none_or(|replica| replica == request.replica)
            && (self.verbs.is_empty() || self.verbs.contains(&request.verb))
            && self.resource.as_ref().is_none_or(named)
            && self.namespace.as_ref().is_none_or(within)
    }
}

/// An answer in place of the true one.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// This status, as an HTTP answer.
    Status(Status),
    /// This status within a watch: HTTP 200, one `ERROR` event, the end. Requests that are no watch get it plainly.
    InStream(Status),
    /// HTTP 200 and one `ERROR` event whose object is this and not a `Status`, then the end. Other requests than watches
    /// get status 500.
    ErrorObject(Value),
    /// `403` in the words of the real server.
    Forbidden,
}

impl Answer {
    /// A bare HTTP code with the usual reason and message.
    pub fn code(code: u16) -> Self {
        Self::Status(Status::of_code(code))
    }

    /// `ResourceVersionTooLarge`, as servers of different age spell it.
    pub fn too_large(spelling: TooLarge) -> Self {
        let known = Status::too_large_resource_version(9_000_000, 1);
        Self::Status(match spelling {
            TooLarge::Cause => known,
            TooLarge::CauseMessage => known
                .with_details(json!({"causes": [{"message": "Too large resource version"}], "retryAfterSeconds": 1})),
            TooLarge::Message => known.with_details(Value::Null),
        })
    }

    /// A bare HTTP code with `Retry-After`.
    pub fn retry_after(code: u16, wait: Duration) -> Self {
        Self::Status(Status::of_code(code).with_retry_after(wait))
    }
}

/// How a server says that it has not reached a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLarge {
    /// By a cause with a reason of its own: since 1.19.
    Cause,
    /// By a cause that has only a message: 1.17 and 1.18.
    CauseMessage,
    /// By the message of the whole alone: before that.
    Message,
}

impl From<Status> for Answer {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// How an object is sent that is not sent as it is. Who it is stays readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoiling {
    /// With fields of a wrong type.
    WrongTypes,
    /// With a field that is nested so many levels deep, and `managedFields` as deep.
    Deep(usize),
    /// With a text of so many bytes.
    Huge(usize),
}

/// What is done to the body of a true answer; of a stream, to its first chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// A byte in its middle makes it no JSON.
    Malformed,
    /// It ends in its middle, in good order as far as HTTP goes.
    Truncated,
    /// A text of so many bytes is put into it, which makes one object that large.
    Oversized(usize),
    /// Neither the list nor its objects have a version, and the objects no UID, as with `metrics.k8s.io`.
    Anonymous,
    /// It is said to be HTML, and is.
    WrongContentType,
}

/// What the rules say of a request.
#[derive(Clone, Debug)]
pub(crate) enum Ruling {
    Answer(Answer),
    Corrupt(Corruption),
    /// So late, and then this in place of the truth, if anything.
    Late(Duration, Option<Answer>),
}

/// The rules in force.
#[derive(Default)]
pub(crate) struct Rules(Mutex<Vec<(Option<usize>, RequestRule, Ruling)>>);

impl Rules {
    pub(crate) fn add(&self, replica: Option<usize>, rule: RequestRule, ruling: Ruling) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((replica, rule, ruling));
    }

    /// Takes back the rules of a replica, or with `None` all.
    pub(crate) fn clear(&self, replica: Option<usize>) {
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rules.retain(|(of, _, _)| replica.is_some() && *of != replica);
    }

    /// The first rule for a request, which counts as used.
    pub(crate) fn apply(&self, request: &RequestRecord) -> Option<Ruling> {
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, rule, ruling) = rules.iter_mut().find(|(replica, rule, _)| rule.is_for(*replica, request))?;
        if let Some(times) = &mut rule.times {
            *times -= 1;
        }
        Some(ruling.clone())
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.lock().unwrap_or_else(PoisonError::into_inner).iter()).finish()
    }
}
