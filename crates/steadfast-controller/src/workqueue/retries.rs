//! Backoff per key, and rate limit for all keys.

use std::time::Duration;

use steadfast::environment::Instant;

/// Backoff of a key: doubles with each failure in a row up to a maximum, with jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// Maximum delay after the first failure. Doubles with each further failure. The minimum delay is half of the
    /// maximum. Defaults to 5 ms.
    pub initial_delay: Duration,
    /// Maximum delay after any failure. Defaults to 1,000 s.
    pub max_delay: Duration,
}

impl Default for RetrySettings {
    /// 5 ms doubling to 1,000 s, like client-go's `DefaultTypedControllerRateLimiter`.
    fn default() -> Self {
        Self { initial_delay: Duration::from_millis(5), max_delay: Duration::from_secs(1000) }
    }
}

impl RetrySettings {
    /// Returns the delay after this number of failures in a row, at least one. `random` chooses a delay in the upper
    /// half of the range.
    pub(super) fn delay(self, failures: u32, random: u64) -> Duration {
        // The shift is limited, because a larger shift would overflow. The ceiling is reached long before.
        let doubled = self.initial_delay.saturating_mul(1 << failures.saturating_sub(1).min(31));
        // Half of the delay is random: keys that failed together do not retry together.
        let longest = doubled.min(self.max_delay);
        let half = longest / 2;
        half + half.mul_f64(random as f64 / u64::MAX as f64)
    }

    /// Returns how long failures of an idle key are remembered. client-go's `flowcontrol.Backoff` has the same rule;
    /// the rate limiters of client-go's workqueue remember failures until `Forget`.
    pub(super) fn failure_memory(self) -> Duration {
        self.max_delay.saturating_mul(2)
    }
}

/// Rate limit of retries for all keys together: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Retries per second on average. Values of 0 or less mean one per year. Defaults to 10.
    pub per_second: f64,
    /// Maximum burst, at least 1. Defaults to 100.
    pub burst: u32,
}

impl Default for RateLimit {
    /// 10 per second with a burst of 100, like client-go's `DefaultTypedControllerRateLimiter`.
    fn default() -> Self {
        Self { per_second: 10.0, burst: 100 }
    }
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Token bucket, stored as the instant at which the bucket will be full. Each token postpones that instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    each: Duration,
    depth: Duration,
    full: Instant,
}

impl TokenBucket {
    /// Returns a full bucket.
    pub(super) fn new(limit: RateLimit) -> Self {
        // A rate of 0 or NaN gives an invalid duration. One token per year replaces a rate of zero.
        let each = Duration::try_from_secs_f64(1.0 / limit.per_second).map_or(YEAR, |each| each.min(YEAR));
        Self { each, depth: each.saturating_mul(limit.burst.max(1)), full: Instant::ZERO }
    }

    /// Takes a token and returns the wait until its availability.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        // The reservation may lie in the future. Each caller waits for its own token.
        self.full = self.full.max(now) + self.each;
        (self.full - self.depth).since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_ceiling() {
        let settings = RetrySettings::default();
        let mut doubled = 0.005;
        for failures in 1..70 {
            let longest = f64::min(doubled, 1000.0);
            doubled *= 2.0;
            for random in [0, u64::MAX / 3, u64::MAX] {
                let wait = settings.delay(failures, random).as_secs_f64();
                assert!((longest / 2.0 - 1e-6..=longest + 1e-6).contains(&wait), "{wait} s after {failures}");
            }
        }
    }

    #[test]
    fn bucket_grants_burst_then_refills() {
        let at = |seconds: f64| Instant::from_zero(Duration::from_secs_f64(seconds));
        let mut bucket = TokenBucket::new(RateLimit { per_second: 10.0, burst: 3 });
        let waits: Vec<_> = (0..5).map(|_| bucket.take(at(1.0)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        assert_eq!(bucket.take(at(1.2)).as_millis(), 100);
        let waits: Vec<_> = (0..4).map(|_| bucket.take(at(60.0)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100], "the bucket is never more than full");
    }

    #[test]
    fn invalid_limit_is_one_per_year() {
        for per_second in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
            for burst in [0, 1, 100] {
                let mut bucket = TokenBucket::new(RateLimit { per_second, burst });
                let waits: Vec<_> = (0..=burst.max(1)).map(|_| bucket.take(Instant::ZERO)).collect();
                let (last, first) = waits.split_last().expect("one at least");
                assert!(first.iter().all(Duration::is_zero) && *last == YEAR, "{per_second}: {waits:?}");
            }
        }
        let mut boundless = TokenBucket::new(RateLimit { per_second: f64::INFINITY, burst: 1 });
        assert!((0..1000).all(|_| boundless.take(Instant::ZERO).is_zero()));
    }
}
