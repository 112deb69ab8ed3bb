//! Runs a client process and parses its output: events, doubts, and contents of the cache.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::recording_writer::Objects;
use crate::BenchError;

/// Timeout of a request for the contents of a cache.
const CACHE_TIMEOUT: Duration = Duration::from_secs(5);

/// Client as a process, with its output so far.
pub(super) struct Observer {
    _child: Child,
    input: ChildStdin,
    cache_contents: mpsc::UnboundedReceiver<Objects>,
    log: Arc<Mutex<EventLog>>,
}

/// Events of a handler, and the state that follows from them.
#[derive(Default)]
pub(super) struct EventLog {
    /// Existing objects, according to the events.
    pub(super) objects: Objects,
    /// Starts and ends of doubts, with the reported reasons.
    doubts: Vec<(Instant, Option<String>)>,
    /// Newest version in the events of each object, including deleted ones.
    newest_versions: BTreeMap<String, u64>,
    /// Number of recreations that were delivered as an update: a new UID without a deletion of the old UID.
    pub(super) merged_recreations: usize,
    /// Number of repeated events.
    pub(super) repeated_events: usize,
    /// Number of events with an older version than an earlier event of the object.
    pub(super) older_events: usize,
}

impl Observer {
    /// Starts `command`, and discards its log.
    pub(super) fn start(mut command: Command) -> Result<Self, BenchError> {
        // The log is discarded, because a full pipe would block the client.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the process has no pipes".into());
        };
        let log = Arc::new(Mutex::new(EventLog::default()));
        let (sender, cache_contents) = mpsc::unbounded_channel();
        tokio::spawn(listen(output, log.clone(), sender));
        Ok(Self { _child: child, input, cache_contents, log })
    }

    /// Requests the contents of the client's cache.
    pub(super) async fn cache(&mut self) -> Result<Objects, BenchError> {
        self.input.write_all(b"cache\n").await?;
        timeout(CACHE_TIMEOUT, self.cache_contents.recv()).await?.ok_or_else(|| "the client has ended".into())
    }

    /// Returns the events so far.
    pub(super) fn log(&self) -> MutexGuard<'_, EventLog> {
        self.log.lock()
    }
}

impl EventLog {
    /// Returns the delay from `fault` to the first doubt, with the reported reason.
    pub(super) fn first_doubt_since(&self, fault: Instant) -> Option<(Duration, String)> {
        let mut doubts = self.doubts.iter().filter(|(at, _)| *at >= fault);
        doubts.find_map(|(at, reason)| Some((*at - fault, reason.clone()?)))
    }

    /// Resets the counters before a fault.
    pub(super) fn reset_counters(&mut self) {
        (self.merged_recreations, self.repeated_events, self.older_events) = (0, 0, 0);
    }

    fn record(&mut self, line: &Value) {
        if let Some(reason) = line["doubt"].as_str() {
            self.doubts.push((Instant::now(), Some(reason.to_owned())));
        } else if line["fresh"] == true {
            self.doubts.push((Instant::now(), None));
        }
        let Some((name, state)) = object(line) else { return };
        let previous = self.objects.get(&name).cloned();
        match line["event"].as_str() {
            Some("applied") => {
                let newest = self.newest_versions.entry(name.clone()).or_default();
                match &previous {
                    // A new UID without a deletion in between means that handlers see two objects as one changed
                    // object.
                    Some((uid, _)) if *uid != state.0 => self.merged_recreations += 1,
                    Some((_, version)) if *version == state.1 => self.repeated_events += 1,
                    _ => {}
                }
                // An older version after a newer one means that the handler was moved back in time.
                if state.1 < *newest {
                    self.older_events += 1;
                }
                *newest = state.1.max(*newest);
                self.objects.insert(name, state);
            }
            Some("deleted") => {
                // A deletion of an unknown object is a repeated event.
                self.repeated_events += usize::from(self.objects.remove(&name).is_none());
            }
            _ => {}
        }
    }
}

async fn listen(output: ChildStdout, log: Arc<Mutex<EventLog>>, cache_contents: mpsc::UnboundedSender<Objects>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(cache) = line["cache"].as_array() {
            // The receiver may have been dropped.
            let _ = cache_contents.send(cache.iter().filter_map(object).collect());
        } else {
            log.lock().record(&line);
        }
    }
}

/// Returns name, UID and version of an object in the namespace of the writes.
fn object(line: &Value) -> Option<(String, (String, u64))> {
    if line["namespace"] != "default" {
        return None;
    }
    // On the embedded server, versions are numbers, so the newest version can be determined.
    let field = |key: &str| line[key].as_str().map(str::to_owned);
    Some((field("name")?, (field("uid")?, field("version")?.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event_line(event_type: &str, uid: &str, version: &str) -> Value {
        json!({ "event": event_type, "namespace": "default", "name": "a", "uid": uid, "version": version })
    }

    #[test]
    fn merged_repeated_and_older_events_are_counted() {
        let mut log = EventLog::default();
        for line in [event_line("applied", "1", "5"), event_line("applied", "1", "7"), event_line("deleted", "1", "8")]
        {
            log.record(&line);
        }
        assert_eq!((log.merged_recreations, log.repeated_events, log.older_events, log.objects.len()), (0, 0, 0, 0));
        log.record(&event_line("applied", "2", "9"));
        log.record(&event_line("applied", "2", "9"));
        assert_eq!((log.merged_recreations, log.repeated_events, log.older_events), (0, 1, 0));
        log.record(&event_line("applied", "3", "12"));
        assert_eq!((log.merged_recreations, log.repeated_events, log.older_events), (1, 1, 0));
        log.record(&event_line("applied", "3", "11"));
        assert_eq!((log.merged_recreations, log.repeated_events, log.older_events), (1, 1, 1));
    }

    #[test]
    fn doubt_delay_counts_from_fault() {
        let mut log = EventLog::default();
        log.record(&json!({ "doubt": "starting" }));
        log.record(&json!({ "fresh": true }));
        let fault = Instant::now();
        assert_eq!(log.first_doubt_since(fault), None);
        log.record(&json!({ "doubt": "resuming" }));
        assert_eq!(log.first_doubt_since(fault).map(|(_, reason)| reason), Some("resuming".to_owned()));
    }
}
