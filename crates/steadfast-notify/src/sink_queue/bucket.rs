//! Token bucket for the rate limit of a sink.

use std::time::Duration;

/// Maximum time until the next token, in seconds. The minimum rate of 0.001 attempts per second needs 1000 s.
const MAX_REFILL_SECONDS: f64 = 1e6;

/// Token bucket for attempts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// Attempts per second, and capacity. `None` for no limit.
    rate: Option<(f64, u32)>,
    tokens: f64,
    updated_at: Duration,
}

impl Bucket {
    /// Creates a full bucket.
    pub(super) fn new(rate: Option<(f64, u32)>) -> Self {
        Self { rate, tokens: rate.map_or(0.0, |(_, capacity)| f64::from(capacity)), updated_at: Duration::ZERO }
    }

    /// Takes one token, if available.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let Some((per_second, capacity)) = self.rate else { return true };
        let refilled = now.saturating_sub(self.updated_at).as_secs_f64() * per_second;
        (self.tokens, self.updated_at) = ((self.tokens + refilled).min(f64::from(capacity)), now);
        // Tolerance for rounding errors, which must not delay an attempt.
        let is_available = self.tokens > 1.0 - 1e-9;
        if is_available {
            self.tokens -= 1.0;
        }
        is_available
    }

    /// Returns the time of the next token.
    pub(super) fn next_token_at(&self) -> Duration {
        let Some((per_second, _)) = self.rate else { return Duration::ZERO };
        let missing = (1.0 - self.tokens).max(0.0);
        let wait = Duration::try_from_secs_f64((missing / per_second).min(MAX_REFILL_SECONDS)).unwrap_or_default();
        // Rounded up: a caller that is too early would find no token.
        self.updated_at.saturating_add(wait).saturating_add(Duration::from_nanos(u64::from(missing > 0.0)))
    }
}
