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
    fresh: Option<ResourceVersion>,
}

/// Observer of one informer. The observation ends when this value is dropped.
pub(super) struct FreshnessObserver {
    samples: Arc<Mutex<Vec<FreshnessSample>>>,
    task: JoinHandle<()>,
}

impl FreshnessObserver {
    /// Starts to observe `informer`.
    pub(super) fn of<K: Cacheable>(informer: &Informer<K>) -> Self {
        let samples = Arc::new(Mutex::new(vec![sample(informer)]));
        let (written, informer) = (samples.clone(), informer.clone());
        let task = tokio::spawn(async move {
            let mut changed = informer.changed();
            // An error means that the informer was dropped. A timeout is the regular poll.
            while !matches!(timeout(POLL_INTERVAL, changed.changed()).await, Ok(Err(_))) {
                let now = sample(&informer);
                let mut samples = written.lock();
                // Equal observations are skipped, so that the list has one entry for each change.
                if samples.last().is_none_or(|last| last.fresh != now.fresh) {
                    samples.push(now);
                }
            }
        });
        Self { samples, task }
    }

    /// Waits until `limit` after `fault` for the first doubt, and returns the time from `fault` to that doubt.
    pub(super) async fn doubt(&self, fault: Instant, limit: Duration) -> Option<Duration> {
        loop {
            let seen = self.doubt_after(fault);
            if seen.is_some() || fault.elapsed() > limit {
                return seen;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the time from `fault` to the first doubt. Zero if the informer was in doubt already.
    fn doubt_after(&self, fault: Instant) -> Option<Duration> {
        let samples = self.samples.lock();
        // The last observation at or before the fault shows whether the doubt existed already.
        let before = samples.iter().rev().find(|sample| sample.at <= fault);
        if before.is_some_and(|sample| sample.fresh.is_none()) {
            return Some(Duration::ZERO);
        }
        samples.iter().find(|sample| sample.at > fault && sample.fresh.is_none()).map(|sample| sample.at - fault)
    }

    /// Returns the longest doubt since `from`, including one that still lasts.
    pub(super) fn longest_doubt(&self, from: Instant) -> Duration {
        let samples = self.samples.lock();
        // Each observation lasts until the next one, and the last one until now.
        let ends = samples.iter().skip(1).map(|sample| sample.at).chain([Instant::now()]);
        let doubts = samples.iter().zip(ends).filter(|(sample, end)| sample.fresh.is_none() && *end > from);
        // Only the part since `from` counts: the fault may have started during an older doubt.
        doubts.map(|(sample, end)| end - sample.at.max(from)).max().unwrap_or_default()
    }

    /// Waits until the informer is fresh at `version` or later, and returns the time since `healed`.
    pub(super) async fn recovery(
        &self,
        healed: Instant,
        version: &ResourceVersion,
        limit: Duration,
    ) -> Option<Duration> {
        loop {
            if let Some(at) = self.fresh_since(healed, version) {
                return Some(at - healed);
            }
            if healed.elapsed() > limit {
                return None;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the instant, at or after `healed`, from which the informer has been fresh at `version` or later.
    fn fresh_since(&self, healed: Instant, version: &ResourceVersion) -> Option<Instant> {
        let samples = self.samples.lock();
        let there = |sample: &FreshnessSample| sample.fresh.as_ref().is_some_and(|fresh| !fresh.is_older_than(version));
        // The informer must be fresh now, because an earlier fresh phase may have ended again.
        samples.last().filter(|last| there(last))?;
        // The result is the start of the fresh observations at the end of the list. A relapse restarts the recovery.
        let first = samples.iter().rposition(|sample| !there(sample)).map_or(0, |index| index + 1);
        Some(samples[first].at.max(healed))
    }
}

impl Drop for FreshnessObserver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn sample<K: Cacheable>(informer: &Informer<K>) -> FreshnessSample {
    let fresh = match informer.freshness() {
        Freshness::Fresh { version, .. } => version,
        _ => None,
    };
    FreshnessSample { at: Instant::now(), fresh }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observer(started: Instant, samples: &[(u64, Option<&str>)]) -> FreshnessObserver {
        let sample = |&(ms, fresh): &(u64, Option<&str>)| FreshnessSample {
            at: started + Duration::from_millis(ms),
            fresh: fresh.map(ResourceVersion::from),
        };
        let samples = Arc::new(Mutex::new(samples.iter().map(sample).collect()));
        FreshnessObserver { samples, task: tokio::spawn(async {}) }
    }

    #[tokio::test(start_paused = true)]
    async fn doubt_and_recovery_are_measured_from_cause() {
        let started = Instant::now();
        let seen = observer(started, &[(0, Some("5")), (300, None), (900, Some("5")), (1000, Some("9"))]);
        let at = |ms| started + Duration::from_millis(ms);
        assert_eq!(seen.doubt_after(at(100)), Some(Duration::from_millis(200)));
        assert_eq!(seen.doubt_after(at(400)), Some(Duration::ZERO));
        assert_eq!(seen.doubt_after(at(950)), None);
        let (healed, limit) = (at(700), Duration::from_secs(5));
        assert_eq!(seen.recovery(healed, &"5".into(), limit).await, Some(Duration::from_millis(200)));
        assert_eq!(seen.recovery(healed, &"8".into(), limit).await, Some(Duration::from_millis(300)));
        assert_eq!(seen.recovery(healed, &"10".into(), limit).await, None);
        assert_eq!(seen.longest_doubt(started), Duration::from_millis(600));
    }
}
