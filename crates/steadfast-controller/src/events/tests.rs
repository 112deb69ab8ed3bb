//! Tests of the correlator with scripted recordings and responses, without I/O.

mod ends;
mod limits;
mod model;
mod responses;
mod series;

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use steadfast::environment::Instant;

use super::correlate::{AbandonedEvents, Correlator, RecordResult, SenderAction};
use super::draft::EventDraft;
use super::outcome::{Rejection, RequestOutcome};
use super::reporter::Reporter;
use super::series::{EventRequest, RecordTime};
use super::settings::EventSettings;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const RETRY_LATER: RequestOutcome = RequestOutcome::RetryLater { code: None, retry_after: None };

/// Recorder with scripted responses.
struct Script {
    correlator: Correlator,
    seconds: u64,
    in_flight: Vec<(u64, EventRequest)>,
}

impl Script {
    fn new() -> Self {
        Self::with(EventSettings::default())
    }

    fn with(settings: EventSettings) -> Self {
        let reporter = Reporter::new("web".to_owned(), Some("web-1".to_owned())).expect("a valid name");
        Self { correlator: Correlator::new(reporter, settings), seconds: 0, in_flight: Vec::new() }
    }

    fn now(&self) -> Instant {
        Instant::from_zero(Duration::from_secs(self.seconds))
    }

    fn time(&self) -> RecordTime {
        let wall_time = Timestamp::new(1_800_000_000 + self.seconds.cast_signed(), 0).expect("a valid time");
        RecordTime { now: self.now(), wall_time }
    }

    fn advance(&mut self, seconds: u64) {
        self.seconds += seconds;
    }

    fn publish(&mut self, about: &ObjectReference, draft: EventDraft) -> RecordResult {
        self.correlator.record(about.clone(), draft, self.time())
    }

    /// Records an event with this note about `web-0`.
    fn note(&mut self, note: &str) -> RecordResult {
        self.publish(&pod("web-0"), EventDraft::normal("Started", "Starting").note(note))
    }

    /// Returns the requests to send now.
    fn send_pending(&mut self) -> Vec<String> {
        let mut sent = Vec::new();
        while let SenderAction::Send(number, order) = self.correlator.next(self.now()) {
            sent.push(describe(&order));
            self.in_flight.push((number, order));
        }
        sent
    }

    /// Responds to the first request in flight.
    fn respond(&mut self, outcome: RequestOutcome) -> Option<AbandonedEvents> {
        let (number, _) = self.in_flight.remove(0);
        self.correlator.on_outcome(number, outcome, self.now(), u64::MAX)
    }

    /// Sends and accepts all requests until none remains.
    fn send_all(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            all.extend(self.send_pending());
            if self.in_flight.is_empty() {
                return all;
            }
            while !self.in_flight.is_empty() {
                assert_eq!(self.respond(RequestOutcome::Accepted), None);
            }
        }
    }

    /// Advances the time until nothing is pending, and accepts all requests.
    fn send_until_idle(&mut self) -> Vec<String> {
        let mut all = self.send_all();
        while let SenderAction::Wait(Some(until)) = self.correlator.next(self.now()) {
            self.seconds = until.since_zero().as_secs();
            all.extend(self.send_all());
        }
        all
    }

    /// Returns the event of the next request, which must be a create request, and accepts the request.
    fn accept_create(&mut self) -> Event {
        let SenderAction::Send(number, EventRequest::Create(event)) = self.correlator.next(self.now()) else {
            panic!("no create request")
        };
        self.correlator.on_outcome(number, RequestOutcome::Accepted, self.now(), 0);
        *event
    }

    /// Returns the seconds until the next request.
    fn seconds_until_request(&mut self) -> u64 {
        let SenderAction::Wait(Some(until)) = self.correlator.next(self.now()) else { panic!("no request is pending") };
        until.since(self.now()).as_secs()
    }
}

fn pod(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some("team".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("uid-{name}")),
        ..ObjectReference::default()
    }
}

/// Describes a request: object, note and count.
fn describe(order: &EventRequest) -> String {
    match order {
        EventRequest::Create(event) => {
            let times = event.series.as_ref().map_or(1, |series| series.count);
            let about = event.regarding.as_ref().and_then(|about| about.name.as_deref()).unwrap_or_default();
            format!("create {about}: {} ×{times}", event.note.as_deref().unwrap_or_default())
        }
        EventRequest::Patch { name, series, .. } => {
            let about = name.rsplit_once('.').map_or(name.as_str(), |(about, _)| about);
            format!("patch {about} ×{}", series.count)
        }
    }
}

fn repeated(note: &str, times: usize) -> Vec<&str> {
    vec![note; times]
}
