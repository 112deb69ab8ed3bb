//! Backoff of single entries: a failed step is retried with growing delays, and delays no other step.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;

use crate::entry::Step;

/// Last attempts, by entry name.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    attempts: HashMap<String, LastAttempt>,
}

#[derive(Clone, Copy, Debug)]
struct LastAttempt {
    /// Hash of the attempted step. A different step of this name counts as a first attempt.
    step_hash: u64,
    failures: u32,
    retry_at: Instant,
}

impl Attempts {
    /// Returns the steps that are due, and the instant at which the next step becomes due.
    ///
    /// Each returned step counts as attempted. Earlier steps that are missing in `steps` have succeeded or become
    /// pointless, and are dropped. The delay after an attempt starts at `initial_delay` and doubles up to `max_delay`.
    pub(crate) fn take_due<V: Debug>(
        &mut self,
        steps: Vec<Step<V>>,
        now: Instant,
        (initial_delay, max_delay): (Duration, Duration),
    ) -> (Vec<Step<V>>, Option<Instant>) {
        let (mut attempts, mut due, mut next_retry_at) = (HashMap::with_capacity(steps.len()), Vec::new(), None);
        for step in steps {
            let hash = hash(&step);
            // Only an identical step is a retry. If the desired value has changed, the new step is due immediately.
            let previous = self.attempts.get(step.name()).filter(|previous| previous.step_hash == hash);
            match previous {
                Some(previous) if previous.retry_at > now => {
                    next_retry_at = Some(
                        next_retry_at
                            .map_or(previous.retry_at, |next_retry_at: Instant| next_retry_at.min(previous.retry_at)),
                    );
                    attempts.insert(step.name().to_owned(), *previous);
                }
                previous => {
                    let failures = previous.map_or(0, |previous| previous.failures + 1);
                    let delay = initial_delay.saturating_mul(1 << failures.min(16)).min(max_delay);
                    attempts.insert(
                        step.name().to_owned(),
                        LastAttempt { step_hash: hash, failures, retry_at: now + delay },
                    );
                    due.push(step);
                }
            }
        }
        // Steps that are no longer planned are dropped, so the map never outgrows the plan.
        self.attempts = attempts;
        (due, next_retry_at)
    }

    /// Returns true if this step was attempted before and is still needed.
    pub(crate) fn has_failed<V: Debug>(&self, step: &Step<V>) -> bool {
        self.attempts.get(step.name()).is_some_and(|attempt| attempt.step_hash == hash(step))
    }

    /// Makes all steps due.
    pub(crate) fn reset(&mut self) {
        self.attempts.clear();
    }
}

fn hash<V: Debug>(step: &Step<V>) -> u64 {
    // The Debug text of a value contains everything that a step would write. `V` need not implement `Hash`.
    let mut hasher = DefaultHasher::new();
    format!("{step:?}").hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

    fn add(name: &str, value: u8) -> Step<u8> {
        Step::Add { name: name.into(), value }
    }

    fn names(due: &(Vec<Step<u8>>, Option<Instant>)) -> Vec<&str> {
        due.0.iter().map(Step::name).collect()
    }

    #[test]
    fn repeated_step_delay_doubles() {
        let (mut attempts, mut now) = (Attempts::default(), Instant::now());
        let mut delays = Vec::new();
        for _ in 0..12 {
            assert_eq!(names(&attempts.take_due(vec![add("a", 1)], now, DELAYS)), ["a"]);
            let (due, next) = attempts.take_due(vec![add("a", 1)], now, DELAYS);
            assert!(due.is_empty());
            let next = next.expect("the step is withheld");
            delays.push((next - now).as_millis());
            now = next;
        }
        assert_eq!(delays[..4], [100, 200, 400, 800]);
        assert_eq!(delays[11], 60_000);
    }

    #[test]
    fn new_or_changed_step_is_immediate() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        attempts.take_due(vec![add("a", 1)], now, DELAYS);
        let due = attempts.take_due(vec![add("a", 1), add("b", 1)], now, DELAYS);
        assert_eq!(names(&due), ["b"]);
        assert_eq!(names(&attempts.take_due(vec![add("a", 2)], now, DELAYS)), ["a"]);
        // The step was not planned in the meantime, so it counts as a first attempt again.
        attempts.take_due(Vec::<Step<u8>>::new(), now, DELAYS);
        assert_eq!(names(&attempts.take_due(vec![add("a", 2)], now, DELAYS)), ["a"]);
    }
}
