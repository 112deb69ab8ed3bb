//! Observer of an informer's freshness that records the times of its changes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast::{Cacheable, Freshness, Informer, ResourceVersion};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Interval between two checks. Freshness can expire without an event that would wake the observer.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Observation of an informer that differs from the previous one.
#[derive(Clone, Debug)]
struct FreshnessSample {
    at: Instant,
    /// The proven version, if the informer is fresh.
    fresh_version: Option<ResourceVersion>,
}

/// Observer of one informer. The observation ends when this value is dropped.
pub(super) struct FreshnessObserver {
    samples: Arc<Mutex<Vec<FreshnessSample>>>,
    task: JoinHandle<()>,
}

impl FreshnessObserver {
    /// Starts to observe `informer`.
    pub(super) fn start<K: Cacheable>(informer: &Informer<K>) -> Self {
        let samples = Arc::new(Mutex::new(vec![sample(informer)]));
        let (task_samples, informer) = (samples.clone(), informer.clone());
        let task = tokio::spawn(async move {
            let mut changed = informer.changed();
            // An error means that the informer was dropped. A timeout is the regular poll.
            while !matches!(timeout(POLL_INTERVAL, changed.changed()).await, Ok(Err(_))) {
                let current = sample(&informer);
                let mut samples = task_samples.lock();
                // Equal observations are skipped, so that the list has one entry for each change.
                if samples.last().is_none_or(|last| last.fresh_version != current.fresh_version) {
                    samples.push(current);
                }
            }
        });
        Self { samples, task }
    }

    /// Waits until `limit` after `fault` for the first doubt, and returns the time from `fault` to that doubt.
    pub(super) async fn wait_for_doubt(&self, fault: Instant, limit: Duration) -> Option<Duration> {
        loop {
            let delay = self.doubt_after(fault);
            if delay.is_some() || fault.elapsed() > limit {
                return delay;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the time from `fault` to the first doubt. Zero if the informer was in doubt already.
    fn doubt_after(&self, fault: Instant) -> Option<Duration> {
        let samples = self.samples.lock();
        // The last observation at or before the fault shows whether the doubt existed already.
        let before = samples.iter().rev().find(|sample| sample.at <= fault);
        if before.is_some_and(|sample| sample.fresh_version.is_none()) {
            return Some(Duration::ZERO);
        }
        samples
            .iter()
            .find(|sample| sample.at > fault && sample.fresh_version.is_none())
            .map(|sample| sample.at - fault)
    }

    /// Returns the longest doubt since `from`, including one that still lasts.
    pub(super) fn longest_doubt(&self, from: Instant) -> Duration {
        let samples = self.samples.lock();
        // Each observation lasts until the next one, and the last one until now.
        let ends = samples.iter().skip(1).map(|sample| sample.at).chain([Instant::now()]);
        let doubts = samples.iter().zip(ends).filter(|(sample, end)| sample.fresh_version.is_none() && *end > from);
        // Only the part since `from` counts: the fault may have started during an older doubt.
        doubts.map(|(sample, end)| end - sample.at.max(from)).max().unwrap_or_default()
    }

    /// Waits until the informer is fresh at `version` or later, and returns the time since `fault_end`.
    pub(super) async fn wait_for_recovery(
        &self,
        fault_end: Instant,
        version: &ResourceVersion,
        limit: Duration,
    ) -> Option<Duration> {
        loop {
            if let Some(at) = self.fresh_since(fault_end, version) {
                return Some(at - fault_end);
            }
            if fault_end.elapsed() > limit {
                return None;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the instant, at or after `fault_end`, from which the informer has been fresh at `version` or later.
    fn fresh_since(&self, fault_end: Instant, version: &ResourceVersion) -> Option<Instant> {
        let samples = self.samples.lock();
        let is_fresh_at_version =
            |sample: &FreshnessSample| sample.fresh_version.as_ref().is_some_and(|fresh| !fresh.is_older_than(version));
        // The informer must be fresh now, because an earlier fresh phase may have ended again.
        samples.last().filter(|last| is_fresh_at_version(last))?;
        // The result is the start of the fresh observations at the end of the list. A relapse restarts the recovery.
        let first_index = samples.iter().rposition(|sample| !is_fresh_at_version(sample)).map_or(0, |index| index + 1);
        Some(samples[first_index].at.max(fault_end))
    }
}

impl Drop for FreshnessObserver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn sample<K: Cacheable>(informer: &Informer<K>) -> FreshnessSample {
    let fresh_version = match informer.freshness() {
        Freshness::Fresh { version, .. } => version,
        _ => None,
    };
    FreshnessSample { at: Instant::now(), fresh_version }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_observer(started: Instant, samples: &[(u64, Option<&str>)]) -> FreshnessObserver {
        let sample = |&(ms, fresh): &(u64, Option<&str>)| FreshnessSample {
            at: started + Duration::from_millis(ms),
            fresh_version: fresh.map(ResourceVersion::from),
        };
        let samples = Arc::new(Mutex::new(samples.iter().map(sample).collect()));
        FreshnessObserver { samples, task: tokio::spawn(async {}) }
    }

    #[tokio::test(start_paused = true)]
    async fn doubt_and_recovery_are_measured_from_cause() {
        let started = Instant::now();
        let observer = new_observer(started, &[(0, Some("5")), (300, None), (900, Some("5")), (1000, Some("9"))]);
        let at = |ms| started + Duration::from_millis(ms);
        assert_eq!(observer.doubt_after(at(100)), Some(Duration::from_millis(200)));
        assert_eq!(observer.doubt_after(at(400)), Some(Duration::ZERO));
        assert_eq!(observer.doubt_after(at(950)), None);
        let (fault_end, limit) = (at(700), Duration::from_secs(5));
        assert_eq!(observer.wait_for_recovery(fault_end, &"5".into(), limit).await, Some(Duration::from_millis(200)));
        assert_eq!(observer.wait_for_recovery(fault_end, &"8".into(), limit).await, Some(Duration::from_millis(300)));
        assert_eq!(observer.wait_for_recovery(fault_end, &"10".into(), limit).await, None);
        assert_eq!(observer.longest_doubt(started), Duration::from_millis(600));
    }
}
