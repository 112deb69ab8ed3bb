//! The time axis: positions in percent of the width, and round ticks.

use std::time::Duration;

/// Maximum number of ticks after zero. More labels would overlap on a narrow screen.
const MAX_TICKS: u32 = 5;

/// Linear scale from the start of a run to its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    end: Duration,
}

impl Scale {
    pub(super) fn until(end: Duration) -> Self {
        // A run without a duration would have no positions.
        Self { end: end.max(Duration::from_millis(10)) }
    }

    pub(super) fn end(self) -> Duration {
        self.end
    }

    /// Returns the position of a time, from 0 to 100.
    pub(super) fn percent(self, at: Duration) -> f64 {
        (at.as_secs_f64() / self.end.as_secs_f64() * 100.0).min(100.0)
    }

    /// Returns the number of the column of a time, if the axis has `columns` columns of equal width. The first column
    /// has the number 0, and the end of the axis has the number `columns`.
    pub(super) fn column(self, at: Duration, columns: u32) -> u32 {
        (at.min(self.end).as_nanos() * u128::from(columns) / self.end.as_nanos()) as u32
    }

    /// Returns the times of the ticks, in round steps.
    pub(super) fn ticks(self) -> Vec<Duration> {
        let min_step = self.end / MAX_TICKS;
        let mut magnitude = Duration::from_millis(1);
        while magnitude * 10 <= min_step {
            magnitude *= 10;
        }
        let steps = [1, 2, 5, 10].map(|factor| magnitude * factor);
        let step = steps.into_iter().find(|step| *step >= min_step).unwrap_or(min_step);
        let mut ticks = Vec::new();
        let mut tick = Duration::ZERO;
        while tick <= self.end {
            ticks.push(tick);
            tick += step;
        }
        ticks
    }
}

/// Formats a time on the axis: `0`, `0.05 s`, `1.5 s`, `20 s`.
pub(super) fn format_tick(at: Duration) -> String {
    if at.is_zero() {
        return "0".to_owned();
    }
    let text = format!("{:.3}", at.as_secs_f64());
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Formats a time of an event: `12.345 s`.
pub(super) fn format_time(at: Duration) -> String {
    format!("{:.3} s", at.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_have_round_steps() {
        let ticks = |ms| {
            let ticks = Scale::until(Duration::from_millis(ms)).ticks();
            ticks.into_iter().map(format_tick).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(ticks(1000), "0, 0.2 s, 0.4 s, 0.6 s, 0.8 s, 1 s");
        assert_eq!(ticks(42_000), "0, 10 s, 20 s, 30 s, 40 s");
        assert_eq!(ticks(300_000), "0, 100 s, 200 s, 300 s");
        assert_eq!(ticks(0), "0, 0.002 s, 0.004 s, 0.006 s, 0.008 s, 0.01 s");
    }

    #[test]
    fn positions_stay_within_axis() {
        let scale = Scale::until(Duration::from_secs(4));
        let percent = |seconds| format!("{:.1}", scale.percent(Duration::from_secs(seconds)));
        assert_eq!([percent(0), percent(1), percent(4), percent(9)], ["0.0", "25.0", "100.0", "100.0"]);
        let column = |seconds| scale.column(Duration::from_secs(seconds), 400);
        assert_eq!([column(0), column(1), column(4), column(9)], [0, 100, 400, 400]);
    }
}
