//! Sending a script to a server.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use steadfast_testing::WorldError;

use crate::script::{Reading, SENTINEL, Script, Step};

/// How long any answer may take, and a watch wait for its last event.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a new watch is given to show its first event before the script goes on: some read what there is only after
/// they were answered.
const FIRST_EVENT: Duration = Duration::from_millis(400);
/// The headers that clients go by.
const HEADERS: &[&str] = &["content-type", "cache-control", "retry-after", "warning"];

/// What a server answered.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The HTTP status.
    pub code: u16,
    /// The headers that clients go by.
    pub headers: BTreeMap<String, String>,
    /// The body, a text where it is no JSON.
    pub body: Value,
    /// The events of a watch.
    pub events: Vec<Value>,
}

/// A server.
#[derive(Clone)]
pub struct Site {
    /// How it is reached.
    pub client: Client,
}

enum Answer {
    Seen(Seen),
    Streaming(JoinHandle<Result<Seen, WorldError>>),
}

impl Site {
    /// Carries out a script; one answer for each step.
    pub async fn run(&self, script: &Script) -> Result<Vec<Seen>, WorldError> {
        let mut answers = Vec::new();
        let mut brought = Brought::default();
        for (number, step) in script.steps.iter().enumerate() {
            if let Some(collection) = &step.after_cache {
                self.catch_up(collection, brought.newest).await?;
            }
            let answer = timeout(PATIENCE, self.step(step, &brought)).await;
            let answer = answer.map_err(|_| format!("step {number} was not answered: {step:?}"))??;
            if let Answer::Seen(seen) = &answer {
                brought.remember(number, &seen.body);
            }
            answers.push(answer);
        }
        let mut all = Vec::new();
        for answer in answers {
            all.push(match answer {
                Answer::Seen(seen) => seen,
                Answer::Streaming(task) => task.await??,
            });
        }
        Ok(all)
    }

    /// Waits until the cache behind a collection has what the script wrote.
    async fn catch_up(&self, collection: &str, version: u64) -> Result<(), WorldError> {
        let path = format!("{collection}?limit=1&resourceVersion={version}&resourceVersionMatch=NotOlderThan");
        for _ in 0..10 {
            let request = Request::get(&path).body(Body::empty())?;
            let response = self.client.send(request).await?;
            if response.status() != 504 {
                return Ok(());
            }
        }
        Err(format!("the cache of {collection} does not reach {version}").into())
    }

    async fn step(&self, step: &Step, brought: &Brought) -> Result<Answer, WorldError> {
        let mut request = Request::builder().method(step.method).uri(brought.fill(&step.path));
        if !step.content_type.is_empty() {
            request = request.header("content-type", step.content_type);
        }
        if !step.accept.is_empty() {
            request = request.header("accept", step.accept);
        }
        let body = brought.fill(&step.body);
        let body = if body.is_empty() { Body::empty() } else { Body::from(body.into_bytes()) };
        let response = self.client.send(request.body(body)?).await?;
        let mut seen = Seen { code: response.status().as_u16(), ..Seen::default() };
        for name in HEADERS {
            let values: Vec<_> = response.headers().get_all(*name).iter().filter_map(|v| v.to_str().ok()).collect();
            if !values.is_empty() {
                seen.headers.insert((*name).to_owned(), values.join(" | "));
            }
        }
        let body = response.into_body();
        if step.reading == Reading::UntilSentinel && seen.code == 200 {
            let (first, told) = oneshot::channel();
            let task = tokio::spawn(async move {
                let read = timeout(PATIENCE, events(body, first)).await;
                seen.events = read.unwrap_or_else(|_| Ok(vec!["the last event did not come".into()]))?;
                Ok(seen)
            });
            let _ = timeout(FIRST_EVENT, told).await;
            return Ok(Answer::Streaming(task));
        }
        let bytes = body.collect().await?.to_bytes();
        seen.body = parsed(&bytes);
        Ok(Answer::Seen(seen))
    }
}

async fn events(mut body: Body, first: oneshot::Sender<()>) -> Result<Vec<Value>, WorldError> {
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
            let last = event.pointer("/object/metadata/name").is_some_and(|name| name == SENTINEL);
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

/// What earlier answers brought, by step.
#[derive(Default)]
struct Brought {
    values: BTreeMap<(&'static str, usize), String>,
    newest: u64,
}

impl Brought {
    fn remember(&mut self, step: usize, body: &Value) {
        let places = [
            ("version", "/metadata/resourceVersion"),
            ("uid", "/metadata/uid"),
            ("name", "/metadata/name"),
            ("continue", "/metadata/continue"),
        ];
        for (what, place) in places {
            if let Some(text) = body.pointer(place).and_then(Value::as_str) {
                self.values.insert((what, step), text.to_owned());
            }
        }
        let version = body.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        self.newest = version.and_then(|text| text.parse::<u64>().ok()).unwrap_or_default().max(self.newest);
    }

    /// The text with what its places stand for; a step that brought nothing stands for the last one before that did.
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
