//! Random comparison of the correlator with a naive model and a simulated server.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::super::correlate::RecordResult;
use super::super::draft::EventDraft;
use super::super::key::EventKey;
use super::super::outcome::{Rejection, RequestOutcome};
use super::super::series::EventRequest;
use super::super::settings::EventSettings;
use super::{Script, pod};

const SETTINGS: EventSettings = EventSettings {
    queue: 4,
    series: 5,
    series_timeout: Duration::from_secs(6),
    refresh_interval: Duration::from_secs(30),
    max_separate_similar: 3,
    similar_within: Duration::from_secs(10),
    burst: 4,
    refill: Duration::from_secs(5),
    max_attempts: 4,
    initial_pause: Duration::from_secs(1),
    max_pause: Duration::from_secs(4),
    concurrency: 3,
};

#[derive(Clone, Debug)]
enum Step {
    /// Event about an object, with a reason and a note.
    Record(u8, u8, u8),
    /// Sends all possible requests.
    Send,
    /// Responds to a request in flight.
    RequestOutcome(usize, ResponseFate),
    /// The server deletes one of its events.
    Forget(usize),
    Flush,
    Pass(u64),
}

#[derive(Clone, Copy, Debug)]
enum ResponseFate {
    Done,
    /// Processed, but without a response.
    ResponseLost,
    RequestLost,
    Busy,
    Rejected,
}

fn step() -> impl Strategy<Value = Step> {
    let response_fate = prop_oneof![
        12 => Just(ResponseFate::Done),
        2 => Just(ResponseFate::ResponseLost),
        2 => Just(ResponseFate::RequestLost),
        1 => Just(ResponseFate::Busy),
        1 => Just(ResponseFate::Rejected),
    ];
    prop_oneof![
        40 => (0..7_u8, 0..3_u8, 0..5_u8).prop_map(|(about, reason, note)| Step::Record(about, reason, note)),
        30 => (0..2_u8).prop_map(|about| Step::Record(about, 0, 0)),
        30 => Just(Step::Send),
        40 => (any::<usize>(), response_fate).prop_map(|(index, response_fate)| Step::RequestOutcome(index, response_fate)),
        2 => any::<usize>().prop_map(Step::Forget),
        2 => Just(Step::Flush),
        20 => (1..4_u64).prop_map(Step::Pass),
        2 => (5..40_u64).prop_map(Step::Pass),
    ]
}

/// Simulated server: counts by event name.
#[derive(Default)]
struct Server {
    events: BTreeMap<String, i32>,
    /// Highest count of each event name.
    reported_counts: BTreeMap<String, i32>,
}

impl Server {
    fn process(&mut self, request: &EventRequest) -> RequestOutcome {
        let (name, count) = match request {
            EventRequest::Create(event) => {
                let name = event.metadata.name.clone().expect("a name");
                if self.events.contains_key(&name) {
                    return RequestOutcome::Exists;
                }
                (name, event.series.as_ref().map_or(1, |series| series.count))
            }
            EventRequest::Patch { name, series, .. } => {
                if !self.events.contains_key(name) {
                    return RequestOutcome::Missing;
                }
                (name.clone(), series.count)
            }
        };
        self.events.insert(name.clone(), count);
        let reported = self.reported_counts.entry(name).or_default();
        *reported = count.max(*reported);
        RequestOutcome::Accepted
    }
}

