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
use crate::differential::script::{ReadMode, SENTINEL, Script, Step};

/// Timeout for a response, and for the last event of a watch.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);
/// Timeout for a whole script. With forty concurrent scripts on two cores, one takes about ten seconds.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(240);
/// Timeout for the first event of a new watch before the script continues. Some servers read the initial state only
/// after they have responded.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_millis(400);
/// Interval between two requests that wait for a certain response.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Headers without comparison, because they differ between requests or name an object of one server.
const IGNORED_HEADERS: &[&str] = &[
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
    earlier_values: EarlierValues,
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
        let earlier_values = &mut progress.earlier_values;
        let deadline = Instant::now() + SCRIPT_TIMEOUT;
        for (number, step) in script.steps.iter().enumerate().take(end).skip(progress.responses.len()) {
            let result = async {
                if let Some(collection) = &step.wait_for_watch_cache {
                    self.catch_up(collection, earlier_values).await?;
                }
                if step.waits_for_watches {
                    finish_watches(&mut responses).await?;
                }
                self.run_until_condition(step, earlier_values).await
            };
            let result = timeout_at(deadline.min(Instant::now() + RESPONSE_TIMEOUT), result).await;
            let result = result.unwrap_or_else(|_| Err("no response within the timeout".into()));
            let result = result.map_err(|error| format!("{}: {error}", script.describe_step(number)))?;
            if let StepResult::Complete(response) = &result {
                // A dry run of a creation returns the version that the client sent, if any. No server assigned this
                // version.
                let has_server_version = response.code != 201 || !step.path.contains("dryRun=All");
                earlier_values.record(number, &response.body, has_server_version);
                earlier_values.has_deletion |= step.method == "DELETE" && response.code == 200;
            }
            responses.push(result);
        }
        let first = progress.responses.len();
        for (number, result) in responses.into_iter().enumerate().map(|(number, result)| (first + number, result)) {
            progress.responses.push(match result {
                StepResult::Complete(response) => response,
                StepResult::Streaming(task) => {
                    let response = timeout_at(deadline, task).await;
                    let response = response
                        .map_or_else(|_| Err("the watch did not end within the timeout".into()), |response| response?);
                    response.map_err(|error| format!("{}: {error}", script.describe_step(number)))?
                }
            });
        }
        Ok(())
    }

    /// Repeats the request until the response meets the condition of the step.
    async fn run_until_condition(&self, step: &Step, earlier_values: &EarlierValues) -> Result<StepResult, TestError> {
        loop {
            let result = self.step(step, earlier_values).await?;
            match (&step.condition, &result) {
                // A real server returns this while the cache of a changed definition is not filled yet.
                (_, StepResult::Complete(response)) if response.body["message"] == "storage is (re)initializing" => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                (Some(condition), StepResult::Complete(response))
                    if !condition.is_met(response.code, &response.body.to_string()) =>
                {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                _ => return Ok(result),
            }
        }
    }

    /// Waits until the cache of a collection has the writes of the script.
    async fn catch_up(&self, collection: &str, earlier_values: &EarlierValues) -> Result<(), TestError> {
        let mut version = earlier_values.newest_version;
        // The response to a deletion has no version.
        if earlier_values.has_deletion {
            let response = self.send("GET", &format!("{collection}?limit=1"), &[], String::new()).await?;
            let list = parse_json(&response.into_body().collect().await?.to_bytes());
            let list_version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            version = list_version.and_then(|text| text.parse().ok()).unwrap_or(version);
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

    async fn step(&self, step: &Step, earlier_values: &EarlierValues) -> Result<StepResult, TestError> {
        let headers = [("content-type", step.content_type), ("accept", step.accept)];
        let (path, body) = (earlier_values.fill(&step.path), earlier_values.fill(&step.body));
        let result = self.send(step.method, &path, &headers, body).await;
        let response = match result {
            Ok(response) => response,
            Err(error) => {
                return Ok(StepResult::Complete(ServerResponse {
                    body: format!("no response: {error}").into(),
                    ..ServerResponse::default()
                }));
            }
        };
        let mut server_response = ServerResponse { code: response.status().as_u16(), ..ServerResponse::default() };
        for name in response.headers().keys().filter(|name| !IGNORED_HEADERS.contains(&name.as_str())) {
            let values: Vec<_> = response.headers().get_all(name).iter().filter_map(|v| v.to_str().ok()).collect();
            server_response.headers.insert(name.to_string(), values.join(" | "));
        }
        let body = response.into_body();
        if step.read_mode == ReadMode::UntilSentinel && server_response.code == 200 {
            let (first_event_sender, first_event) = oneshot::channel();
            let task = tokio::spawn(async move {
                let read_result = timeout(RESPONSE_TIMEOUT, read_events(body, first_event_sender)).await;
                server_response.events =
                    read_result.unwrap_or_else(|_| Ok(vec!["the last event did not arrive".into()]))?;
                Ok(server_response)
            });
            let _ = timeout(FIRST_EVENT_TIMEOUT, first_event).await;
            return Ok(StepResult::Streaming(task));
        }
        server_response.body = match body.collect().await {
            Ok(body) if step.read_mode == ReadMode::Events && server_response.code == 200 => {
                let body = body.to_bytes();
                let lines = body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
                server_response.events = lines.map(parse_json).collect();
                Value::Null
            }
            Ok(body) => parse_json(&body.to_bytes()),
            Err(error) => format!("a body that ends with {error:?}").into(),
        };
        Ok(StepResult::Complete(server_response))
    }
}

/// Waits for the end of the watches among the responses.
async fn finish_watches(responses: &mut [StepResult]) -> Result<(), TestError> {
    for result in responses {
        if let StepResult::Streaming(task) = result {
            *result = StepResult::Complete(task.await??);
        }
    }
    Ok(())
}

async fn read_events(mut body: Incoming, first_event: oneshot::Sender<()>) -> Result<Vec<Value>, TestError> {
    let mut first_event = Some(first_event);
    let mut buffer = Vec::new();
    let mut events = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if let Some(first_event) = first_event.take() {
            let _ = first_event.send(());
        }
        buffer.extend_from_slice(&data);
        while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let event = parse_json(&line);
            let names = ["/object/metadata/name", "/object/rows/0/object/metadata/name"];
            let name = names.iter().find_map(|pointer| event.pointer(pointer)).and_then(Value::as_str);
            let is_sentinel = name.is_some_and(|name| name.ends_with(SENTINEL));
            events.push(event);
            if is_sentinel {
                return Ok(events);
            }
        }
    }
    Ok(events)
}

