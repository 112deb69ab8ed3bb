//! Pages of an opened object that need requests: events and logs. A page ends when its task is dropped.

use futures::io::AsyncBufRead;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde_json::Value;
use steadfast::unstable::cause::root_cause;
use steadfast::{Connection, InformerFactory, Scope};
use tokio::sync::mpsc::Sender;
use tokio::task::{AbortHandle, JoinSet};

use super::details::{MAX_LINES, PageLine};
use super::row::RowKey;
use crate::changes::kind::Kind;
use crate::changes::phrases::{HealthEffect, event_time};
use crate::changes::state::state;
use crate::discovery::event_resource;
use crate::log_lines::next_line;
use crate::watch::watched::{CachedObject, decode_object};

/// Number of lines of a log before the current ones.
const LOG_TAIL_LINES: i64 = 500;

/// Maximum length of a line of a log in bytes. The rest of a longer line is dropped.
const MAX_LOG_LINE_BYTES: usize = 4096;

/// Lines from a task.
#[derive(Debug)]
pub(super) enum PageUpdate {
    /// All lines of the page.
    Replace(Vec<PageLine>),
    /// A further line.
    Append(PageLine),
}

/// Number of the page load, and an update of the page. Updates of earlier loads are ignored.
pub(super) type NumberedUpdate = (u64, PageUpdate);

/// Running task of a page, which ends when this is dropped.
pub(super) struct PageTask(AbortHandle);

impl PageTask {
    /// Starts the task of a page.
    pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task).abort_handle())
    }
}

impl Drop for PageTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sender of the updates of one page.
#[derive(Clone)]
pub(super) struct PageSender {
    pub(super) load_id: u64,
    pub(super) updates: Sender<NumberedUpdate>,
}

impl PageSender {
    /// Sends an update. Waits while the screen is slow. Returns false after the end of the screen.
    pub(super) async fn send(&self, update: PageUpdate) -> bool {
        self.updates.send((self.load_id, update)).await.is_ok()
    }
}

/// Starts the page of the events of an object.
pub(super) fn load_events(connection: Connection, key: RowKey, kind: Kind, sender: PageSender) -> PageTask {
    PageTask::spawn(async move {
        let events = event_resource();
        // Events of cluster-scoped objects are in the namespace `default`.
        let namespace = if key.namespace().is_empty() { "default" } else { key.namespace() };
        let fields = format!("involvedObject.name={},involvedObject.kind={}", key.name(), kind.kind);
        let factory = InformerFactory::new(&connection);
        let scope = Scope::namespace(namespace).fields(fields);
        let informer = match factory.builder_with::<CachedObject>(&events, scope).protobuf(false).start() {
            Ok(informer) => informer,
            Err(error) => {
                sender.send(failure(&format!("events cannot be watched: {error}"))).await;
                return;
            }
        };
        let mut changed = informer.changed();
        loop {
            let snapshot = informer.snapshot();
            let values = snapshot.decodable().take(MAX_LINES).map(|event| decode_object(&events, event));
            let mut lines = event_lines(&values.collect::<Vec<_>>());
            let freshness = informer.freshness();
            if lines.is_empty() {
                let is_fresh = freshness.doubt().is_none();
                lines.push(PageLine::plain(if is_fresh { "no events" } else { "waiting for events" }));
            }
            if freshness.doubt().is_some() {
                lines.insert(0, PageLine::with_effect(HealthEffect::Degraded, &freshness.to_string()));
            }
            if !sender.send(PageUpdate::Replace(lines)).await || changed.changed().await.is_err() {
                return;
            }
        }
    })
}

/// Returns the lines of events, the latest first.
fn event_lines(events: &[Value]) -> Vec<PageLine> {
    let kind = Kind::new("", "Event");
    let mut lines: Vec<PageLine> = events
        .iter()
        .map(|event| {
            let is_warning = event.get("type").and_then(Value::as_str) == Some("Warning");
            let effect = if is_warning { HealthEffect::Degraded } else { HealthEffect::Neutral };
            PageLine { time: event_time(event), ..PageLine::with_effect(effect, &state(&kind, &[], event)) }
        })
        .collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.time));
    lines
}

