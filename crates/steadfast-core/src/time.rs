//! Moments as the caller's monotonic clock tells them.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment on the caller's monotonic clock: the time since that clock's own zero.
///
/// The core never reads a clock; whoever drives it says what time it is. Wall-clock jumps can
/// therefore not reach it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The clock's zero.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The moment `elapsed` after the clock's zero.
    pub const fn from_zero(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// The time since the clock's zero.
    pub const fn since_zero(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this moment, zero if `earlier` is later.
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
