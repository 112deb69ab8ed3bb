//! What is sent of what is recorded, without I/O and in no time: a script is told what happens when.

mod answers;
mod ends;
mod limits;
mod model;
mod series;

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use steadfast::environment::Instant;

use super::answer::{Answer, Refusal};
use super::correlate::{Correlator, GivenUp, Next, Recorded};
use super::draft::EventDraft;
use super::reporter::Reporter;
use super::series::{Moment, Order};
use super::settings::EventSettings;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const LATER: Answer = Answer::Later { code: None, asked: None };

/// A recorder whose requests are answered by hand.
struct Script {
    correlator: Correlator,
    seconds: u64,
    under_way: Vec<(u64, Order)>,
}

impl Script {
    fn new() -> Self {
        Self::with(EventSettings::default())
    }

    fn with(settings: EventSettings) -> Self {
        let reporter = Reporter::new("web".to_owned(), Some("web-1".to_owned())).expect("it is valid");
        Self { correlator: Correlator::new(reporter, settings), seconds: 0, under_way: Vec::new() }
    }

    fn now(&self) -> Instant {
        Instant::from_zero(Duration::from_secs(self.seconds))
    }

    fn moment(&self) -> Moment {
        let wall = Timestamp::new(1_800_000_000 + self.seconds.cast_signed(), 0).expect("it is a time");
        Moment { now: self.now(), wall }
    }

    fn pass(&mut self, seconds: u64) {
        self.seconds += seconds;
    }

    fn publish(&mut self, about: &ObjectReference, draft: EventDraft) -> Recorded {
        self.correlator.record(about.clone(), draft, self.moment())
    }

    /// Records an event with this note about `web-0`.
    fn note(&mut self, note: &str) -> Recorded {
        self.publish(&pod("web-0"), EventDraft::normal("Started", "Starting").note(note))
    }

    /// The requests that are to be made now.
    fn sent(&mut self) -> Vec<String> {
        let mut sent = Vec::new();
        while let Next::Send(number, order) = self.correlator.next(self.now()) {
            sent.push(told(&order));
            self.under_way.push((number, order));
        }
        sent
    }

    /// Answers the first request that is under way.
    fn answer(&mut self, answer: Answer) -> Option<GivenUp> {
        let (number, _) = self.under_way.remove(0);
        self.correlator.answered(number, answer, self.now(), u64::MAX)
    }

    /// Makes and accepts all requests there are now.
    fn all(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            all.extend(self.sent());
            if self.under_way.is_empty() {
                return all;
            }
            while !self.under_way.is_empty() {
                assert_eq!(self.answer(Answer::Accepted), None);
            }
        }
    }

    /// Waits as long as there is something to wait for, and makes and accepts all requests.
    fn rest(&mut self) -> Vec<String> {
        let mut all = self.all();
        while let Next::Wait(Some(until)) = self.correlator.next(self.now()) {
            self.seconds = until.since_zero().as_secs();
            all.extend(self.all());
        }
        all
    }

    /// The event that is made now, and accepted.
    fn created(&mut self) -> Event {
        let Next::Send(number, Order::Create(event)) = self.correlator.next(self.now()) else {
            panic!("an event is to be made")
        };
        self.correlator.answered(number, Answer::Accepted, self.now(), 0);
        *event
    }

    /// When the next request may be made, in seconds from now.
    fn pause(&mut self) -> u64 {
        let Next::Wait(Some(until)) = self.correlator.next(self.now()) else { panic!("there is one to wait for") };
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

/// A request in words: about whom, which note, how often.
fn told(order: &Order) -> String {
    match order {
        Order::Create(event) => {
            let times = event.series.as_ref().map_or(1, |series| series.count);
            let about = event.regarding.as_ref().and_then(|about| about.name.as_deref()).unwrap_or_default();
            format!("create {about}: {} ×{times}", event.note.as_deref().unwrap_or_default())
        }
        Order::Patch { name, series, .. } => {
            let about = name.rsplit_once('.').map_or(name.as_str(), |(about, _)| about);
            format!("patch {about} ×{}", series.count)
        }
    }
}

fn repeated(note: &str, times: usize) -> Vec<&str> {
    vec![note; times]
}