/// Starts the page of the logs of a pod: all containers, each line with the name of its container if the pod has
/// several.
pub(super) fn load_logs(connection: Connection, key: RowKey, pod: Value, sender: PageSender) -> PageTask {
    PageTask::spawn(async move {
        let containers: Vec<String> = ["/spec/initContainers", "/spec/containers"]
            .iter()
            .filter_map(|path| pod.pointer(path)?.as_array())
            .flatten()
            .filter_map(|container| Some(container.get("name")?.as_str()?.to_owned()))
            .collect();
        let has_prefix = containers.len() > 1;
        let mut followers = JoinSet::new();
        for container in containers {
            let prefix = if has_prefix { format!("{container}: ") } else { String::new() };
            let pods: Api<Pod> = Api::namespaced(connection.client(), key.namespace());
            followers.spawn(follow_log(pods, key.clone(), container, prefix, sender.clone()));
        }
        while followers.join_next().await.is_some() {}
    })
}

async fn follow_log(pods: Api<Pod>, key: RowKey, container: String, prefix: String, sender: PageSender) {
    let parameters = LogParams {
        container: Some(container.clone()),
        follow: true,
        tail_lines: Some(LOG_TAIL_LINES),
        ..LogParams::default()
    };
    let end = match pods.log_stream(key.name(), &parameters).await {
        Ok(log) => match send_lines(log, &prefix, &sender).await {
            Ok(()) => {
                format!("the log of container {container} has ended; close and open the page to read a later one")
            }
            Err(error) => format!("the log of container {container} was interrupted: {error}"),
        },
        Err(error) => {
            let reason = match &error {
                kube::Error::Api(status) => status.message.clone(),
                other => root_cause(other),
            };
            format!("the log of container {container} cannot be read: {reason}")
        }
    };
    sender.send(failure(&end)).await;
}

/// Sends the lines of a log until its end.
async fn send_lines(log: impl AsyncBufRead, prefix: &str, sender: &PageSender) -> std::io::Result<()> {
    let mut log = std::pin::pin!(log);
    while let Some(line) = next_line(log.as_mut(), MAX_LOG_LINE_BYTES).await? {
        if !sender.send(log_line(prefix, &line.bytes)).await {
            break;
        }
    }
    Ok(())
}

fn log_line(prefix: &str, line: &[u8]) -> PageUpdate {
    let text = String::from_utf8_lossy(line);
    PageUpdate::Append(PageLine::plain(&format!("{prefix}{}", text.trim_end_matches('\r'))))
}

/// Returns a line of a failed request.
pub(super) fn failure(text: &str) -> PageUpdate {
    PageUpdate::Append(PageLine::with_effect(HealthEffect::Degraded, text))
}

#[cfg(test)]
mod tests {
    use futures::io::{BufReader, Cursor};
    use serde_json::json;
    use tokio::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn log_lines_are_bounded_and_escaped() {
        let (updates, mut received) = channel(16);
        let sender = PageSender { load_id: 1, updates };
        let text = format!("one\r\n\u{1b}[2J\n{}\nlast", "x".repeat(3 * MAX_LOG_LINE_BYTES));
        // The small buffer splits lines.
        let log = BufReader::with_capacity(7, Cursor::new(text.into_bytes()));
        send_lines(log, "app: ", &sender).await.expect("a log");
        drop(sender);
        let mut lines = Vec::new();
        while let Some((_, PageUpdate::Append(line))) = received.recv().await {
            lines.push(line.parts[0].text.clone());
        }
        let shortened = format!("app: {}", "x".repeat(MAX_LOG_LINE_BYTES));
        assert_eq!(lines, ["app: one", "app: \\u{1b}[2J", shortened.as_str(), "app: last"]);
    }

    #[test]
    fn latest_event_is_first() {
        let event = |reason: &str, time: &str| {
            let object = json!({"kind": "Pod", "name": "web"});
            json!({"type": "Warning", "reason": reason, "message": "m", "involvedObject": object, "lastTimestamp": time})
        };
        let lines = event_lines(&[event("Old", "2026-01-01T00:00:00Z"), event("New", "2026-01-02T00:00:00Z")]);
        let texts: Vec<&str> = lines.iter().map(|line| line.parts[0].text.as_str()).collect();
        assert_eq!(texts, ["Warning New Pod/web: m", "Warning Old Pod/web: m"]);
    }
}
