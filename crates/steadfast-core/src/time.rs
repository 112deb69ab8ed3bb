//! Instants of the caller's monotonic clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Instant of the caller's monotonic clock: the time since the zero of that clock.
///
/// The core never reads a clock; its caller passes the time. Jumps of the wall clock therefore have no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// Zero of the clock.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// Returns the instant `elapsed` after the zero of the clock.
    pub const fn from_zero(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Returns the time since the zero of the clock.
    pub const fn since_zero(self) -> Duration {
        self.0
    }

    /// Returns the time from `earlier` to this instant; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rest: Duration) -> Self {
        Self(self.0.saturating_add(rest))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, rest: Duration) -> Self {
        Self(self.0.saturating_sub(rest))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:.3}s", self.0.as_secs_f64())
    }
}
