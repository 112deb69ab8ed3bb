//! Execution of a script on a server.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use steadfast_testing::WorldError;

use crate::differential::client::{Session, TestServer};
use crate::differential::script::{Reading, SENTINEL, Script, Step};

/// Timeout for a response, and for the last event of a watch.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);
/// Timeout for a whole script. With forty concurrent scripts on two cores, one takes about ten seconds.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(240);
/// Timeout for the first event of a new watch before the script continues. Some servers read the initial state only
/// after they have responded.
const FIRST_EVENT: Duration = Duration::from_millis(400);
/// Interval between two requests that wait for a certain response.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Headers without comparison, because they differ between requests or name an object of one server.
const NOT_COMPARED: &[&str] = &[
    "audit-id",
    "date",
    // Equal JSON may differ in length: by the order of fields and the length of versions.
    "content-length",
    // Identifies the server's own object that delayed the request.
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
];

/// Response of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// HTTP status.
    pub code: u16,
    /// Headers, except for those that are not compared.
    pub headers: BTreeMap<String, String>,
    /// Body. A string if it is not valid JSON.
    pub body: Value,
    /// Events of a watch.
    pub events: Vec<Value>,
}

enum Answer {
    Seen(Seen),
    Streaming(JoinHandle<Result<Seen, WorldError>>),
}

/// Script in progress, with its responses so far.
#[derive(Default)]
pub struct Course {
    /// One response for each step.
    pub seen: Vec<Seen>,
    brought: Brought,
}

impl TestServer {
    /// Runs a script, and returns one response for each step.
    pub async fn run(&self, script: &Script) -> Result<Vec<Seen>, WorldError> {
        let mut course = Course::default();
        self.go_on(script, script.steps.len(), &mut course).await?;
        Ok(course.seen)
    }

    /// Runs a script up to the step `end` on a connection of its own. Waits for the end of its watches.
    pub async fn go_on(&self, script: &Script, end: usize, course: &mut Course) -> Result<(), WorldError> {
        self.open().await?.go_on(script, end, course).await
    }
}

impl Session {
    async fn go_on(&self, script: &Script, end: usize, course: &mut Course) -> Result<(), WorldError> {
        let mut responses = Vec::new();
        let brought = &mut course.brought;
        let deadline = Instant::now() + SCRIPT_TIMEOUT;
        for (number, step) in script.steps.iter().enumerate().take(end).skip(course.seen.len()) {
            let answer = async {
                if let Some(collection) = &step.after_cache {
                    self.catch_up(collection, brought).await?;
                }
                if step.after_watches {
                    ended(&mut responses).await?;
                }
                self.until(step, brought).await
            };
            let answer = timeout_at(deadline.min(Instant::now() + RESPONSE_TIMEOUT), answer).await;
            let answer = answer.unwrap_or_else(|_| Err("no response within the timeout".into()));
            let answer = answer.map_err(|error| format!("{}: {error}", script.place(number)))?;
            if let Answer::Seen(seen) = &answer {
                // A dry run of a creation returns the version that the client sent, if any. No server assigned this
                // version.
                let versioned = seen.code != 201 || !step.path.contains("dryRun=All");
                brought.remember(number, &seen.body, versioned);
                brought.deleted |= step.method == "DELETE" && seen.code == 200;
            }
            responses.push(answer);
        }
        let first = course.seen.len();
        for (number, answer) in responses.into_iter().enumerate().map(|(number, answer)| (first + number, answer)) {
            course.seen.push(match answer {
                Answer::Seen(seen) => seen,
                Answer::Streaming(task) => {
                    let seen = timeout_at(deadline, task).await;
                    let seen =
                        seen.map_or_else(|_| Err("the watch did not end within the timeout".into()), |seen| seen?);
                    seen.map_err(|error| format!("{}: {error}", script.place(number)))?
                }
            });
        }
        Ok(())
    }

    /// Repeats the request until the response meets the condition of the step.
    async fn until(&self, step: &Step, brought: &Brought) -> Result<Answer, WorldError> {
        loop {
            let answer = self.step(step, brought).await?;
            match (&step.until, &answer) {
                // A real server returns this while the cache of a changed definition is not filled yet.
                (_, Answer::Seen(seen)) if seen.body["message"] == "storage is (re)initializing" => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                (Some(until), Answer::Seen(seen)) if !until.holds(seen.code, &seen.body.to_string()) => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                _ => return Ok(answer),
            }
        }
    }

    /// Waits until the cache of a collection has the writes of the script.
    async fn catch_up(&self, collection: &str, brought: &Brought) -> Result<(), WorldError> {
        let mut version = brought.newest;
        // The response to a deletion has no version.
        if brought.deleted {
            let response = self.send("GET", &format!("{collection}?limit=1"), &[], String::new()).await?;
            let list = parsed(&response.into_body().collect().await?.to_bytes());
            let told = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            version = told.and_then(|text| text.parse().ok()).unwrap_or(version);
        }
        let path = format!("{collection}?limit=1&resourceVersion={version}&resourceVersionMatch=NotOlderThan");
        for _ in 0..10 {
            let response = self.send("GET", &path, &[], String::new()).await?;
            if response.status() != 504 {
                return Ok(());
            }
        }
        Err(format!("the cache of {collection} does not reach {version}").into())
    }

