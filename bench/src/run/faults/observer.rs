//! What a client says: of events, of doubts, of its cache.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::truth::Objects;
use crate::Trouble;

/// How long a client may take to say what it holds.
const PROMPT: Duration = Duration::from_secs(5);

/// A client as a process, and what it has said.
pub(super) struct Observer {
    _child: Child,
    input: ChildStdin,
    caches: mpsc::UnboundedReceiver<Objects>,
    heard: Arc<Mutex<Heard>>,
}

/// What its handler was told, and what follows of it.
#[derive(Default)]
pub(super) struct Heard {
    /// What is there, by what the handler was told.
    pub(super) world: Objects,
    /// When it was in doubt, or not any more, and what it said.
    doubts: Vec<(Instant, Option<String>)>,
    /// The newest version told of each object, of those that are gone too.
    newest: BTreeMap<String, u64>,
    /// Objects with another identity than before, with no word of the end of the one before.
    pub(super) merged: usize,
    /// Told although it was told before.
    pub(super) again: usize,
    /// Older than what was told before.
    pub(super) back: usize,
}

impl Observer {
    /// Starts `command`; what it logs is thrown away.
    pub(super) fn start(mut command: Command) -> Result<Self, Trouble> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a process without pipes".into());
        };
        let heard = Arc::new(Mutex::new(Heard::default()));
        let (sender, caches) = mpsc::unbounded_channel();
        tokio::spawn(listen(output, heard.clone(), sender));
        Ok(Self { _child: child, input, caches, heard })
    }

    /// What its cache holds.
    pub(super) async fn cache(&mut self) -> Result<Objects, Trouble> {
        self.input.write_all(b"cache\n").await?;
        timeout(PROMPT, self.caches.recv()).await?.ok_or_else(|| "the client has ended".into())
    }

    /// What was heard so far.
    pub(super) fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    /// How long after `fault` it was first in doubt, and what it said.
    pub(super) fn doubt(&self, fault: Instant) -> Option<(Duration, String)> {
        let mut doubts = self.doubts.iter().filter(|(at, _)| *at >= fault);
        doubts.find_map(|(at, why)| Some((*at - fault, why.clone()?)))
    }

    /// What was told so far, before a fault, does not count.
    pub(super) fn begin(&mut self) {
        (self.merged, self.again, self.back) = (0, 0, 0);
    }

    fn hear(&mut self, line: &Value) {
        if let Some(why) = line["doubt"].as_str() {
            self.doubts.push((Instant::now(), Some(why.to_owned())));
        } else if line["fresh"] == true {
            self.doubts.push((Instant::now(), None));
        }
        let Some((name, known)) = object(line) else { return };
        let before = self.world.get(&name).cloned();
        match line["told"].as_str() {
            Some("applied") => {
                let newest = self.newest.entry(name.clone()).or_default();
                match &before {
                    Some((uid, _)) if *uid != known.0 => self.merged += 1,
                    Some((_, version)) if *version == known.1 => self.again += 1,
                    _ => {}
                }
                if known.1 < *newest {
                    self.back += 1;
                }
                *newest = known.1.max(*newest);
                self.world.insert(name, known);
            }
            Some("deleted") => {
                self.again += usize::from(self.world.remove(&name).is_none());
            }
            _ => {}
        }
    }
}

async fn listen(output: ChildStdout, heard: Arc<Mutex<Heard>>, caches: mpsc::UnboundedSender<Objects>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(cache) = line["cache"].as_array() {
            // Nobody may be waiting any more.
            let _ = caches.send(cache.iter().filter_map(object).collect());
        } else {
            heard.lock().unwrap_or_else(PoisonError::into_inner).hear(&line);
        }
    }
}

/// Name, UID and version of an object in the namespace that is written to.
fn object(line: &Value) -> Option<(String, (String, u64))> {
    if line["namespace"] != "default" {
        return None;
    }
    let text = |key: &str| line[key].as_str().map(str::to_owned);
    Some((text("name")?, (text("uid")?, text("version")?.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(what: &str, uid: &str, version: &str) -> Value {
        json!({ "told": what, "namespace": "default", "name": "a", "uid": uid, "version": version })
    }

    #[test]
    fn what_no_handler_should_be_told_is_counted() {
        let mut heard = Heard::default();
        for line in [told("applied", "1", "5"), told("applied", "1", "7"), told("deleted", "1", "8")] {
            heard.hear(&line);
        }
        assert_eq!((heard.merged, heard.again, heard.back, heard.world.len()), (0, 0, 0, 0));
        heard.hear(&told("applied", "2", "9"));
        heard.hear(&told("applied", "2", "9"));
        assert_eq!((heard.merged, heard.again, heard.back), (0, 1, 0));
        heard.hear(&told("applied", "3", "12"));
        assert_eq!((heard.merged, heard.again, heard.back), (1, 1, 0));
        heard.hear(&told("applied", "3", "11"));
        assert_eq!((heard.merged, heard.again, heard.back), (1, 1, 1));
    }

    #[test]
    fn a_doubt_is_dated_from_the_fault() {
        let mut heard = Heard::default();
        heard.hear(&json!({ "doubt": "starting" }));
        heard.hear(&json!({ "fresh": true }));
        let fault = Instant::now();
        assert_eq!(heard.doubt(fault), None);
        heard.hear(&json!({ "doubt": "resuming" }));
        assert_eq!(heard.doubt(fault).map(|(_, why)| why), Some("resuming".to_owned()));
    }
}
