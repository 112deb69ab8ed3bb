//! Heartbeat of the program's runtime: a task that stops only if all threads are blocked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use steadfast_notify::{Supervised, Supervisor};
use tokio::time::sleep;

/// Interval of the heartbeat.
const BEAT_INTERVAL: Duration = Duration::from_millis(500);

/// Silence after which the runtime counts as blocked.
const BLOCKED_AFTER: Duration = Duration::from_secs(20);

/// Time since the last run of a task of the program.
pub(super) struct Heartbeat {
    started: Instant,
    /// Milliseconds between `started` and the last beat. Lock-free: it is read when everything else hangs.
    last_beat: Arc<AtomicU64>,
    _task: Supervised,
}

impl Heartbeat {
    /// Starts the heartbeat on the current runtime.
    pub(super) fn start(supervisor: &Supervisor) -> Self {
        let (started, last_beat) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let last_beat_of_task = last_beat.clone();
        let task = supervisor.spawn("heartbeat", move || {
            let last_beat_of_task = last_beat_of_task.clone();
            async move {
                loop {
                    // Relaxed is enough: the value publishes no other data.
                    last_beat_of_task.store(millis(started.elapsed()), Ordering::Relaxed);
                    sleep(BEAT_INTERVAL).await;
                }
            }
        });
        Self { started, last_beat, _task: task }
    }

    /// Returns an error if the runtime is blocked.
    pub(super) fn check(&self) -> Result<(), String> {
        let last_beat = Duration::from_millis(self.last_beat.load(Ordering::Relaxed));
        check_silence(self.started.elapsed().saturating_sub(last_beat))
    }
}

fn check_silence(silence: Duration) -> Result<(), String> {
    if silence < BLOCKED_AFTER {
        return Ok(());
    }
    Err(format!("all threads have been blocked for {} s: no task of the program has run", silence.as_secs()))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn silence_beyond_limit_is_blocked_runtime() {
        assert_eq!(check_silence(Duration::from_secs(19)), Ok(()));
        let reason = check_silence(Duration::from_secs(21)).expect_err("the silence exceeds the limit");
        assert!(reason.contains("blocked for 21 s"), "{reason}");
    }

    #[test]
    fn blocked_thread_stops_the_beat() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a thread");
        let heartbeat = runtime.block_on(async { Heartbeat::start(&Supervisor::new(Arc::new(|_| {}))) });
        let beat = || heartbeat.last_beat.load(Ordering::Relaxed);
        let wait = |until: &dyn Fn() -> bool| {
            let start = Instant::now();
            while !until() {
                assert!(start.elapsed() < Duration::from_secs(30), "the condition was not met within 30 s");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        wait(&|| beat() > 0);
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (blocked, is_blocked) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let _ = blocked.send(());
            // This call blocks the only thread, like the evaluation of an expression that never ends.
            let _ = released.recv();
        });
        is_blocked.recv().expect("the task runs");
        let before = beat();
        wait(&|| heartbeat.started.elapsed() > Duration::from_millis(before) + 4 * BEAT_INTERVAL);
        assert_eq!(beat(), before, "no task has run");
        drop(release);
        wait(&|| beat() > before);
    }
}
