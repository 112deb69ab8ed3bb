//! Follows the log of one container across its restarts and across interrupted responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

use super::position::LogPosition;
use super::source::{LogError, LogRequest, LogSource};
use crate::log_lines::next_line;

const RETRY_INITIAL_DELAY: Duration = Duration::from_millis(500);
const RETRY_MAX_DELAY: Duration = Duration::from_secs(10);

/// Maximum length of a log line in bytes. The rest of a longer line is left out.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Instance of a container, as the status of its pod reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    /// Number of restarts before this instance.
    pub(super) restarts: u64,
    pub(super) is_ended: bool,
}

/// Part of the output of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogItem {
    Line {
        /// Time of the line at its node.
        time: Option<Timestamp>,
        text: String,
        /// Number of bytes at the end of the line that were left out.
        truncated_bytes: u64,
    },
    /// A message about the log, for standard error.
    Note(String),
}

/// Limit of the number of logs that are read concurrently. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct StreamLimit {
    limit: usize,
    free: Arc<Semaphore>,
    is_reported: Arc<AtomicBool>,
}

impl StreamLimit {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, free: Arc::new(Semaphore::new(limit)), is_reported: Arc::default() }
    }

    /// Waits until another log may be read. Calls `report` with a message at the first wait.
    async fn acquire(&self, report: impl AsyncFnOnce(String)) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.free.clone().try_acquire_owned() {
            return Some(permit);
        }
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            report(format!(
                "more than {} logs are requested; the others wait. Use a selector or --container, or raise --max-log-requests",
                self.limit
            ))
            .await;
        }
        self.free.clone().acquire_owned().await.ok()
    }
}

/// Reader of the log of one container.
pub(super) struct LogFollower<S, N> {
    pub(super) source: S,
    /// Name of the container in the output.
    pub(super) name: Arc<N>,
    pub(super) output: Sender<(Arc<N>, LogItem)>,
    pub(super) limit: StreamLimit,
    pub(super) position: LogPosition,
}

/// The output has ended.
struct OutputClosed;

impl<S: LogSource, N> LogFollower<S, N> {
    /// Reads the log until the pod is removed, which drops the sender of `states`.
    pub(super) async fn run(mut self, mut states: watch::Receiver<Option<Instance>>) {
        // Ended instances without further lines.
        let mut finished: Option<Instance> = None;
        let mut reading: Option<Instance> = None;
        let (mut delay, mut reported): (Duration, Option<String>) = (RETRY_INITIAL_DELAY, None);
        loop {
            let instance = *states.borrow_and_update();
            let Some(instance) = instance.filter(|instance| finished != Some(*instance)) else {
                if states.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let output = self.output.clone();
            let name = self.name.clone();
            let report = async |note: String| drop(output.send((name, LogItem::Note(note))).await);
            let Some(permit) = self.limit.acquire(report).await else { return };
            let earlier = reading.replace(instance);
            let outcome = self.read_instance(earlier, instance).await;
            match outcome {
                Err(OutputClosed) => return,
                Ok(Ok(())) if instance.is_ended => {
                    finished = Some(instance);
                    (delay, reported) = (RETRY_INITIAL_DELAY, None);
                    continue;
                }
                Ok(Ok(())) => (delay, reported) = (RETRY_INITIAL_DELAY, None),
                Ok(Err(error)) => {
                    if !error.is_expected() && reported.as_ref() != Some(&error.reason) {
                        let note = format!("the log is interrupted and requested again: {}", error.reason);
                        if self.send(LogItem::Note(note)).await.is_err() {
                            return;
                        }
                        reported = Some(error.reason);
                    }
                    delay = (delay * 2).min(RETRY_MAX_DELAY);
                }
            }
            drop(permit);
            // A response also ends if its connection ends. The status of the pod shows whether the instance has ended.
            tokio::select! {
                changed = states.changed() => if changed.is_err() { return },
                () = sleep(delay) => {}
            }
        }
    }

    /// Reads the rest of the instance before `instance`, and then `instance`. The instance that was read until now is
    /// `earlier`.
    async fn read_instance(
        &mut self,
        earlier: Option<Instance>,
        instance: Instance,
    ) -> Result<Result<(), LogError>, OutputClosed> {
        if let Some(earlier) = earlier.filter(|earlier| instance.restarts > earlier.restarts + 1) {
            let lost = instance.restarts - earlier.restarts - 1;
            let note = format!("{lost} restarts since the last line: the server has only the log of the last instance");
            self.send(LogItem::Note(note)).await?;
        }
        // The instance may have restarted before its last lines arrived. The status can be late, so its number of
        // restarts does not decide.
        if earlier.is_some() || instance.restarts > 0 {
            match self.read(true, false).await? {
                // Without a previous instance, the server responds 400 or 404.
                Err(error) if !error.is_expected() => return Ok(Err(error)),
                _ => {}
            }
        }
        self.read(false, !instance.is_ended).await
    }

    /// Reads one response to its end.
    async fn read(&mut self, previous: bool, follow: bool) -> Result<Result<(), LogError>, OutputClosed> {
        let since = self.position.resume();
        let mut reader = match self.source.open(LogRequest { since, previous, follow }).await {
            Ok(reader) => reader,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            let line = match next_line(reader.as_mut(), MAX_LINE_BYTES).await {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(Ok(())),
                Err(error) => return Ok(Err(LogError { code: None, reason: error.to_string() })),
            };
            // The rest of a line follows with the next response, unless the instance has ended.
            if !line.is_complete && follow {
                return Ok(Ok(()));
            }
            let (time, content) = split_time(&line.bytes);
            if self.position.is_new(time, content) {
                let text = String::from_utf8_lossy(content).into_owned();
                self.send(LogItem::Line { time, text, truncated_bytes: line.truncated_bytes }).await?;
            }
        }
    }

    async fn send(&self, item: LogItem) -> Result<(), OutputClosed> {
        self.output.send((self.name.clone(), item)).await.map_err(|_| OutputClosed)
    }
}

impl LogError {
    /// Returns whether the log does not exist: the container has not started, or the pod is deleted.
    fn is_expected(&self) -> bool {
        matches!(self.code, Some(400 | 404))
    }
}

/// Returns the time at the start of a line, and the rest.
fn split_time(line: &[u8]) -> (Option<Timestamp>, &[u8]) {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let time = std::str::from_utf8(&line[..end]).ok().and_then(|time| time.parse().ok());
    if time.is_none() {
        return (None, line);
    }
    (time, line.get(end + 1..).unwrap_or_default())
}

#[cfg(test)]
mod tests;
