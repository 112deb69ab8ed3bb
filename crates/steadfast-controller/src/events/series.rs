//! Series: one Kubernetes event, the count of its recordings, and the requests that report the count.

use std::sync::Arc;

use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use steadfast::environment::Instant;

use super::key::{EventKey, ReferenceKey};
use super::reporter::Reporter;
use super::settings::EventSettings;

/// Time of a recording by the monotonic clock and the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordTime {
    pub(super) now: Instant,
    pub(super) wall_time: Timestamp,
}

/// State of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeriesState {
    /// No request is pending.
    Idle,
    /// The series is queued.
    Queued,
    /// A request is in flight.
    Sending,
}

/// Request to send.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EventRequest {
    Create(Box<Event>),
    Patch { namespace: String, name: String, series: EventSeries },
}

/// One event at the server, with its count.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) key: Arc<EventKey>,
    /// Note of a combined event.
    combined: Option<String>,
    pub(super) name: String,
    /// Times of the first and the last recording.
    first: Timestamp,
    last: Timestamp,
    pub(super) last_at: Instant,
    /// Number of recordings.
    pub(super) count: u64,
    /// Count that the server has acknowledged.
    acknowledged: u64,
    /// Time of the last acknowledgement, or of the first recording.
    acknowledged_at: Instant,
    /// Count in the request in flight.
    in_flight_count: u64,
    /// Sequence number of the first undelivered recording. Higher than all recordings if every recording is delivered.
    pub(super) first_undelivered: u64,
    /// Value of `first_undelivered` once the request in flight succeeds.
    first_undelivered_after: u64,
    /// True if the server has the event.
    exists: bool,
    /// True if the outcome of a create request is unknown, so the server may have the event.
    may_exist: bool,
    pub(super) attempts: u32,
    pub(super) state: SeriesState,
    /// True if the series accepts recordings.
    pub(super) is_open: bool,
    /// Sequence number of the last use, for eviction.
    pub(super) last_use: u64,
}

/// Action after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterResponse {
    /// The server has the count of the request.
    Acknowledged,
    /// Send another request immediately.
    SendNow,
    /// Send the request with another name.
    Rename,
    /// Repeat the request later.
    RetryLater,
    /// Abandon the series.
    Abandon,
}

impl Series {
    /// Starts a series with the recording `number`.
    pub(super) fn new(key: Arc<EventKey>, combined: Option<String>, name: String, at: RecordTime, number: u64) -> Self {
        Self {
            key,
            combined,
            name,
            first: at.wall_time,
            last: at.wall_time,
            last_at: at.now,
            count: 1,
            acknowledged: 0,
            acknowledged_at: at.now,
            in_flight_count: 0,
            first_undelivered: number,
            first_undelivered_after: number,
            exists: false,
            may_exist: false,
            attempts: 0,
            state: SeriesState::Idle,
            is_open: true,
            last_use: 0,
        }
    }

    /// Counts another recording with this number.
    pub(super) fn count(&mut self, at: RecordTime, number: u64) {
        if self.undelivered() == 0 {
            self.first_undelivered = number;
        }
        self.count += 1;
        self.last = self.last.max(at.wall_time);
        self.last_at = at.now;
    }

    /// Returns the number of undelivered recordings.
    pub(super) fn undelivered(&self) -> u64 {
        self.count - self.acknowledged
    }

    /// Returns true if the count should be sent: after it has doubled since the last acknowledged request, or after the
    /// refresh interval.
    pub(super) fn is_due(&self, now: Instant, settings: &EventSettings) -> bool {
        // A patch at each doubling of the count limits requests to a logarithmic number; `refresh_interval` keeps the
        // event alive.
        let is_behind = self.count >= self.acknowledged.saturating_mul(2)
            || now.since(self.acknowledged_at) >= settings.refresh_interval;
        self.undelivered() > 0 && is_behind
    }

    /// Returns the request for the current count. `next` is the number of the next recording.
    pub(super) fn next_request(&mut self, reporter: &Reporter, next: u64) -> EventRequest {
        self.state = SeriesState::Sending;
        // The response acknowledges this count, not recordings that arrive while the request is in flight.
        self.in_flight_count = self.count;
        self.first_undelivered_after = next;
        self.attempts += 1;
        let namespace = self.key.similarity.regarding.events_namespace().to_owned();
        match self.series() {
            Some(series) if self.exists => EventRequest::Patch { namespace, name: self.name.clone(), series },
            series => EventRequest::Create(Box::new(self.event(reporter, namespace, series))),
        }
    }

    /// Returns the series object. None for a single recording.
    fn series(&self) -> Option<EventSeries> {
        // The API requires a count of at least 2 for a series.
        let count = i32::try_from(self.count).unwrap_or(i32::MAX);
        (count > 1).then_some(EventSeries { count, last_observed_time: MicroTime(self.last) })
    }

    fn event(&self, reporter: &Reporter, namespace: String, series: Option<EventSeries>) -> Event {
        let EventKey { similarity, note } = &*self.key;
        let note = self.combined.as_ref().or(note.as_ref()).filter(|note| !note.is_empty());
        Event {
            action: Some(similarity.action.to_string()),
            event_time: Some(MicroTime(self.first)),
            metadata: ObjectMeta { name: Some(self.name.clone()), namespace: Some(namespace), ..ObjectMeta::default() },
            note: note.cloned(),
            reason: Some(similarity.reason.to_string()),
            regarding: Some(similarity.regarding.reference()),
            related: similarity.related.as_ref().map(ReferenceKey::reference),
            reporting_controller: Some(reporter.controller.clone()),
            reporting_instance: Some(reporter.instance.clone()),
            series,
            type_: Some(similarity.kind.as_str().to_owned()),
            ..Event::default()
        }
    }

    /// Records a successful request. Returns the number of newly delivered recordings.
    pub(super) fn acknowledge(&mut self, now: Instant) -> u64 {
        let newly_delivered = self.in_flight_count - self.acknowledged;
        (self.acknowledged, self.acknowledged_at) = (self.in_flight_count, now);
        self.first_undelivered = self.first_undelivered_after;
        (self.exists, self.may_exist, self.attempts) = (true, false, 0);
        self.state = SeriesState::Idle;
        newly_delivered
    }

    /// Returns true if the server has the event, as far as known.
    pub(super) fn exists(&self) -> bool {
        self.exists
    }

    /// Processes a 404 (`NotFound`) and returns the next action.
    pub(super) fn on_not_found(&mut self) -> AfterResponse {
        // A 404 to a create request means that the namespace is missing.
        if !self.exists {
            return AfterResponse::Abandon;
        }
        // The event expired at the server, by default after an hour. It is created again with its full count.
        (self.exists, self.may_exist) = (false, false);
        AfterResponse::SendNow
    }

    /// Processes a 409 (`AlreadyExists`) for a create request and returns the next action.
    pub(super) fn on_already_exists(&mut self) -> AfterResponse {
        if !self.may_exist {
            return AfterResponse::Rename;
        }
        // An earlier create request with an unknown outcome created the event, with the count of that time.
        (self.exists, self.may_exist) = (true, false);
        if self.in_flight_count == 1 { AfterResponse::Acknowledged } else { AfterResponse::SendNow }
    }

    /// Records that the outcome of the request is unknown.
    pub(super) fn mark_outcome_unknown(&mut self) {
        // A patch with an unknown outcome is repeated. It sets an absolute count, so a repetition changes nothing.
        self.may_exist |= !self.exists;
    }
}
