//! Earlier states of looked-up resources in a standby. A new leader compares the present state with the state that the
//! earlier leader has settled.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::lookups::LookupSnapshot;

/// Minimum time between two states.
const MIN_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// Maximum number of states. Beyond the limit, every second state is dropped.
const MAX_STATES: usize = 128;

/// States of all looked-up resources of a rule, by age.
pub(super) struct SnapshotHistory<T = Arc<LookupSnapshot>>(VecDeque<(Timestamp, T)>);

impl<T> Default for SnapshotHistory<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> SnapshotHistory<T> {
    /// Returns the newest state.
    pub(super) fn last(&self) -> Option<&T> {
        self.0.back().map(|(_, state)| state)
    }

    /// Adds the state at the instant `at`. Drops the states before the newest state that is not after `settled`, because
    /// no comparison needs them.
    pub(super) fn push(&mut self, at: Timestamp, state: T, settled: Option<Timestamp>) {
        if self.0.back().is_some_and(|(last, _)| at.duration_since(*last) < MIN_INTERVAL) {
            return;
        }
        self.0.push_back((at, state));
        if let Some(settled) = settled {
            self.remove_before(settled);
        }
        if self.0.len() > MAX_STATES {
            // Every second state is dropped: older states become sparser, and the covered time grows.
            let mut number = 0;
            // The first state must stay: a comparison starts from this state if the leader has settled nothing newer.
            self.0.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
    }

    /// Takes the newest state that is not after `settled`, or the first state if all states are later. Drops all others.
    pub(super) fn take(&mut self, settled: Timestamp) -> Option<T> {
        self.remove_before(settled);
        std::mem::take(&mut self.0).into_iter().next().map(|(_, state)| state)
    }

    /// Drops all states before the last state that is not after `settled`.
    fn remove_before(&mut self, settled: Timestamp) {
        // The newest state at or before the settled instant must stay as the base of comparison.
        while self.0.get(1).is_some_and(|(at, _)| *at <= settled) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn state_before_the_settled_instant_is_taken() {
        let mut history = SnapshotHistory::default();
        for second in 0..10 {
            history.push(at(second), second, None);
            history.push(at(second), 100, None);
        }
        history.push(at(10), 10, Some(at(3)));
        assert_eq!(history.0.len(), 8);
        assert_eq!(history.take(at(6)), Some(6));
        assert_eq!(history.take(at(6)), None);
        history.push(at(20), 20, None);
        assert_eq!(history.take(at(6)), Some(20), "no older state is known");
    }

    #[test]
    fn number_of_states_is_bounded() {
        let mut history = SnapshotHistory::default();
        for second in 0..10_000 {
            history.push(at(second), second, None);
        }
        assert!(history.0.len() <= MAX_STATES);
        assert_eq!(history.take(at(0)), Some(0), "the first state stays");
    }
}
