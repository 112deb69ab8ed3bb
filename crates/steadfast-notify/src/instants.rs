//! Instants at which objects must be evaluated again.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use jiff::Timestamp;

/// Queue with at most one instant for each object.
#[derive(Debug)]
pub(crate) struct RecheckSchedule<K> {
    queue: BTreeSet<(Timestamp, K)>,
    by_object: HashMap<K, Timestamp>,
}

impl<K> Default for RecheckSchedule<K> {
    fn default() -> Self {
        Self { queue: BTreeSet::new(), by_object: HashMap::new() }
    }
}

impl<K: Clone + Ord + Hash> RecheckSchedule<K> {
    /// Replaces or removes the instant of the object `key`.
    pub(crate) fn set(&mut self, key: &K, at: Option<Timestamp>) {
        // Both indexes change together, so that no stale instant remains in the queue.
        if let Some(previous) = self.by_object.remove(key) {
            self.queue.remove(&(previous, key.clone()));
        }
        if let Some(at) = at {
            self.by_object.insert(key.clone(), at);
            self.queue.insert((at, key.clone()));
        }
    }

    /// Returns the earliest instant.
    pub(crate) fn next_instant(&self) -> Option<Timestamp> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Removes and returns the earliest object with an instant up to `now`.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<(Timestamp, K)> {
        if self.next_instant().is_none_or(|at| at > now) {
            return None;
        }
        let (at, key) = self.queue.pop_first()?;
        self.by_object.remove(&key);
        Some((at, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn due_objects_are_ordered_and_unique() {
        let mut instants = RecheckSchedule::default();
        instants.set(&"a", Some(at(3)));
        instants.set(&"b", Some(at(2)));
        instants.set(&"a", Some(at(1)));
        instants.set(&"c", Some(at(9)));
        instants.set(&"d", Some(at(1)));
        instants.set(&"d", None);
        assert_eq!(instants.next_instant(), Some(at(1)));
        assert_eq!(instants.take_due(at(5)), Some((at(1), "a")));
        assert_eq!(instants.take_due(at(5)), Some((at(2), "b")));
        assert_eq!(instants.take_due(at(5)), None);
        assert_eq!(instants.take_due(at(9)), Some((at(9), "c")));
        assert!(instants.queue.is_empty() && instants.by_object.is_empty());
    }
}
