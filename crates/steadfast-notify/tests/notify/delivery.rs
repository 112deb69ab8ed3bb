//! Delivery in virtual time: order, independence of objects, retries, expiry, dead letters and redelivery.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use steadfast_notify::change::{EventSubject, ObjectChange, ObjectState};
use steadfast_notify::config::EventKind;
use steadfast_notify::dead_letter::{DeadLetter, DeadLetters};
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use steadfast_notify::engine_event::EngineEvent;
use steadfast_notify::message::Message;
use steadfast_notify::sink::{DeliveryFuture, MessageSink};
use steadfast_notify::{Engine, MessageSinks, Plan, redrive};
use tokio::time::{Instant, sleep};

use crate::folder::Folder;

pub(crate) fn open_dead_letters(folder: &Folder, max_letters: usize) -> DeadLetters {
    DeadLetters::new(folder.join("dead-letters.ndjson"), max_letters)
}

fn dead_letter_text(folder: &Folder) -> String {
    std::fs::read_to_string(folder.join("dead-letters.ndjson")).unwrap_or_default()
}

fn subject(name: &str) -> EventSubject {
    EventSubject {
        cluster: "default".to_owned(),
        resource: "pods".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
    }
}

/// Returns a change of the pod `name` to a state with this `value`.
pub(crate) fn change(name: &str, version: u64, value: &Value) -> Arc<ObjectChange> {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "value": value});
    let id = format!("uid-of-{name}@{version}");
    Arc::new(ObjectChange {
        old: Some(ObjectState::new(json!({}))),
        new: Some(ObjectState::new(object)),
        ..ObjectChange::new(id, EventKind::Updated, subject(name), Timestamp::UNIX_EPOCH)
    })
}

/// Behaviour of a sink, by the message and the number of its attempts.
type Respond = dyn Fn(&Message, u32) -> (Duration, DeliveryOutcome) + Send + Sync;

/// Scripted sink that records received messages with times.
pub(crate) struct ScriptedSink {
    start: Instant,
    respond: Box<Respond>,
    attempt_counts: Mutex<BTreeMap<String, u32>>,
    attempts: Mutex<Vec<(Duration, String, Value, bool)>>,
}

impl ScriptedSink {
    pub(crate) fn new(
        respond: impl Fn(&Message, u32) -> (Duration, DeliveryOutcome) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (attempt_counts, attempts) = (Mutex::default(), Mutex::default());
        Arc::new(Self { start: Instant::now(), respond: Box::new(respond), attempt_counts, attempts })
    }

    /// Returns time, pod, data and acceptance of each message.
    pub(crate) fn attempts(&self) -> Vec<(Duration, String, Value, bool)> {
        self.attempts.lock().clone()
    }

    pub(crate) fn accepted(&self) -> Vec<(String, Value)> {
        self.attempts().into_iter().filter(|attempt| attempt.3).map(|(_, name, value, _)| (name, value)).collect()
    }
}

impl MessageSink for ScriptedSink {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> DeliveryFuture<'a> {
        Box::pin(async move {
            let message = &messages[0];
            let tries = {
                let mut attempt_counts = self.attempt_counts.lock();
                let count = attempt_counts.entry(message.id.clone()).or_default();
                *count += 1;
                *count
            };
            let (duration, outcome) = (self.respond)(message, tries);
            sleep(duration).await;
            let accepted = outcome == DeliveryOutcome::Delivered;
            let attempt = (self.start.elapsed(), message.name.clone(), message.data.clone(), accepted);
            self.attempts.lock().push(attempt);
            outcome
        })
    }
}

pub(crate) fn retry_outcome() -> DeliveryOutcome {
    DeliveryOutcome::Retry { retry_after: None, reason: "not now".to_owned() }
}

pub(crate) const NO_DELAY: Duration = Duration::ZERO;

/// Engine with a rule that sends the `value` of a pod, and with the sink of that rule.
pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    pub(crate) sink: Arc<ScriptedSink>,
    engine_events: Arc<Mutex<Vec<EngineEvent>>>,
    settled: Arc<Mutex<Vec<String>>>,
    _folder: Folder,
}

