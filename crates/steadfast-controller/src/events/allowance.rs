//! Limit of new events per object, like client-go's `EventSourceObjectSpamFilter`.

use steadfast::environment::Instant;

use super::settings::EventSettings;

/// Token bucket, stored as the instant at which the bucket will be full. Each token postpones that instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    full_at: Instant,
}

impl Allowance {
    /// Takes a token. Returns false if the bucket is empty.
    pub(super) fn take(&mut self, now: Instant, settings: &EventSettings) -> bool {
        // Generic cell rate algorithm: one instant replaces a counter and its refill time.
        let full_at = self.full_at.max(now) + settings.refill;
        let is_available = full_at.since(now) <= settings.refill.saturating_mul(settings.burst);
        if is_available {
            self.full_at = full_at;
        }
        is_available
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn burst_then_one_at_a_time() {
        let settings = EventSettings { burst: 3, refill: Duration::from_secs(10), ..EventSettings::default() };
        let at = |seconds| Instant::from_zero(Duration::from_secs(seconds));
        let mut allowance = Allowance::default();
        let mut take = |seconds| allowance.take(at(seconds), &settings);
        assert_eq!([take(0), take(0), take(0), take(0)], [true, true, true, false]);
        assert_eq!([take(9), take(10), take(10)], [false, true, false]);
        assert_eq!([take(1000), take(1000), take(1000), take(1000)], [true, true, true, false]);
    }

    #[test]
    fn zero_refill_disables_limit() {
        let settings = EventSettings { burst: 1, refill: Duration::ZERO, ..EventSettings::default() };
        let mut allowance = Allowance::default();
        assert!((0..100).all(|_| allowance.take(Instant::ZERO, &settings)));
    }
}
