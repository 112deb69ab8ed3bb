//! How long a key waits that failed, and all that fail together.

use std::time::Duration;

use steadfast::environment::Instant;

/// How long a key waits after each of its failures in a row: it doubles, with jitter, up to a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// The longest wait after the first failure; after each further one it is twice as long. The least is half of it.
    pub first: Duration,
    /// The longest wait of all.
    pub ceiling: Duration,
}

impl Default for RetrySettings {
    /// 5 ms doubling to 1,000 s, as client-go's `DefaultTypedControllerRateLimiter` has it.
    fn default() -> Self {
        Self { first: Duration::from_millis(5), ceiling: Duration::from_secs(1000) }
    }
}

impl RetrySettings {
    /// The wait after so many failures in a row, at least one; `random` decides within the upper half.
    pub(super) fn wait(self, failures: u32, random: u64) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(31));
        let longest = doubled.min(self.ceiling);
        let half = longest / 2;
        half + half.mul_f64(random as f64 / u64::MAX as f64)
    }

    /// How long the failures of a key are remembered that nobody has heard of since; `flowcontrol.Backoff` of client-go
    /// has the same rule, its workqueue none.
    pub(super) fn memory(self) -> Duration {
        self.ceiling.saturating_mul(2)
    }
}

/// How many retries there may be, all keys together: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Retries a second, in the long run. What is not above zero is one a year.
    pub per_second: f64,
    /// So many at once, where there were none for a while; at least one.
    pub burst: u32,
}

impl Default for RateLimit {
    /// 10 a second, 100 at once, as client-go's `DefaultTypedControllerRateLimiter` has it.
    fn default() -> Self {
        Self { per_second: 10.0, burst: 100 }
    }
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A token bucket, by the time at which it will be full: each token taken puts that off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    each: Duration,
    depth: Duration,
    full: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(limit: RateLimit) -> Self {
        let each = Duration::try_from_secs_f64(1.0 / limit.per_second).map_or(YEAR, |each| each.min(YEAR));
        Self { each, depth: each.saturating_mul(limit.burst.max(1)), full: Instant::ZERO }
    }

    /// Takes a token, and returns how long it is until that is there.
    pub(super) fn take(&mut self, now: Instant) -> Duration {
        self.full = self.full.max(now) + self.each;
        (self.full - self.depth).since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_their_upper_half_up_to_the_ceiling() {
        let settings = RetrySettings::default();
        let mut doubled = 0.005;
        for failures in 1..70 {
            let longest = f64::min(doubled, 1000.0);
            doubled *= 2.0;
            for random in [0, u64::MAX / 3, u64::MAX] {
                let wait = settings.wait(failures, random).as_secs_f64();
                assert!((longest / 2.0 - 1e-6..=longest + 1e-6).contains(&wait), "{wait} s after {failures}");
            }
        }
    }

    #[test]
    fn a_bucket_gives_its_burst_at_once_and_then_one_by_one() {
        let at = |seconds: f64| Instant::from_zero(Duration::from_secs_f64(seconds));
        let mut bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 3 });
        let waits: Vec<_> = (0..5).map(|_| bucket.take(at(1.0)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200]);
        assert_eq!(bucket.take(at(1.2)).as_millis(), 100);
        let waits: Vec<_> = (0..4).map(|_| bucket.take(at(60.0)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100], "it is never more than full");
    }

    #[test]
    fn a_limit_that_makes_no_sense_is_one_a_year() {
        for per_second in [0.0, -1.0, f64::NAN, f64::MIN_POSITIVE] {
            for burst in [0, 1, 100] {
                let mut bucket = Bucket::new(RateLimit { per_second, burst });
                let waits: Vec<_> = (0..=burst.max(1)).map(|_| bucket.take(Instant::ZERO)).collect();
                let (last, first) = waits.split_last().expect("one at least");
                assert!(first.iter().all(Duration::is_zero) && *last == YEAR, "{per_second}: {waits:?}");
            }
        }
        let mut boundless = Bucket::new(RateLimit { per_second: f64::INFINITY, burst: 1 });
        assert!((0..1000).all(|_| boundless.take(Instant::ZERO).is_zero()));
    }
}