    async fn step(&self, step: &Step, brought: &Brought) -> Result<Answer, WorldError> {
        let headers = [("content-type", step.content_type), ("accept", step.accept)];
        let (path, body) = (brought.fill(&step.path), brought.fill(&step.body));
        let sent = self.send(step.method, &path, &headers, body).await;
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                return Ok(Answer::Seen(Seen { body: format!("no response: {error}").into(), ..Seen::default() }));
            }
        };
        let mut seen = Seen { code: response.status().as_u16(), ..Seen::default() };
        for name in response.headers().keys().filter(|name| !NOT_COMPARED.contains(&name.as_str())) {
            let values: Vec<_> = response.headers().get_all(name).iter().filter_map(|v| v.to_str().ok()).collect();
            seen.headers.insert(name.to_string(), values.join(" | "));
        }
        let body = response.into_body();
        if step.reading == Reading::UntilSentinel && seen.code == 200 {
            let (first, told) = oneshot::channel();
            let task = tokio::spawn(async move {
                let read = timeout(RESPONSE_TIMEOUT, events(body, first)).await;
                seen.events = read.unwrap_or_else(|_| Ok(vec!["the last event did not arrive".into()]))?;
                Ok(seen)
            });
            let _ = timeout(FIRST_EVENT, told).await;
            return Ok(Answer::Streaming(task));
        }
        seen.body = match body.collect().await {
            Ok(body) if step.reading == Reading::Events && seen.code == 200 => {
                let body = body.to_bytes();
                let lines = body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
                seen.events = lines.map(parsed).collect();
                Value::Null
            }
            Ok(body) => parsed(&body.to_bytes()),
            Err(error) => format!("a body that ends with {error:?}").into(),
        };
        Ok(Answer::Seen(seen))
    }
}

/// Waits for the end of the watches among the responses.
async fn ended(responses: &mut [Answer]) -> Result<(), WorldError> {
    for answer in responses {
        if let Answer::Streaming(task) = answer {
            *answer = Answer::Seen(task.await??);
        }
    }
    Ok(())
}

async fn events(mut body: Incoming, first: oneshot::Sender<()>) -> Result<Vec<Value>, WorldError> {
    let mut first = Some(first);
    let mut read = Vec::new();
    let mut events = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if let Some(first) = first.take() {
            let _ = first.send(());
        }
        read.extend_from_slice(&data);
        while let Some(end) = read.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = read.drain(..=end).collect();
            let event = parsed(&line);
            let names = ["/object/metadata/name", "/object/rows/0/object/metadata/name"];
            let name = names.iter().find_map(|place| event.pointer(place)).and_then(Value::as_str);
            let last = name.is_some_and(|name| name.ends_with(SENTINEL));
            events.push(event);
            if last {
                return Ok(events);
            }
        }
    }
    Ok(events)
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}

/// Values from earlier responses, by step.
#[derive(Default)]
struct Brought {
    values: BTreeMap<(&'static str, usize), String>,
    newest: u64,
    /// The script deleted an object.
    deleted: bool,
}

impl Brought {
    fn remember(&mut self, step: usize, body: &Value, versioned: bool) {
        let places = [
            ("version", "/metadata/resourceVersion"),
            ("uid", "/metadata/uid"),
            ("name", "/metadata/name"),
            ("continue", "/metadata/continue"),
        ];
        // The version of a list depends on other writers.
        let list = body.get("items").is_some() || body.get("rows").is_some();
        let kept = |what: &str| what == "continue" || !list && (what != "version" || versioned);
        for (what, place) in places.into_iter().filter(|(what, _)| kept(what)) {
            if let Some(text) = body.pointer(place).and_then(Value::as_str) {
                self.values.insert((what, step), text.to_owned());
            }
        }
        let version = body.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        self.newest = version.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default().max(self.newest);
    }

    /// Replaces the placeholders in the text. If a step has no value, the value of the last earlier step with one is
    /// used.
    fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("<<") {
            let (place, after) = after.split_once(">>").unwrap_or((after, ""));
            let (what, step) = place.split_once(':').unwrap_or((place, "0"));
            filled.push_str(before);
            filled.push_str(self.value(what, step.parse().unwrap_or_default()));
            rest = after;
        }
        filled.push_str(rest);
        filled
    }

    fn value(&self, what: &str, step: usize) -> &str {
        let exact = what == "continue";
        let fitting = |&(&(kind, of), _): &(&(&'static str, usize), &String)| {
            kind == what && if exact { of == step } else { of <= step }
        };
        self.values.iter().rfind(fitting).map_or("", |(_, value)| value.as_str())
    }
}
