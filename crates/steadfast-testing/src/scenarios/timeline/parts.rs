//! Parts of a time line: intervals, states, events and requests with their times.

use std::time::Duration;

use steadfast_apiserver::Verb;
use steadfast_contract::Freshness;

/// Interval in which a fault was active.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultInterval {
    /// Name of the fault. A fault of the network starts with `network: `.
    pub name: String,
    /// Time at which the fault was switched on.
    pub start: Duration,
    /// Time at which the fault was switched off. Equal to `start` for a fault without a duration.
    pub end: Duration,
}

/// Course of one informer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InformerTimeline {
    /// Name of the informer in the trace.
    pub name: String,
    /// Changes of the reported freshness. The recorder samples the freshness after each change of the cache, and every
    /// 500 ms.
    pub freshness: Vec<FreshnessChange>,
    /// Calls of the informer's handlers, except for the repetitions after a panic.
    pub events: Vec<TimedEvent>,
    /// Times of the lists that replaced the content of the cache, including the first one.
    pub lists: Vec<Duration>,
}

/// Start of a state of the freshness.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FreshnessChange {
    /// Time of the change.
    pub at: Duration,
    /// State from this time on.
    pub state: Freshness,
}

/// Call of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimedEvent {
    /// Time of the call.
    pub at: Duration,
    /// Kind of the event.
    pub kind: HandlerEventKind,
    /// Namespace and name of the object.
    pub object: String,
}

/// Kind of a handler's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HandlerEventKind {
    /// The object was added.
    Added,
    /// The object was changed.
    Updated,
    /// The object was deleted.
    Deleted,
    /// The object was delivered again without a change.
    Resynced,
}

/// Request to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimedRequest {
    /// Time of arrival.
    pub at: Duration,
    /// Kind of the request.
    pub verb: Verb,
    /// Path and query.
    pub target: String,
    /// HTTP status of the response; `None` without a response.
    pub code: Option<u16>,
}

impl FaultInterval {
    /// Creates an interval.
    pub fn new(name: &str, start: Duration, end: Duration) -> Self {
        Self { name: name.to_owned(), start, end }
    }
}

impl FreshnessChange {
    /// Creates a change to `state` at the time `at`.
    pub fn new(at: Duration, state: Freshness) -> Self {
        Self { at, state }
    }
}

impl TimedEvent {
    /// Creates an event at the time `at`.
    pub fn new(at: Duration, kind: HandlerEventKind, object: &str) -> Self {
        Self { at, kind, object: object.to_owned() }
    }
}

impl TimedRequest {
    /// Creates a request that arrived at the time `at`.
    pub fn new(at: Duration, verb: Verb, target: &str, code: Option<u16>) -> Self {
        Self { at, verb, target: target.to_owned(), code }
    }
}