/// Naive model of event identity with linear searches.
#[derive(Default)]
struct Model {
    /// Open series, least recently used first.
    open: Vec<Series>,
    /// Notes of separate similar events, and the time of the last similar event.
    similar: Vec<((u8, u8), Vec<u8>, u64)>,
    /// Times of taken tokens per object, least recently used first.
    tokens: Vec<(u8, Vec<u64>)>,
    filtered: u64,
    dropped: u64,
    combined: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Series {
    about: u8,
    reason: u8,
    /// None for combined events.
    note: Option<u8>,
    last: u64,
}

/// Removes the first element that matches, so that it can be appended again.
fn remove_matching<T>(list: &mut Vec<T>, matches: impl Fn(&T) -> bool) -> Option<T> {
    list.iter().position(matches).map(|at| list.remove(at))
}

fn push<T>(list: &mut Vec<T>, capacity: usize, value: T) {
    if list.len() == capacity {
        list.remove(0);
    }
    list.push(value);
}

impl Model {
    /// Returns the expected result. `is_full` is true if the queue is full.
    fn record(&mut self, about: u8, reason: u8, note: u8, now: u64, is_full: bool) -> &'static str {
        self.open.retain(|series| now < series.last + SETTINGS.series_timeout.as_secs());
        let (key, mut own, last) = remove_matching(&mut self.similar, |similar| similar.0 == (about, reason))
            .unwrap_or(((about, reason), Vec::new(), now));
        if now - last > SETTINGS.similar_within.as_secs() {
            own.clear();
        }
        let is_combined = !own.contains(&note) && own.len() + 1 >= SETTINGS.max_separate_similar;
        if !is_combined && !own.contains(&note) {
            own.push(note);
        }
        push(&mut self.similar, SETTINGS.series, (key, own, now));
        self.combined += u64::from(is_combined);
        let new = Series { about, reason, note: (!is_combined).then_some(note), last: now };
        if remove_matching(&mut self.open, |series| Series { last: now, ..*series } == new).is_some() {
            self.open.push(new);
            return "counted";
        }
        if is_full {
            self.dropped += 1;
            return "dropped";
        }
        let (_, mut tokens) = remove_matching(&mut self.tokens, |tokens| tokens.0 == about).unwrap_or_default();
        let is_allowed = Self::tokens_left(&tokens, now) > 0;
        if is_allowed {
            tokens.push(now);
        }
        push(&mut self.tokens, SETTINGS.series, (about, tokens));
        if !is_allowed {
            self.filtered += 1;
            return "filtered";
        }
        push(&mut self.open, SETTINGS.series, new);
        "new"
    }

    /// Computes the available tokens at `now` second by second, from the times at which tokens were taken.
    fn tokens_left(taken: &[u64], now: u64) -> u64 {
        let (burst, refill) = (u64::from(SETTINGS.burst), SETTINGS.refill.as_secs());
        let Some(first) = taken.first() else { return burst };
        // Available tokens, in seconds of refill.
        let mut available = burst * refill;
        for second in *first..=now {
            if second > *first {
                available = (available + 1).min(burst * refill);
            }
            let taken_count = taken.iter().filter(|at| **at == second).count() as u64;
            available -= taken_count * refill;
        }
        available / refill
    }

    /// Removes an abandoned series. The next recording starts another event.
    fn forget(&mut self, about: u8, reason: u8, note: Option<u8>) {
        remove_matching(&mut self.open, |series| (series.about, series.reason, series.note) == (about, reason, note));
    }
}

/// Returns object, reason and note of a key.
fn subject(key: &EventKey) -> (u8, u8, Option<u8>) {
    let digit = |text: &str| text.bytes().last().map_or(u8::MAX, |byte| byte - b'0');
    let EventKey { similarity, note } = key;
    (digit(&similarity.regarding.name), digit(&similarity.reason), note.as_deref().map(digit))
}

struct Fixture {
    script: Script,
    server: Server,
    model: Model,
    recorded: u64,
    abandoned_count: u64,
}

