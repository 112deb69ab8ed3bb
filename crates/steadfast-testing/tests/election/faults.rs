//! Faults of processes in random histories, and their log.

use std::fmt::Write as _;
use std::future::Future;
use std::time::Duration;

use steadfast_apiserver::{ApiServer, RequestRule, Verb};
use steadfast_testing::TestError;
use steadfast_testing::proxy::{Direction, NetworkFaults};
use tokio::time::{Instant, sleep};

use crate::process::Process;

/// Maximum duration of a write on the server. The lease outlasts the renew deadline by a margin that allows for slow
/// writes. This duration is less than half of that margin.
pub(crate) const MAX_WRITE_DURATION: Duration = Duration::from_millis(2400);
/// Maximum time until normal operation after the last fault.
pub(crate) const MAX_RECOVERY_TIME: Duration = Duration::from_secs(60);

/// Runs `future` on this thread, in its own virtual time.
pub(crate) fn block_on_virtual_time<T>(future: impl Future<Output = Result<T, TestError>>) -> Result<T, TestError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(future)
}

/// Returns the value of the environment variable, or `default`.
pub(crate) fn env_number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// Logs the library and the controller if `STEADFAST_LOG` is set.
pub(crate) fn enable_logging(filter: &str) {
    if std::env::var("STEADFAST_LOG").is_ok() {
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).try_init();
    }
}

/// Injected faults with their processes and times.
pub(crate) struct Log {
    start: Instant,
    pub(crate) text: String,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), text: String::new() }
    }

    pub(crate) fn append(&mut self, text: &str) {
        let at = self.start.elapsed().as_secs_f64();
        let _ = writeln!(self.text, "{at:8.3} {text}");
    }
}

/// Freezes `process` for this duration.
pub(crate) fn freeze(process: &Process, duration: Duration) {
    process.freeze(true);
    let process = process.clone();
    tokio::spawn(async move {
        sleep(duration).await;
        process.freeze(false);
    });
}

/// Drops all traffic through `network` in one direction for this duration.
pub(crate) fn cut_off(network: &NetworkFaults, direction: Direction, duration: Duration) {
    network.black_hole(direction, true);
    let network = network.clone();
    tokio::spawn(async move {
        sleep(duration).await;
        network.black_hole(direction, false);
    });
}

/// Delays each write on the server by `write_delay`, for the duration `duration`.
pub(crate) fn slow_writes(server: &ApiServer, write_delay: Duration, duration: Duration) {
    let faults = server.faults().clone();
    faults.delay_matching(RequestRule::any().resource("configmaps").verb(Verb::Patch), write_delay);
    tokio::spawn(async move {
        sleep(duration).await;
        faults.clear_rules();
    });
}
