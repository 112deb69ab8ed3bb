//! Stop conditions of the watch, from all values of `--until`. The program ends when the first condition is met.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::console;
use crate::failure::EXIT_TIME_LIMIT;
use crate::until::{ObjectCondition, Until};

/// Stop conditions of a watch.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends {
    /// Number of events.
    pub(super) events: Option<u64>,
    /// Time since the start of the program.
    pub(super) elapsed: Option<Duration>,
    /// Conditions of the watched objects.
    pub(super) conditions: Vec<ObjectCondition>,
    has_connected: Arc<AtomicBool>,
}

impl Ends {
    /// Collects the values of `--until`. Of several numbers or times, the smallest applies.
    pub(super) fn of(until: &[Until]) -> Self {
        let mut ends = Self::default();
        for end in until {
            match end {
                Until::Events(events) => ends.events = Some(ends.events.unwrap_or(u64::MAX).min(*events)),
                Until::Elapsed(limit) => ends.elapsed = Some(ends.elapsed.unwrap_or(Duration::MAX).min(*limit)),
                Until::Met(condition) => ends.conditions.push(condition.clone()),
            }
        }
        ends
    }

    /// Records that the server has responded.
    pub(super) fn connected(&self) {
        self.has_connected.store(true, Ordering::Relaxed);
    }

    /// Returns the exit code at the time limit. Without another end, the time limit is the expected end of a watch that
    /// reached its server.
    pub(super) fn at_time_limit(&self) -> ExitCode {
        let missing = if !self.has_connected.load(Ordering::Relaxed) {
            "the server responded"
        } else if self.events.is_some() || !self.conditions.is_empty() {
            "its other ends"
        } else {
            return ExitCode::SUCCESS;
        };
        console::report(format_args!("error: the time limit of --until was reached before {missing}"));
        ExitCode::from(EXIT_TIME_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(until: &[&str]) -> Ends {
        Ends::of(&until.iter().map(|text| text.parse().expect(text)).collect::<Vec<_>>())
    }

    #[test]
    fn smallest_number_and_time_apply() {
        let ends = ends(&["20", "3", "1h", "30s", "delete", "condition=Ready"]);
        assert_eq!((ends.events, ends.elapsed), (Some(3), Some(Duration::from_secs(30))));
        assert_eq!(ends.conditions.len(), 2);
    }

    #[test]
    fn time_limit_alone_is_success() {
        let (time_only, combined) = (ends(&["30s"]), ends(&["30s", "delete"]));
        assert_eq!(time_only.at_time_limit(), ExitCode::from(EXIT_TIME_LIMIT), "not connected");
        time_only.connected();
        combined.connected();
        assert_eq!(time_only.at_time_limit(), ExitCode::SUCCESS);
        assert_eq!(combined.at_time_limit(), ExitCode::from(EXIT_TIME_LIMIT));
    }
}
