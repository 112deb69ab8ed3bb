//! The process behind a runtime socket, and its restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Maximum difference between the reported and the expected uptime that does not count as a restart.
const UPTIME_TOLERANCE: Duration = Duration::from_secs(2);

/// HAProxy process as reported by `show info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: u64,
    uptime: Duration,
    /// Connections since the start, those to the runtime socket included.
    connections: u64,
    /// True after a reload, when the process only finishes its existing connections.
    pub(super) is_stopping: bool,
    read_at: Instant,
}

impl Process {
    /// Reads the response to `show info`; `None` without process ID or uptime.
    pub(super) fn read(info: &str) -> Option<Self> {
        let fields: BTreeMap<_, _> = info.lines().filter_map(|line| line.trim().split_once(": ")).collect();
        let number = |name: &str| fields.get(name)?.parse::<u64>().ok();
        Some(Self {
            pid: number("Pid")?,
            uptime: Duration::from_secs(number("Uptime_sec")?),
            connections: number("CumConns").unwrap_or_default(),
            is_stopping: number("Stopping").is_some_and(|stopping| stopping != 0),
            read_at: Instant::now(),
        })
    }

    /// Returns a description of the restart if `earlier` was another process.
    ///
    /// In a container, each new process can have the same ID. Then a new process has a lower uptime than expected. If
    /// the earlier process ran for only a few seconds, the uptimes are too similar. The new process then has a lower
    /// count of connections.
    pub(super) fn restart_reason(&self, earlier: &Self) -> Option<String> {
        let expected = earlier.uptime.saturating_add(self.read_at.saturating_duration_since(earlier.read_at));
        let is_younger = self.uptime.saturating_add(UPTIME_TOLERANCE) < expected;
        // The connection counter of one process only grows.
        let is_other = self.pid != earlier.pid || is_younger || self.connections < earlier.connections;
        is_other.then(|| {
            let (pid, earlier_pid, uptime) = (self.pid, earlier.pid, self.uptime.as_secs());
            format!("HAProxy was reloaded or restarted: process {pid} instead of {earlier_pid}, up {uptime} s")
        })
    }
}

/// State that a target keeps between reads.
#[derive(Debug, Default)]
pub(super) struct ProcessObserver(Mutex<ObservedState>);

#[derive(Debug, Default)]
struct ObservedState {
    /// Process of the last read.
    process: Option<Process>,
    /// True if the socket failed to respond to a poll since the last read.
    has_missed_poll: bool,
    /// Description of the last restart, until the mirror logs it.
    reason: Option<String>,
    /// Servers whose health checks are configured and not enabled.
    unchecked: BTreeSet<String>,
}

impl ProcessObserver {
    fn lock(&self) -> MutexGuard<'_, ObservedState> {
        self.0.lock()
    }

    /// Records the result of a poll; returns true if a read is due.
    pub(super) fn poll(&self, process: Option<Process>) -> bool {
        let mut state = self.lock();
        // A missing or stopping process is remembered, so that its successor is reported even without other signs.
        let Some(process) = process.filter(|process| !process.is_stopping) else {
            state.has_missed_poll = true;
            return false;
        };
        let restart_reason = match &state.process {
            Some(earlier) => process.restart_reason(earlier),
            None => Some("HAProxy responds for the first time".to_owned()),
        };
        let reason = restart_reason.or_else(|| state.has_missed_poll.then(|| "HAProxy responds again".to_owned()));
        let is_read_due = reason.is_some();
        if is_read_due {
            state.reason = reason;
        }
        is_read_due
    }

    /// Records the process of a read. The read may still fail afterwards.
    pub(super) fn record_process(&self, process: &Process) {
        let mut state = self.lock();
        if let Some(reason) = state.process.as_ref().and_then(|earlier| process.restart_reason(earlier)) {
            state.reason = Some(reason);
        }
        // Later polls compare with the process of this read, so a reload between poll and read is reported once.
        state.process = Some(process.clone());
        state.has_missed_poll = false;
    }

    /// Records the servers whose health checks are configured and not enabled.
    pub(super) fn record_unchecked(&self, unchecked: BTreeSet<String>) {
        self.lock().unchecked = unchecked;
    }

    /// Returns and clears the description of the last restart.
    pub(super) fn take_reason(&self) -> Option<String> {
        self.lock().reason.take()
    }

    /// Returns true if the health checks of the server `name` must be enabled.
    pub(super) fn is_check_disabled(&self, name: &str) -> bool {
        self.lock().unchecked.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn process(pid: u64, uptime: u64, connections: u64) -> Process {
        let text =
            format!("Name: HAProxy\nPid: {pid}\nUptime: 0d 0h00m01s\nUptime_sec: {uptime}\nCumConns: {connections}\n");
        Process::read(&text).expect("a process")
    }

    #[tokio::test(start_paused = true)]
    async fn restart_is_detected_from_process_info() {
        let earlier = process(8, 100, 50);
        advance(Duration::from_secs(10)).await;
        assert_eq!(process(8, 110, 60).restart_reason(&earlier), None);
        assert_eq!(process(8, 109, 50).restart_reason(&earlier), None);
        for (pid, uptime, connections) in [(9, 110, 60), (8, 0, 60), (8, 107, 60), (8, 110, 49)] {
            let replaced = process(pid, uptime, connections).restart_reason(&earlier).expect("another process");
            assert!(replaced.contains(&format!("process {pid} instead of 8, up {uptime} s")), "{replaced}");
        }
        assert_eq!(Process::read("Pid: many\nUptime_sec: 1\n"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn restart_is_reported_once_with_reason() {
        let observer = ProcessObserver::default();
        let first = process(8, 1, 1);
        assert!(observer.poll(Some(first.clone())), "the first response");
        observer.record_process(&first);
        assert!(observer.take_reason().is_some() && observer.take_reason().is_none());
        assert!(!observer.poll(Some(first.clone())) && !observer.poll(None));
        assert!(observer.poll(Some(first.clone())), "HAProxy responds again");
        observer.record_process(&first);
        let second = process(9, 0, 1);
        assert!(observer.poll(Some(second.clone())));
        observer.record_process(&second);
        let reason = observer.take_reason().expect("a restart");
        assert!(reason.contains("process 9 instead of 8"), "{reason}");
        assert!(!observer.poll(Some(second.clone())));
        // A read can be faster than the poll.
        observer.record_process(&process(10, 0, 1));
        assert!(observer.take_reason().is_some_and(|reason| reason.contains("process 10 instead of 9")));
        // The old process of a reload must not be read.
        assert!(!observer.poll(Some(Process { is_stopping: true, ..process(10, 0, 2) })));
    }
}
