//! Elapsed time without freezes of the process.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum time that counts between two records, in addition to the planned pause.
const MAX_COUNTED_DELAY: Duration = Duration::from_secs(1);

/// Time for which the tasks of this process could run, without freezes of the process.
///
/// A wait with a timeout gives other tasks time to act. After a freeze or a suspend, the clock reports the end of the
/// timeout, although no task could run. A caller of this type records at least once per planned pause instead.
///
/// ```
/// # use std::time::Duration;
/// use steadfast_targets::AwakeTime;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let mut waited = AwakeTime::start();
/// // The pause was planned to last a second, but the process was frozen for a minute.
/// tokio::time::advance(Duration::from_secs(60)).await;
/// waited.record(Duration::from_secs(1));
/// assert_eq!(waited.counted(), Duration::from_secs(2));
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AwakeTime {
    last_record: Instant,
    counted: Duration,
}

impl AwakeTime {
    /// Starts at zero.
    pub fn start() -> Self {
        Self { last_record: Instant::now(), counted: Duration::ZERO }
    }

    /// Counts the time since the last record, at most one second more than `planned_pause`.
    pub fn record(&mut self, planned_pause: Duration) {
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.last_record);
        self.counted = self.counted.saturating_add(elapsed.min(planned_pause.saturating_add(MAX_COUNTED_DELAY)));
        self.last_record = now;
    }

    /// Returns the counted time until the last record.
    pub fn counted(&self) -> Duration {
        self.counted
    }
}
