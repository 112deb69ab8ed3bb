//! Arrival time of data that is read later.

use std::time::Duration;

use steadfast_core::Instant;

/// Interval between two polls of a body without data.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two polls without data that indicates a freeze of the process, or a program that did not poll.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(3);

/// Time after such an interval in which the connection may not have read its socket yet.
const SOCKET_READ_TIME: Duration = Duration::from_millis(100);

/// Estimates the arrival time of the data of a stream.
///
/// A stream is read only while the program polls it, and no process runs during a freeze. Data that is read afterwards
/// may be old.
#[derive(Debug)]
pub(super) struct ArrivalClock {
    /// Last time at which all data that had arrived was read.
    drained_at: Instant,
    /// Last poll without data.
    polled_at: Instant,
    /// Time from which a poll without data shows that all data was read.
    reliable_from: Instant,
}

impl ArrivalClock {
    /// Creates the clock of a response that was requested at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { drained_at: now, polled_at: now, reliable_from: now }
    }

    /// Records a poll without data.
    pub(super) fn record_empty(&mut self, now: Instant) {
        if self.is_delayed(now) {
            self.reliable_from = now + SOCKET_READ_TIME;
        }
        if now >= self.reliable_from {
            self.drained_at = now;
        }
        self.polled_at = now;
    }

    /// Returns the time of the next poll if no data arrives.
    pub(super) fn next_poll(&self, now: Instant) -> Instant {
        let is_reliable = now >= self.reliable_from && !self.is_delayed(now);
        now + if is_reliable { POLL_INTERVAL } else { SOCKET_READ_TIME }
    }

    /// Returns the time at which data that is read at `now` was current. Without a delay, this is `now`. Otherwise it is
    /// the last time before the arrival.
    pub(super) fn arrived_at(&self, now: Instant) -> Instant {
        if now.since(self.drained_at) > MAX_POLL_INTERVAL { self.drained_at } else { now }
    }

    fn is_delayed(&self, now: Instant) -> bool {
        now.since(self.polled_at) > MAX_POLL_INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::from_zero(Duration::from_millis(milliseconds))
    }

    #[test]
    fn data_after_delay_is_old_until_drained() {
        let mut clock = ArrivalClock::new(at(0));
        clock.record_empty(at(1000));
        assert_eq!(clock.arrived_at(at(1900)), at(1900));
        assert_eq!(clock.arrived_at(at(60_000)), at(1000), "the data may have arrived long ago");
        clock.record_empty(at(60_000));
        assert_eq!(clock.arrived_at(at(60_000)), at(1000), "the socket may contain older data");
        assert_eq!(clock.next_poll(at(60_000)), at(60_100));
        clock.record_empty(at(60_001));
        assert_eq!(clock.arrived_at(at(60_050)), at(1000));
        clock.record_empty(at(60_100));
        assert_eq!(clock.arrived_at(at(60_200)), at(60_200));
        assert_eq!(clock.next_poll(at(60_200)), at(61_200));
    }
}
