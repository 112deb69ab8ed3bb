//! Identifiers, jitter and timeouts of requests.

use std::time::Duration;

use super::failure::MAX_RETRY_AFTER;
use super::request::RequestId;
use super::settings::ReflectorSettings;
use crate::fault_injection::{FaultInjection, inject};
use crate::random::Random;
use crate::time::Instant;

/// Source of request identifiers and of random delays.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) random: Random,
    requests: u64,
    watch_timeout: Duration,
    paged_list_period: Duration,
    faults: FaultInjection,
}

impl Requester {
    /// Creates the source. `seed` determines all jitter.
    pub(super) fn new(settings: &ReflectorSettings, seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            requests: 0,
            watch_timeout: settings.watch_timeout,
            paged_list_period: settings.paged_list_period,
            faults: settings.rules.faults,
        }
    }

    /// Returns an identifier that no earlier request has.
    pub(super) fn next_id(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    /// Returns a duration between `least` and `most`.
    pub(super) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        self.random.between(least, most)
    }

    /// Returns the timeout of a watch: a random value between once and twice the setting, so that watches do not all
    /// end at the same time.
    pub(super) fn watch_seconds(&mut self) -> u32 {
        let seconds = self.between(self.watch_timeout, self.watch_timeout * 2).as_secs();
        u32::try_from(seconds.max(1)).unwrap_or(u32::MAX)
    }

    /// Returns the time until which a failed method is remembered at `now`. The jitter spreads the next attempts of all
    /// informers.
    pub(super) fn remembered_until(&mut self, now: Instant) -> Instant {
        now + self.between(self.paged_list_period, self.paged_list_period + self.paged_list_period / 10)
    }

    /// Computes a delay: the backoff, or the server's requested delay if it is longer (R11).
    pub(super) fn delay(&mut self, backoff: Duration, retry_after: Option<Duration>) -> Duration {
        let Some(retry_after) = retry_after else { return backoff };
        if inject!(self.faults, IgnoredRetryAfter) {
            return backoff;
        }
        // The delay of the server is a minimum. Our own backoff still applies.
        let least = retry_after.min(MAX_RETRY_AFTER).max(backoff);
        // Up to a tenth is added. Clients that received the same delay would otherwise retry at the same time.
        self.between(least, least + least / 10)
    }
}