pub(crate) fn plan(folder: &Folder, more: &str) -> Plan {
    let text = format!(
        "dead_letters = {{file = \"dead-letters.ndjson\", max_letters = 2}}\n\
         [[rules]]\nname = \"r\"\nresources = [\"pods\"]\nsend = \"object.value\"\nto = [\"s\"]\n\
         [sinks.s]\nretry = {{first = \"1s\", longest = \"8s\", give_up_after = \"60s\"}}\n{more}\n[sinks.s.stdout]\n"
    );
    // An `exec` sink delivers one message at a time. A `stdout` sink would batch messages.
    let text = text.replace("[sinks.s.stdout]", "[sinks.s.exec]\ncommand = [\"none\"]");
    Plan::read(&folder.join("x.toml").display().to_string(), &text).unwrap_or_else(|problems| panic!("{problems}"))
}

impl Fixture {
    pub(crate) fn new(folder: Folder, more: &str, sink: Arc<ScriptedSink>) -> Self {
        let plan = plan(&folder, more);
        let streams = MessageSinks::from([("s".to_owned(), sink.clone() as Arc<dyn MessageSink>)]);
        let engine_events = Arc::new(Mutex::new(Vec::new()));
        let event_log = engine_events.clone();
        let report = move |event| event_log.lock().push(event);
        let engine = Engine::start(&plan, streams, 7, report);
        Self { engine, sink, engine_events, settled: Arc::default(), _folder: folder }
    }

    pub(crate) async fn accept_change(&self, name: &str, version: u64, value: Value) {
        let (settled, change) = (self.settled.clone(), change(name, version, &value));
        let id = change.id.clone();
        let done = move || settled.lock().push(id);
        self.engine.accept("r", "s", change, done).await;
    }

    pub(crate) fn settled(&self) -> Vec<String> {
        self.settled.lock().clone()
    }