impl Fixture {
    fn new() -> Self {
        let (server, model) = (Server::default(), Model::default());
        Self { script: Script::with(SETTINGS), server, model, recorded: 0, abandoned_count: 0 }
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Record(about, reason, note) => {
                self.recorded += 1;
                // Expired series are closed first, because they may fill the queue.
                let now = self.script.now();
                self.script.correlator.close_expired(now);
                let is_full = self.script.correlator.stats().queued >= SETTINGS.queue;
                let draft = EventDraft::normal(format!("Reason{reason}"), "Acting").note(format!("note {note}"));
                let recorded = self.script.publish(&pod(&format!("pod-{about}")), draft);
                let expected = self.model.record(about, reason, note, self.script.seconds, is_full);
                let is_expected = match recorded {
                    RecordResult::Queued => matches!(expected, "new" | "counted"),
                    RecordResult::Counted => expected == "counted",
                    RecordResult::Filtered => expected == "filtered",
                    RecordResult::Dropped => expected == "dropped",
                    RecordResult::Invalid(_) => false,
                };
                prop_assert!(is_expected, "{recorded:?} instead of {expected}");
            }
            Step::Send => drop(self.script.send_pending()),
            Step::RequestOutcome(index, response_fate) => {
                let in_flight = self.script.in_flight.len();
                if in_flight > 0 {
                    self.respond(index % in_flight, response_fate);
                }
            }
            Step::Forget(index) => {
                let names: Vec<_> = self.server.events.keys().cloned().collect();
                if !names.is_empty() {
                    self.server.events.remove(&names[index % names.len()]);
                }
            }
            Step::Flush => drop(self.script.correlator.flush()),
            Step::Pass(seconds) => self.script.advance(seconds),
        }
        self.check()
    }

    fn respond(&mut self, index: usize, response_fate: ResponseFate) {
        let (number, request) = self.script.in_flight.remove(index);
        let outcome = match response_fate {
            ResponseFate::Done => self.server.process(&request),
            ResponseFate::ResponseLost => {
                self.server.process(&request);
                RequestOutcome::RetryLater { code: Some(504), retry_after: None }
            }
            ResponseFate::RequestLost => RequestOutcome::RetryLater { code: None, retry_after: None },
            ResponseFate::Busy => {
                RequestOutcome::RetryLater { code: Some(429), retry_after: Some(Duration::from_secs(2)) }
            }
            ResponseFate::Rejected => RequestOutcome::Rejected(Rejection { code: 403, ..Rejection::default() }),
        };
        let open = self.script.correlator.open().find(|(open, _)| *open == number);
        let subject = open.map(|(_, key)| subject(key));
        let now = self.script.now();
        if let Some(abandoned) = self.script.correlator.on_outcome(number, outcome, now, u64::MAX) {
            self.abandoned_count += abandoned.count;
            if let Some((about, reason, note)) = subject {
                self.model.forget(about, reason, note);
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let stats = self.script.correlator.stats();
        let settled = stats.delivered + stats.filtered + stats.dropped + stats.failed;
        prop_assert_eq!(stats.recorded, self.recorded);
        prop_assert_eq!(stats.waiting + settled, self.recorded, "no recording is lost");
        prop_assert_eq!(stats.filtered, self.model.filtered);
        prop_assert_eq!(stats.dropped, self.model.dropped);
        prop_assert_eq!(stats.combined, self.model.combined);
        prop_assert_eq!(stats.failed, self.abandoned_count);
        // Expired series may stay until the next access.
        let is_over = |series: &Series| series.last + SETTINGS.series_timeout.as_secs() <= self.script.seconds;
        let open: Vec<_> = self.script.correlator.open().map(|(_, key)| subject(key)).collect();
        let known = self.model.open.iter().map(|series| ((series.about, series.reason, series.note), is_over(series)));
        let known: Vec<_> = known.filter(|(key, is_over)| !is_over || open.contains(key)).map(|(key, _)| key).collect();
        prop_assert_eq!(known, open);
        let (series, similar, allowances) = self.script.correlator.entry_counts();
        prop_assert!(series <= SETTINGS.series + SETTINGS.queue + SETTINGS.concurrency + 1, "{series} series");
        prop_assert!(similar <= SETTINGS.series && allowances <= SETTINGS.series);
        prop_assert!(self.script.in_flight.len() <= SETTINGS.concurrency);
        Ok(())
    }

    /// Sends everything to a healthy server.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..10_000 {
            if !self.script.in_flight.is_empty() {
                self.respond(0, ResponseFate::Done);
            }
            self.script.send_pending();
            if self.script.in_flight.is_empty() {
                if self.script.correlator.undelivered() == 0 {
                    return self.check();
                }
                self.script.correlator.flush();
                self.script.advance(1);
            }
        }
        Err(TestCaseError::fail(format!("{} undelivered", self.script.correlator.undelivered())))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Each recording is in the count of exactly one event of the server, or was filtered, dropped or abandoned, as the
    /// stats show. An abandoned recording may be counted too, if its last request had no response.
    #[test]
    fn every_recording_is_counted_exactly_once(steps in prop::collection::vec(step(), 1..150)) {
        let mut fixture = Fixture::new();
        for step in &steps {
            fixture.step(step)?;
        }
        fixture.settle()?;
        let stats = fixture.script.correlator.stats();
        prop_assert_eq!(stats.waiting, 0);
        let counted: i32 = fixture.server.reported_counts.values().sum();
        let (counted, delivered) = (u64::from(counted.unsigned_abs()), stats.delivered);
        let max_counted = delivered + stats.failed;
        prop_assert!((delivered..=max_counted).contains(&counted), "{counted} counted, {delivered} to {max_counted} expected");
    }
}
