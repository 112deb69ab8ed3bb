//! One event with its count.

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
    pub(super) wall: Timestamp,
}

/// State of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
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
    /// Number of recordings, and the number that the server has counted.
    pub(super) count: u64,
    pub(super) told: u64,
    told_at: Instant,
    /// Count in the request in flight.
    asked: u64,
    /// Number of the first undelivered recording, and its value after the request in flight succeeds. A number beyond all
    /// recordings means none.
    pub(super) since: u64,
    after: u64,
    /// True if the server has the event; true if the server may have the event after a request without a response.
    exists: bool,
    is_in_doubt: bool,
    pub(super) tries: u32,
    pub(super) place: Place,
    /// True if the series accepts recordings, and the sequence of its last use.
    pub(super) is_open: bool,
    pub(super) used: u64,
}

/// Action after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterResponse {
    /// The server has the counts of the request.
    Told,
    /// Send another request immediately.
    Next,
    /// Send the request with another name.
    Rename,
    /// Repeat the request later.
    Later,
    /// Abandon the series.
    Abandon,
}

impl Series {
    /// Starts a series with recording number `since`.
    pub(super) fn new(key: Arc<EventKey>, combined: Option<String>, name: String, at: RecordTime, since: u64) -> Self {
        Self {
            key,
            combined,
            name,
            first: at.wall,
            last: at.wall,
            last_at: at.now,
            count: 1,
            told: 0,
            told_at: at.now,
            asked: 0,
            since,
            after: since,
            exists: false,
            is_in_doubt: false,
            tries: 0,
            place: Place::Idle,
            is_open: true,
            used: 0,
        }
    }

    /// Counts another recording with this number.
    pub(super) fn count(&mut self, at: RecordTime, number: u64) {
        if self.undelivered() == 0 {
            self.since = number;
        }
        self.count += 1;
        self.last = self.last.max(at.wall);
        self.last_at = at.now;
    }

    /// Returns the number of undelivered recordings.
    pub(super) fn undelivered(&self) -> u64 {
        self.count - self.told
    }

    /// Returns true if the count should be sent: if it doubled since the last request, or after the refresh interval.
    /// Request counts therefore grow logarithmically.
    pub(super) fn is_due(&self, now: Instant, settings: &EventSettings) -> bool {
        // A patch at each doubling of the count limits requests to a logarithmic number; `refresh` keeps the event
        // alive.
        let is_behind = self.count >= self.told.saturating_mul(2) || now.since(self.told_at) >= settings.refresh;
        self.undelivered() > 0 && is_behind
    }

    /// Returns the request for the current count. `next` is the number of the next recording.
    pub(super) fn order(&mut self, reporter: &Reporter, next: u64) -> EventRequest {
        self.place = Place::Sending;
        // The response acknowledges this count, not recordings that arrive while the request is in flight.
        self.asked = self.count;
        self.after = next;
        self.tries += 1;
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
    pub(super) fn told(&mut self, now: Instant) -> u64 {
        let more = self.asked - self.told;
        (self.told, self.told_at, self.since) = (self.asked, now, self.after);
        (self.exists, self.is_in_doubt, self.tries) = (true, false, 0);
        self.place = Place::Idle;
        more
    }

    /// Returns true if the server has the event, as far as known.
    pub(super) fn exists(&self) -> bool {
        self.exists
    }

    /// Returns the action after a 404.
    pub(super) fn is_missing(&mut self) -> AfterResponse {
        // For a create request, the namespace is missing.
        if !self.exists {
            return AfterResponse::Abandon;
        }
        // The event expired at the server, by default after an hour. It is created again with its full count.
        (self.exists, self.is_in_doubt) = (false, false);
        AfterResponse::Next
    }

    /// Returns the action after a conflict with an existing name.
    pub(super) fn is_there(&mut self) -> AfterResponse {
        if !self.is_in_doubt {
            return AfterResponse::Rename;
        }
        // An earlier request without a response created the event, with the count of that time.
        (self.exists, self.is_in_doubt) = (true, false);
        if self.asked == 1 { AfterResponse::Told } else { AfterResponse::Next }
    }

    /// Records that the outcome of the request is unknown.
    pub(super) fn doubt(&mut self) {
        // A patch without a response is repeated. It sets an absolute count, so a repetition changes nothing.
        self.is_in_doubt |= !self.exists;
    }
}