    pub(crate) fn event_texts(&self) -> String {
        let engine_events = self.engine_events.lock();
        engine_events.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(100_000);

#[tokio::test(start_paused = true)]
async fn messages_are_ordered_per_object_only() {
    let sink = ScriptedSink::new(|message, tries| {
        // The first message of `stuck` fails five times.
        if message.name == "stuck" && message.data == json!(1) && tries <= 5 {
            (NO_DELAY, retry_outcome())
        } else {
            (NO_DELAY, DeliveryOutcome::Delivered)
        }
    });
    let fixture = Fixture::new(Folder::new("order"), "", sink);
    fixture.accept_change("stuck", 1, json!(1)).await;
    fixture.accept_change("stuck", 2, json!(2)).await;
    for value in 1..=3 {
        fixture.accept_change("other", value, json!(value)).await;
    }
    sleep(Duration::from_millis(100)).await;
    let expected: Vec<_> = [1, 2, 3].map(|value| ("other".to_owned(), json!(value))).into();
    assert_eq!(fixture.sink.accepted(), expected, "messages of the other object are not delayed");
    assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
    let stuck: Vec<_> =
        fixture.sink.accepted().into_iter().filter(|(name, _)| name == "stuck").map(|(_, value)| value).collect();
    assert_eq!(stuck, [json!(1), json!(2)]);
    assert_eq!(fixture.settled().len(), 5);
    let reported = fixture.event_texts();
    assert!(
        reported.contains("sink s: not now; retrying") && reported.contains("messages are accepted again"),
        "{reported}"
    );
}

#[tokio::test(start_paused = true)]
async fn retry_delays_double_with_jitter_and_bound() {
    let sink = ScriptedSink::new(|_, tries| {
        if tries <= 7 { (NO_DELAY, retry_outcome()) } else { (NO_DELAY, DeliveryOutcome::Delivered) }
    });
    let fixture = Fixture::new(Folder::new("retry-delays"), "", sink);
    fixture.accept_change("a", 1, json!(1)).await;
    assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
    let times: Vec<Duration> = fixture.sink.attempts().into_iter().map(|(at, ..)| at).collect();
    let delays: Vec<f64> = times.windows(2).map(|pair| pair[1].as_secs_f64() - pair[0].as_secs_f64()).collect();
    for (delay, max_delay) in delays.iter().zip([1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]) {
        // Timers have a resolution of one millisecond.
        assert!((max_delay / 2.0 - 0.002..=max_delay + 0.002).contains(delay), "{delays:?}");
    }
    assert_eq!(delays.len(), 7);
}

#[tokio::test(start_paused = true)]
async fn requested_delay_is_respected() {
    let retry_after_outcome =
        DeliveryOutcome::Retry { retry_after: Some(Duration::from_secs(40)), reason: "busy".to_owned() };
    let sink = ScriptedSink::new(move |_, tries| {
        (NO_DELAY, if tries == 1 { retry_after_outcome.clone() } else { DeliveryOutcome::Delivered })
    });
    let fixture = Fixture::new(Folder::new("retry-after"), "", sink);
    fixture.accept_change("a", 1, json!(1)).await;
    assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
    assert!(fixture.sink.attempts()[1].0 >= Duration::from_secs(40), "{:?}", fixture.sink.attempts());
}

#[tokio::test(start_paused = true)]
async fn expired_or_rejected_message_becomes_dead_letter() {
    let folder = Folder::new("dead");
    let file = folder.join("dead-letters.ndjson");
    let sink = ScriptedSink::new(|message, _| {
        let outcome = match message.data.as_u64() {
            Some(1) => retry_outcome(),
            Some(2) => DeliveryOutcome::Rejected { reason: "no such thing".to_owned() },
            _ => DeliveryOutcome::Delivered,
        };
        (NO_DELAY, outcome)
    });
    let fixture = Fixture::new(folder, "", sink);
    for value in 1..=3 {
        fixture.accept_change("a", value, json!(value)).await;
    }
    assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
    assert_eq!(fixture.sink.accepted(), [("a".to_owned(), json!(3))]);
    let last = fixture.sink.attempts().iter().filter(|attempt| attempt.2 == json!(1)).map(|attempt| attempt.0).max();
    let last = last.expect("an attempt");
    assert!(last >= Duration::from_secs(60) && last < Duration::from_secs(62), "{last:?}");
    let text = std::fs::read_to_string(&file).expect("an existing file");
    let letters: Vec<DeadLetter> = text.lines().map(|line| serde_json::from_str(line).expect("a letter")).collect();
    assert_eq!(letters.iter().map(|letter| &letter.message.data).collect::<Vec<_>>(), [&json!(1), &json!(2)]);
    assert_eq!(letters[1].reason, "no such thing");
    // A dead letter is acknowledged too, in order.
    assert_eq!(fixture.settled(), ["uid-of-a@1", "uid-of-a@2", "uid-of-a@3"]);
    assert_eq!(fixture.engine.stats().sinks["s"].dead_letters, 2);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&file).expect("an existing file").permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test(start_paused = true)]
async fn full_dead_letter_file_keeps_messages_pending() {
    let sink = ScriptedSink::new(|message, tries| {
        let is_stubborn = message.name == "c" && tries < 40;
        (NO_DELAY, if message.name == "c" && !is_stubborn { DeliveryOutcome::Delivered } else { retry_outcome() })
    });
    let fixture = Fixture::new(Folder::new("full"), "", sink);
    for name in ["a", "b", "c"] {
        fixture.accept_change(name, 1, json!(1)).await;
        // The pause is longer than the lifetime of a message. The messages of `a` and `b` become dead letters, and fill
        // the file, which has space for two letters.
        sleep(Duration::from_secs(61)).await;
    }
    assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
    assert_eq!(fixture.sink.accepted(), [("c".to_owned(), json!(1))], "the message is retried until its delivery");
    assert!(
        fixture.event_texts().contains("cannot add a dead letter")
            && fixture.event_texts().contains("the file is full"),
        "{}",
        fixture.event_texts()
    );
}

#[tokio::test(start_paused = true)]
async fn redrive_keeps_failed_dead_letters() {
    let folder = Folder::new("redrive");
    let dead_letters = open_dead_letters(&folder, 10);
    let letter = |sink: &str, name: &str| {
        let message = serde_json::from_value(json!({
            "id": name, "time": "2026-01-02T03:04:05Z", "type": "Added", "rule": "r", "cluster": "default",
            "resource": "pods", "namespace": "shop", "name": name, "uid": "u", "data": 1,
        }));
        DeadLetter { sink: sink.to_owned(), reason: "w".to_owned(), attempts: 1, message: message.expect("a message") }
    };
    for (sink, name) in [("s", "a"), ("s", "bad"), ("t", "c"), ("gone", "d")] {
        dead_letters.add(&letter(sink, name)).expect("enough space");
    }
    // A letter truncated by a machine crash.
    let file = folder.join("dead-letters.ndjson");
    std::fs::write(&file, dead_letter_text(&folder) + "{\"sink\":\"s\",\"wh").expect("enough space");
    dead_letters.add(&letter("s", "e")).expect("enough space");

    let sink = ScriptedSink::new(|message, _| {
        (NO_DELAY, if message.name == "bad" { retry_outcome() } else { DeliveryOutcome::Delivered })
    });
    let other = ScriptedSink::new(|_, _| (NO_DELAY, DeliveryOutcome::Delivered));
    let streams = MessageSinks::from([
        ("s".to_owned(), sink.clone() as Arc<dyn MessageSink>),
        ("t".to_owned(), other.clone() as _),
    ]);
    let report = redrive(&dead_letters, &streams, Some("s")).await.expect("the file can be read");
    assert_eq!(
        (report.delivered, report.skipped, report.malformed_lines),
        (vec!["a".to_owned(), "e".to_owned()], 2, 1)
    );
    assert_eq!(report.failed, [("bad".to_owned(), "not now".to_owned())]);
    let names = |text: String| -> Vec<String> {
        let letters = text.lines().map(|line| serde_json::from_str::<DeadLetter>(line).expect("a letter").message.name);
        letters.collect()
    };
    assert_eq!(names(dead_letter_text(&folder)), ["bad", "c", "d"]);

    let report = redrive(&dead_letters, &streams, None).await.expect("the file can be read");
    assert_eq!(report.delivered, ["c"]);
    assert_eq!(report.failed.len(), 2, "{report:?}");
    assert!(report.failed[1].1.contains("the sink \"gone\" is no longer configured"), "{report:?}");
    assert_eq!(names(dead_letter_text(&folder)), ["bad", "d"]);
}

#[tokio::test(start_paused = true)]
async fn interrupted_redrive_is_repeated() {
    let folder = Folder::new("interrupted");
    let dead_letters = open_dead_letters(&folder, 10);
    let message = |name: &str| {
        json!({
            "sink": "s", "why": "w", "attempts": 1, "message": {
                "id": name, "time": "2026-01-02T03:04:05Z", "type": "Added", "rule": "r", "cluster": "default",
                "resource": "pods", "namespace": "shop", "name": name, "uid": "u", "data": 1,
            }
        })
    };
    let letter = |name: &str| serde_json::from_value::<DeadLetter>(message(name)).expect("a letter");
    dead_letters.add(&letter("a")).expect("enough space");
    let accepted = dead_letters.take().expect("the file can be read");
    assert_eq!(accepted.letters.len(), 1);
    // The program is killed here, and another program continues.
    drop(accepted);
    dead_letters.add(&letter("b")).expect("enough space");
    let sink = ScriptedSink::new(|_, _| (NO_DELAY, DeliveryOutcome::Delivered));
    let streams = MessageSinks::from([("s".to_owned(), sink as Arc<dyn MessageSink>)]);
    let report = redrive(&dead_letters, &streams, None).await.expect("the file can be read");
    assert_eq!(report.delivered, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn unchanged_result_is_acknowledged_without_sending() {
    let sink = ScriptedSink::new(|_, _| (NO_DELAY, DeliveryOutcome::Delivered));
    let fixture = Fixture::new(Folder::new("same"), "", sink);
    for (version, value) in
        [(1, json!({"a": 1, "b": 2})), (2, json!({"b": 2, "a": 1})), (3, json!(3)), (4, json!({"a": 1, "b": 2}))]
    {
        fixture.accept_change("a", version, value).await;
    }
    assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
    let sent: Vec<Value> = fixture.sink.accepted().into_iter().map(|(_, value)| value).collect();
    assert_eq!(sent, [json!({"a": 1, "b": 2}), json!(3), json!({"a": 1, "b": 2})]);
    assert_eq!(fixture.settled().len(), 4);
    assert_eq!(fixture.engine.stats().unchanged, 1);
}

#[tokio::test(start_paused = true)]
async fn debounce_sends_only_the_last_message() {
    let sink = ScriptedSink::new(|_, _| (NO_DELAY, DeliveryOutcome::Delivered));
    let fixture = Fixture::new(Folder::new("debounce"), "debounce = \"10s\"", sink);
    // Frequent changes do not delay a message forever.
    for value in 0..25 {
        fixture.accept_change("a", value, json!(value)).await;
        sleep(Duration::from_millis(1100)).await;
    }
    assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
    let sent: Vec<Value> = fixture.sink.accepted().into_iter().map(|(_, value)| value).collect();
    assert_eq!(sent, [json!(9), json!(19), json!(24)]);
    assert_eq!(fixture.settled().len(), 25, "replaced messages are acknowledged with their successor");
}

#[tokio::test(start_paused = true)]
async fn rate_limit_is_respected() {
    let sink = ScriptedSink::new(|_, _| (NO_DELAY, DeliveryOutcome::Delivered));
    let fixture = Fixture::new(Folder::new("rate"), "rate = {per_second = 2, burst = 3}", sink);
    for number in 0..9 {
        fixture.accept_change(&format!("pod-{number}"), 1, json!(1)).await;
    }
    assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
    let times: Vec<u64> = fixture.sink.attempts().iter().map(|attempt| attempt.0.as_millis() as u64 / 100).collect();
    assert_eq!(times, [0, 0, 0, 5, 10, 15, 20, 25, 30]);
}

#[tokio::test(start_paused = true)]
async fn stuck_sink_blocks_callers_at_the_limit() {
    let sink = ScriptedSink::new(|_, tries| {
        if tries == 1 { (Duration::from_secs(1000), retry_outcome()) } else { (NO_DELAY, DeliveryOutcome::Delivered) }
    });
    let fixture = Fixture::new(Folder::new("full-queue"), "", sink);
    // The number of messages that a single namespace may queue.
    for number in 0..5_000 {
        fixture.accept_change("a", number, json!(number)).await;
    }
    let accept_change = fixture.accept_change("a", 5_000, json!("one too many"));
    tokio::pin!(accept_change);
    assert!(tokio::time::timeout(Duration::from_secs(900), &mut accept_change).await.is_err(), "the outbox is full");
    // The first message expires during its attempt. It has one more attempt, which succeeds.
    accept_change.await;
    assert_eq!(fixture.engine.stats().sinks["s"].dead_letters, 0);
}

#[tokio::test(start_paused = true)]
async fn reload_keeps_pending_messages_and_results() {
    let sink = ScriptedSink::new(|_, _| (NO_DELAY, retry_outcome()));
    let folder = Folder::new("reload");
    let reloaded_plan = plan(&folder, "concurrency = 2");
    let fixture = Fixture::new(folder, "", sink);
    fixture.accept_change("a", 1, json!(1)).await;
    sleep(Duration::from_secs(5)).await;
    let working_sink = ScriptedSink::new(|_, _| (NO_DELAY, DeliveryOutcome::Delivered));
    fixture.engine.apply_plan(
        &reloaded_plan,
        MessageSinks::from([("s".to_owned(), working_sink.clone() as Arc<dyn MessageSink>)]),
    );
    fixture.accept_change("a", 2, json!(1)).await;
    fixture.accept_change("a", 3, json!(3)).await;
    assert_eq!(fixture.engine.drain(DRAIN_TIMEOUT).await, 0);
    let sent: Vec<Value> = working_sink.accepted().into_iter().map(|(_, value)| value).collect();
    assert_eq!(sent, [json!(1), json!(3)], "the pending message, and no duplicate of it");
}

#[tokio::test(start_paused = true)]
async fn overlapping_redrive_is_rejected_and_loses_nothing() {
    let folder = Folder::new("overlapping");
    let dead_letters = open_dead_letters(&folder, 10);
    let letter = |name: &str| {
        let message = serde_json::from_value(json!({
            "id": name, "time": "2026-01-02T03:04:05Z", "type": "Added", "rule": "r", "cluster": "default",
            "resource": "pods", "namespace": "shop", "name": name, "uid": "u", "data": 1,
        }));
        DeadLetter {
            sink: "s".to_owned(),
            reason: "w".to_owned(),
            attempts: u32::MAX,
            message: message.expect("a message"),
        }
    };
    dead_letters.add(&letter("one")).expect("enough space");
    let slow_sink = ScriptedSink::new(|_, _| (Duration::from_secs(4), retry_outcome()));
    let streams = MessageSinks::from([("s".to_owned(), slow_sink.clone() as Arc<dyn MessageSink>)]);
    let first = redrive(&dead_letters, &streams, None);
    tokio::pin!(first);
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut first).await.is_err(), "an attempt takes four seconds");

    // In the meantime, another process adds a letter and tries to redrive the same file.
    let second_handle = open_dead_letters(&folder, 10);
    second_handle.add(&letter("two")).expect("the program can add letters in the meantime");
    let rejected = redrive(&second_handle, &streams, None).await.expect_err("the first redrive is still running");
    assert!(rejected.to_string().contains("another `redrive` of"), "{rejected}");
    first.await.expect("the files can be read");

    let working_sink = ScriptedSink::new(|_, _| (NO_DELAY, DeliveryOutcome::Delivered));
    let streams = MessageSinks::from([("s".to_owned(), working_sink as Arc<dyn MessageSink>)]);
    let mut delivered = redrive(&second_handle, &streams, None).await.expect("the first redrive has ended").delivered;
    delivered.sort();
    assert_eq!(delivered, ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn busy_receiver_stops_redrive() {
    let folder = Folder::new("redrive-busy");
    let dead_letters = open_dead_letters(&folder, 10);
    for name in ["a", "b", "c"] {
        let message = serde_json::from_value(json!({
            "id": name, "time": "2026-01-02T03:04:05Z", "type": "Added", "rule": "r", "cluster": "default",
            "resource": "pods", "namespace": "shop", "name": name, "uid": "u", "data": 1,
        }));
        let letter = DeadLetter {
            sink: "s".to_owned(),
            reason: "w".to_owned(),
            attempts: 1,
            message: message.expect("a message"),
        };
        dead_letters.add(&letter).expect("enough space");
    }
    let sink =
        ScriptedSink::new(|_, _| (NO_DELAY, DeliveryOutcome::Busy { retry_after: None, reason: "429".to_owned() }));
    let streams = MessageSinks::from([("s".to_owned(), sink.clone() as Arc<dyn MessageSink>)]);
    let report = redrive(&dead_letters, &streams, None).await.expect("the file can be read");
    assert_eq!((report.failed.len(), sink.attempts().len()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn engine_reports_undeliverable_messages() {
    // The sink accepts only the message of the fourth object.
    let sink = ScriptedSink::new(|message, _| {
        let outcome = if message.name == "d" { DeliveryOutcome::Delivered } else { retry_outcome() };
        (NO_DELAY, outcome)
    });
    let fixture = Fixture::new(Folder::new("undeliverable"), "", sink);
    let engine = fixture.engine.clone();
    let report_task = tokio::spawn(async move { (engine.wait_until_undeliverable().await, Instant::now()) });
    sleep(Duration::from_secs(30)).await;
    assert!(!report_task.is_finished(), "nothing is pending");
    let start = Instant::now();
    fixture.accept_change("a", 1, json!(1)).await;
    sleep(Duration::from_secs(8)).await;
    fixture.accept_change("d", 1, json!(1)).await;
    let (sinks, end) = report_task.await.expect("no panic");
    assert_eq!(sinks, ["s"]);
    let delay = end.duration_since(start);
    assert!((18..30).contains(&delay.as_secs()), "ten seconds after a delivery: {delay:?}");
}

#[tokio::test(start_paused = true)]
async fn hanging_attempt_does_not_delay_report() {
    let sink = ScriptedSink::new(|_, tries| {
        let wait = if tries < 5 { NO_DELAY } else { Duration::from_secs(600) };
        (wait, retry_outcome())
    });
    let fixture = Fixture::new(Folder::new("hanging"), "", sink);
    fixture.accept_change("a", 1, json!(1)).await;
    sleep(Duration::from_secs(60)).await;
    let start = Instant::now();
    assert_eq!(fixture.engine.wait_until_undeliverable().await, ["s"]);
    assert_eq!(start.elapsed().as_secs(), 5, "the grace of an attempt");
}