fn parse_json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}

/// Values from earlier responses, by step.
#[derive(Default)]
struct EarlierValues {
    values: BTreeMap<(&'static str, usize), String>,
    newest_version: u64,
    /// True if the script has deleted an object.
    has_deletion: bool,
}

impl EarlierValues {
    fn record(&mut self, step: usize, body: &Value, has_server_version: bool) {
        let pointers = [
            ("version", "/metadata/resourceVersion"),
            ("uid", "/metadata/uid"),
            ("name", "/metadata/name"),
            ("continue", "/metadata/continue"),
        ];
        // The version of a list depends on other writers.
        let is_list = body.get("items").is_some() || body.get("rows").is_some();
        let is_kept = |name: &str| name == "continue" || !is_list && (name != "version" || has_server_version);
        for (name, pointer) in pointers.into_iter().filter(|(name, _)| is_kept(name)) {
            if let Some(text) = body.pointer(pointer).and_then(Value::as_str) {
                self.values.insert((name, step), text.to_owned());
            }
        }
        let version = body.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        self.newest_version =
            version.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default().max(self.newest_version);
    }

    /// Replaces the placeholders in the text. If a step has no value, the value of the last earlier step with one is
    /// used.
    fn fill(&self, text: &str) -> String {
        let mut output = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("<<") {
            let (placeholder, after) = after.split_once(">>").unwrap_or((after, ""));
            let (name, step) = placeholder.split_once(':').unwrap_or((placeholder, "0"));
            output.push_str(before);
            output.push_str(self.value(name, step.parse().unwrap_or_default()));
            rest = after;
        }
        output.push_str(rest);
        output
    }

    fn value(&self, name: &str, step: usize) -> &str {
        let needs_exact_step = name == "continue";
        let is_match = |&(&(value_name, value_step), _): &(&(&'static str, usize), &String)| {
            value_name == name && if needs_exact_step { value_step == step } else { value_step <= step }
        };
        self.values.iter().rfind(is_match).map_or("", |(_, value)| value.as_str())
    }
}
