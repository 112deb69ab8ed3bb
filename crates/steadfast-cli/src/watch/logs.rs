//! `--logs`: the logs of the watched pods, between the lines of their changes.
//!
//! The handler of pods reports each pod here. One task per container reads its log. A thread writes the lines of all
//! containers, so that a slow terminal slows the tasks down.

mod follow;
mod position;
mod source;

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::thread;

use jiff::Timestamp;
use parking_lot::Mutex;
use regex::Regex;
use serde::Serialize;
use serde_json::Value;
use steadfast::Connection;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::json_line::to_line;
use super::line::{Format, Style};
use super::printer::Printer;
use super::related::Related;
use super::text_line::TextLine;
use crate::changes::phrases::{container_statuses, text};
use crate::changes::text::escape;
use crate::clock::format_micros;
use crate::console;
use follow::{Instance, LogFollower, LogItem, StreamLimit};
use position::LogPosition;
use source::ServerLog;

/// Maximum number of lines that are pending for output. Above this number, the reading tasks wait.
const MAX_PENDING_LINES: usize = 256;

/// Container whose log is read.
#[derive(Clone, Debug)]
struct ContainerName {
    namespace: String,
    pod: String,
    uid: String,
    container: String,
}

impl Display for ContainerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {}", self.namespace, self.pod, self.container)
    }
}

/// Settings of the logs.
#[derive(Clone, Debug)]
pub(super) struct LogSettings {
    /// Containers whose names match; `None` for all.
    pub(super) containers: Option<Regex>,
    /// Start of the logs of existing pods.
    pub(super) since: Timestamp,
    /// Maximum number of logs that are read concurrently.
    pub(super) max_streams: usize,
}

/// The logs of the pods of one cluster. Cheap to clone.
#[derive(Clone)]
pub(super) struct PodLogs(Arc<Shared>);

struct Shared {
    connection: Connection,
    /// Runs the reading tasks. Handlers call this type from threads without a runtime.
    runtime: Handle,
    settings: LogSettings,
    limit: StreamLimit,
    output: mpsc::Sender<(Arc<ContainerName>, LogItem)>,
    /// With `--related`, only the logs of related pods are read.
    related: Option<Related>,
    pods: Mutex<HashMap<String, PodEntry>>,
}

/// An existing pod.
struct PodEntry {
    namespace: String,
    name: String,
    start: Option<Timestamp>,
    is_followed: bool,
    /// Latest state of each container.
    instances: Vec<(String, Option<Instance>)>,
    /// Reading tasks. They end when their sender is dropped.
    tasks: HashMap<String, watch::Sender<Option<Instance>>>,
}

impl PodLogs {
    /// Starts the thread that writes the lines. The thread ends after the last clone and the last task were dropped.
    pub(super) fn start(
        connection: Connection,
        context: Option<String>,
        settings: LogSettings,
        related: Option<Related>,
        (style, printer): (Style, Printer),
    ) -> Self {
        let (output, mut items) = mpsc::channel::<(Arc<ContainerName>, LogItem)>(MAX_PENDING_LINES);
        thread::spawn(move || {
            while let Some((name, item)) = items.blocking_recv() {
                match item {
                    LogItem::Line { time, text, truncated_bytes } => {
                        printer.print_uncounted(log_line(
                            &style,
                            context.as_deref(),
                            &name,
                            time,
                            &text,
                            truncated_bytes,
                        ));
                    }
                    LogItem::Note(note) => {
                        console::report(format_args!("# {}: {}", escape(&name.to_string()), escape(&note)));
                    }
                }
            }
        });
        let limit = StreamLimit::new(settings.max_streams);
        let (runtime, pods) = (Handle::current(), Mutex::default());
        Self(Arc::new(Shared { connection, runtime, settings, limit, output, related, pods }))
    }

    /// Records the state of a pod, and starts to read the logs of its started containers. `is_initial` marks a pod that
    /// existed at the start.
    pub(super) fn observe(&self, pod: &Value, is_initial: bool) {
        let uid = text(pod, "metadata/uid");
        let mut pods = self.0.pods.lock();
        let entry = pods.entry(uid.to_owned()).or_insert_with(|| PodEntry {
            namespace: text(pod, "metadata/namespace").to_owned(),
            name: text(pod, "metadata/name").to_owned(),
            start: is_initial.then_some(self.0.settings.since),
            is_followed: false,
            instances: Vec::new(),
            tasks: HashMap::new(),
        });
        entry.instances = instances(pod);
        self.update(uid, entry);
    }

    /// Records the deletion of a pod.
    pub(super) fn removed(&self, pod: &Value) {
        self.0.pods.lock().remove(text(pod, "metadata/uid"));
    }

    /// Starts to read the logs of pods that have joined the tree.
    pub(super) fn check_related(&self) {
        for (uid, entry) in self.0.pods.lock().iter_mut().filter(|(_, entry)| !entry.is_followed) {
            self.update(uid, entry);
        }
    }

    /// Passes the states of the containers to their tasks, and starts missing tasks.
    fn update(&self, uid: &str, entry: &mut PodEntry) {
        let is_related = |related: &Related| related.is_followed(uid);
        if !entry.is_followed && !self.0.related.as_ref().is_none_or(is_related) {
            return;
        }
        entry.is_followed = true;
        let is_selected =
            |container: &str| self.0.settings.containers.as_ref().is_none_or(|regex| regex.is_match(container));
        for (container, instance) in &entry.instances {
            if let Some(task) = entry.tasks.get(container) {
                task.send_if_modified(|known| std::mem::replace(known, *instance) != *instance);
            } else if is_selected(container) {
                let (sender, states) = watch::channel(*instance);
                entry.tasks.insert(container.clone(), sender);
                let (namespace, pod, container) = (entry.namespace.clone(), entry.name.clone(), container.clone());
                let source = ServerLog {
                    client: self.0.connection.client(),
                    namespace: namespace.clone(),
                    pod: pod.clone(),
                    container: container.clone(),
                };
                let follower = LogFollower {
                    source,
                    name: Arc::new(ContainerName { namespace, pod, uid: uid.to_owned(), container }),
                    output: self.0.output.clone(),
                    limit: self.0.limit.clone(),
                    position: LogPosition::new(entry.start),
                };
                self.0.runtime.spawn(follower.run(states));
            }
        }
    }
}

