//! Execution of a script on a server.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use steadfast_testing::TestError;

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
    // UIDs of the server's own objects for API Priority and Fairness that match the request.
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
];

/// Response of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerResponse {
    /// HTTP status.
    pub code: u16,
    /// Headers, except for those that are not compared.
    pub headers: BTreeMap<String, String>,
    /// Body. A string if it is not valid JSON.
    pub body: Value,
    /// Events of a watch.
    pub events: Vec<Value>,
}

enum StepResult {
    Complete(ServerResponse),
    Streaming(JoinHandle<Result<ServerResponse, TestError>>),
}

/// Script in progress, with its responses so far.
#[derive(Default)]
pub struct ScriptProgress {
    /// One response for each step.
    pub responses: Vec<ServerResponse>,
    earlier: EarlierValues,
}

impl TestServer {
    /// Runs a script, and returns one response for each step.
    pub async fn run(&self, script: &Script) -> Result<Vec<ServerResponse>, TestError> {
        let mut progress = ScriptProgress::default();
        self.run_until_step(script, script.steps.len(), &mut progress).await?;
        Ok(progress.responses)
    }

    /// Runs a script up to the step `end` on a connection of its own. Waits for the end of its watches.
    pub async fn run_until_step(
        &self,
        script: &Script,
        end: usize,
        progress: &mut ScriptProgress,
    ) -> Result<(), TestError> {
        self.open().await?.run_until_step(script, end, progress).await
    }
}

impl Session {
    async fn run_until_step(
        &self,
        script: &Script,
        end: usize,
        progress: &mut ScriptProgress,
    ) -> Result<(), TestError> {
        let mut responses = Vec::new();
        let earlier = &mut progress.earlier;
        let deadline = Instant::now() + SCRIPT_TIMEOUT;
        for (number, step) in script.steps.iter().enumerate().take(end).skip(progress.responses.len()) {
            let result = async {
                if let Some(collection) = &step.wait_for_watch_cache {
                    self.catch_up(collection, earlier).await?;
                }
                if step.after_watches {
                    ended(&mut responses).await?;
                }
                self.until(step, earlier).await
            };
            let result = timeout_at(deadline.min(Instant::now() + RESPONSE_TIMEOUT), result).await;
            let result = result.unwrap_or_else(|_| Err("no response within the timeout".into()));
            let result = result.map_err(|error| format!("{}: {error}", script.place(number)))?;
            if let StepResult::Complete(received) = &result {
                // A dry run of a creation returns the version that the client sent, if any. No server assigned this
                // version.
                let versioned = received.code != 201 || !step.path.contains("dryRun=All");
                earlier.remember(number, &received.body, versioned);
                earlier.deleted |= step.method == "DELETE" && received.code == 200;
            }
            responses.push(result);
        }
        let first = progress.responses.len();
        for (number, result) in responses.into_iter().enumerate().map(|(number, result)| (first + number, result)) {
            progress.responses.push(match result {
                StepResult::Complete(received) => received,
                StepResult::Streaming(task) => {
                    let received = timeout_at(deadline, task).await;
                    let received = received
                        .map_or_else(|_| Err("the watch did not end within the timeout".into()), |received| received?);
                    received.map_err(|error| format!("{}: {error}", script.place(number)))?
                }
            });
        }
        Ok(())
    }

    /// Repeats the request until the response meets the condition of the step.
    async fn until(&self, step: &Step, earlier: &EarlierValues) -> Result<StepResult, TestError> {
        loop {
            let result = self.step(step, earlier).await?;
            match (&step.until, &result) {
                // A real server returns this while the cache of a changed definition is not filled yet.
                (_, StepResult::Complete(received)) if received.body["message"] == "storage is (re)initializing" => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                (Some(until), StepResult::Complete(received))
                    if !until.holds(received.code, &received.body.to_string()) =>
                {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                _ => return Ok(result),
            }
        }
    }

    /// Waits until the cache of a collection has the writes of the script.
    async fn catch_up(&self, collection: &str, earlier: &EarlierValues) -> Result<(), TestError> {
        let mut version = earlier.newest;
        // The response to a deletion has no version.
        if earlier.deleted {
            let response = self.send("GET", &format!("{collection}?limit=1"), &[], String::new()).await?;
            let list = parsed(&response.into_body().collect().await?.to_bytes());
            let first_received = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            version = first_received.and_then(|text| text.parse().ok()).unwrap_or(version);
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

    async fn step(&self, step: &Step, earlier: &EarlierValues) -> Result<StepResult, TestError> {
        let headers = [("content-type", step.content_type), ("accept", step.accept)];
        let (path, body) = (earlier.fill(&step.path), earlier.fill(&step.body));
        let sent = self.send(step.method, &path, &headers, body).await;
        let response = match sent {
            Ok(response) => response,
            Err(error) => {
                return Ok(StepResult::Complete(ServerResponse {
                    body: format!("no response: {error}").into(),
                    ..ServerResponse::default()
                }));
            }
        };
        let mut received = ServerResponse { code: response.status().as_u16(), ..ServerResponse::default() };
        for name in response.headers().keys().filter(|name| !NOT_COMPARED.contains(&name.as_str())) {
            let values: Vec<_> = response.headers().get_all(name).iter().filter_map(|v| v.to_str().ok()).collect();
            received.headers.insert(name.to_string(), values.join(" | "));
        }
        let body = response.into_body();
        if step.reading == Reading::UntilSentinel && received.code == 200 {
            let (first, first_received) = oneshot::channel();
            let task = tokio::spawn(async move {
                let read = timeout(RESPONSE_TIMEOUT, events(body, first)).await;
                received.events = read.unwrap_or_else(|_| Ok(vec!["the last event did not arrive".into()]))?;
                Ok(received)
            });
            let _ = timeout(FIRST_EVENT, first_received).await;
            return Ok(StepResult::Streaming(task));
        }
        received.body = match body.collect().await {
            Ok(body) if step.reading == Reading::Events && received.code == 200 => {
                let body = body.to_bytes();
                let lines = body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
                received.events = lines.map(parsed).collect();
                Value::Null
            }
            Ok(body) => parsed(&body.to_bytes()),
            Err(error) => format!("a body that ends with {error:?}").into(),
        };
        Ok(StepResult::Complete(received))
    }
}

/// Waits for the end of the watches among the responses.
async fn ended(responses: &mut [StepResult]) -> Result<(), TestError> {
    for result in responses {
        if let StepResult::Streaming(task) = result {
            *result = StepResult::Complete(task.await??);
        }
    }
    Ok(())
}

async fn events(mut body: Incoming, first: oneshot::Sender<()>) -> Result<Vec<Value>, TestError> {
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
struct EarlierValues {
    values: BTreeMap<(&'static str, usize), String>,
    newest: u64,
    /// True if the script has deleted an object.
    deleted: bool,
}

impl EarlierValues {
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