/// Returns the containers of a pod with their current instances; `None` for a container that has not started.
fn instances(pod: &Value) -> Vec<(String, Option<Instance>)> {
    let instances = container_statuses(pod).map(|status| {
        let state = |state: &str| status.pointer(state).is_some_and(Value::is_object);
        let restarts = status.get("restartCount").and_then(Value::as_u64).unwrap_or_default();
        // A container that waits for its restart still has the log of its last instance.
        let is_ended = state("/state/terminated") || (!state("/state/running") && state("/lastState/terminated"));
        let has_started = is_ended || state("/state/running");
        (text(status, "name").to_owned(), has_started.then_some(Instance { restarts, is_ended }))
    });
    instances.collect()
}

/// Formats a line of a log.
fn log_line(
    style: &Style,
    context: Option<&str>,
    name: &ContainerName,
    time: Option<Timestamp>,
    text: &str,
    truncated_bytes: u64,
) -> String {
    let time = time.unwrap_or_else(Timestamp::now);
    match &style.format {
        Format::Json { .. } => to_line(&JsonLog {
            time: format_micros(time),
            kind: "Log",
            context,
            resource: "pods",
            namespace: &name.namespace,
            name: &name.pod,
            uid: &name.uid,
            container: &name.container,
            text,
            left_out_bytes: (truncated_bytes > 0).then_some(truncated_bytes),
        }),
        Format::Text { clock, color, .. } => {
            let mut line = TextLine::default();
            line.add(None, &clock.format_time_of_day(time));
            line.add_dim(&context.into_iter().chain(["│ pods"]).collect::<Vec<_>>().join(" "));
            line.add_dim(&format!("{name} │"));
            line.add(None, &without_colors(text));
            if truncated_bytes > 0 {
                line.add_dim(&format!("… ({truncated_bytes} more bytes)"));
            }
            // The line is not shortened to the terminal width, because a log message often ends with the cause of an
            // error.
            line.render(*color, None)
        }
        // The command line rejects this combination.
        Format::Objects { .. } => String::new(),
    }
}

/// Removes the escape sequences of colours (`ESC [ … m`). Other sequences are escaped later.
fn without_colors(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        let parameters =
            after.find(|character: char| !character.is_ascii_digit() && character != ';').unwrap_or(after.len());
        rest = after[parameters..].strip_prefix('m').unwrap_or_else(|| {
            plain.push_str("\x1b[");
            after
        });
    }
    plain + rest
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonLog<'a> {
    time: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a str>,
    resource: &'static str,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    container: &'a str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::changes::describe::Content;
    use crate::clock::Clock;
    use crate::watch::line::Extras;
    use crate::watch::terminal::Width;

    #[test]
    fn status_determines_instances() {
        let status = |name: &str, restarts: u64, state: Value, last: Value| json!({"name": name, "restartCount": restarts, "state": state, "lastState": last});
        let ended = json!({"terminated": {"exitCode": 1}});
        let pod = json!({"status": {
            "initContainerStatuses": [status("init", 0, ended.clone(), json!({}))],
            "containerStatuses": [
                status("app", 2, json!({"running": {}}), ended.clone()),
                status("crashed", 3, json!({"waiting": {"reason": "CrashLoopBackOff"}}), ended),
                status("new", 0, json!({"waiting": {"reason": "ContainerCreating"}}), json!({})),
            ],
        }});
        let instance = |restarts, is_ended| Some(Instance { restarts, is_ended });
        let expected =
            [("init", instance(0, true)), ("app", instance(2, false)), ("crashed", instance(3, true)), ("new", None)];
        assert_eq!(instances(&pod), expected.map(|(name, instance)| (name.to_owned(), instance)));
    }

    #[test]
    fn line_is_prefixed_and_escaped() {
        let (namespace, pod) = ("shop".to_owned(), "web-0".to_owned());
        let name = ContainerName { namespace, pod, uid: "u".to_owned(), container: "app".to_owned() };
        let (clock, width) = (Clock::choose(true), Width::Unlimited);
        let format = Format::Text { color: false, width, clock, extras: Extras::default() };
        let style = Style { format, content: Content::default() };
        let time = "2026-01-01T00:00:07.5Z".parse().ok();
        let line = log_line(&style, None, &name, time, "\x1b[1;32mready\x1b[0m \x1b[2J\u{202e}", 3);
        let expected = "00:00:07.500Z │ pods shop/web-0 app │ ready \\u{1b}[2J\\u{202e} … (3 more bytes)";
        assert_eq!(line, expected);
        let style = Style { format: Format::Json { full: false }, content: Content::default() };
        let line: Value =
            serde_json::from_str(&log_line(&style, Some("east"), &name, time, "a\u{9b}b", 0)).expect("JSON");
        let expected = json!({
            "time": "2026-01-01T00:00:07.500000Z", "type": "Log", "context": "east", "resource": "pods",
            "namespace": "shop", "name": "web-0", "uid": "u", "container": "app", "text": "a\u{9b}b",
        });
        assert_eq!(line, expected);
    }
}
