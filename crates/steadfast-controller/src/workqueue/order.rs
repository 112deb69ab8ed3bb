//! Order of ready keys: by priority, by turns among groups, then first in, first out.

use std::collections::{BTreeMap, HashMap};

/// Priority of a key. Higher values run first. Of several additions of a key, the highest priority applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// Priority of changed objects. Value: 0.
    pub const NORMAL: Self = Self(0);

    /// Priority of initial objects and of resyncs: after all changes, like controller-runtime's `LowPriority`. Value:
    /// -100.
    pub const LOW: Self = Self(-100);
}

/// Number of urgent keys in a row before a less urgent key runs. Prevents starvation.
const MAX_CONSECUTIVE_URGENT: u32 = 16;

/// Ready keys by their numbers, in the order of processing.
///
/// Groups of one priority take turns. A group that becomes non-empty starts in the round after the current one
/// (start-time fair queueing, Goyal 1996, with equal cost per key).
#[derive(Default)]
pub(super) struct Order {
    levels: BTreeMap<Priority, PriorityLevel>,
    len: usize,
    sequence: u64,
    consecutive_urgent: u32,
}

/// Position of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    priority: Priority,
    group: u64,
    sequence: u64,
}

impl Position {
    pub(super) fn priority(self) -> Priority {
        self.priority
    }
}

/// All numbers of one priority.
#[derive(Default)]
struct PriorityLevel {
    /// Round of the last taken number.
    round: u64,
    /// First number of each group, by round and sequence.
    first_numbers: BTreeMap<(u64, u64), u64>,
    groups: HashMap<u64, Group>,
}

/// Numbers of one group, by sequence.
#[derive(Default)]
struct Group {
    round: u64,
    waiting: BTreeMap<u64, u32>,
}

impl Order {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a number to its group.
    pub(super) fn push(&mut self, number: u32, priority: Priority, group: u64) -> Position {
        self.sequence += 1;
        self.len += 1;
        let position = Position { priority, group, sequence: self.sequence };
        let PriorityLevel { round, first_numbers, groups } = self.levels.entry(priority).or_default();
        let queue = groups.entry(group).or_default();
        // A group that was empty starts after the current round. An idle group does not accumulate turns.
        if queue.waiting.is_empty() {
            queue.round = *round + 1;
            first_numbers.insert((queue.round, position.sequence), group);
        }
        queue.waiting.insert(position.sequence, number);
        position
    }

    /// Removes the number at `position`.
    pub(super) fn remove(&mut self, position: Position) {
        let Some(level) = self.levels.get_mut(&position.priority) else { return };
        let Some(group) = level.groups.get_mut(&position.group) else { return };
        if group.waiting.remove(&position.sequence).is_none() {
            return;
        }
        self.len -= 1;
        // Only the first number of a group is in `first_numbers`. Its successor inherits the round.
        let was_first = level.first_numbers.remove(&(group.round, position.sequence)).is_some();
        match group.waiting.first_key_value() {
            Some((&next, _)) if was_first => drop(level.first_numbers.insert((group.round, next), position.group)),
            Some(_) => {}
            None => drop(level.groups.remove(&position.group)),
        }
        if level.groups.is_empty() {
            self.levels.remove(&position.priority);
        }
    }

    /// Returns the next number and its position.
    pub(super) fn next(&self) -> Option<(Position, u32)> {
        let (&urgent, level) = self.levels.last_key_value()?;
        if self.consecutive_urgent < MAX_CONSECUTIVE_URGENT {
            return level.first(urgent);
        }
        // After 16 urgent keys in a row, the oldest other key runs, so that low priorities are not starved.
        let less_urgent = self.levels.range(..urgent).filter_map(|(priority, level)| level.first(*priority));
        less_urgent.min_by_key(|(position, _)| position.sequence).or_else(|| level.first(urgent))
    }

    /// Removes the number that [`next`](Self::next) returned.
    pub(super) fn take(&mut self, position: Position) {
        let is_urgent = self.levels.last_key_value().is_some_and(|(urgent, _)| *urgent == position.priority);
        // If no less urgent number waits, no number was passed over.
        let passes_over = is_urgent && self.levels.len() > 1;
        self.consecutive_urgent = if passes_over { self.consecutive_urgent + 1 } else { 0 };
        if let Some(level) = self.levels.get_mut(&position.priority)
            && let Some(group) = level.groups.get_mut(&position.group)
        {
            level.round = group.round;
            if level.first_numbers.remove(&(group.round, position.sequence)).is_some() {
                // One turn per group and round: the group queues behind all others of its level.
                group.round += 1;
                level.first_numbers.insert((group.round, position.sequence), position.group);
            }
        }
        self.remove(position);
    }
}

impl PriorityLevel {
    fn first(&self, priority: Priority) -> Option<(Position, u32)> {
        let (&(_, sequence), &group) = self.first_numbers.first_key_value()?;
        let number = self.groups.get(&group)?.waiting.get(&sequence)?;
        Some((Position { priority, group, sequence }, *number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pop(order: &mut Order) -> Option<u32> {
        let (position, number) = order.next()?;
        order.take(position);
        Some(number)
    }

    fn drain(order: &mut Order) -> Vec<u32> {
        std::iter::from_fn(|| pop(order)).collect()
    }

    #[test]
    fn priorities_precede_insertion_order() {
        let mut order = Order::default();
        for number in 0..5 {
            order.push(number, Priority::LOW, 0);
        }
        for number in 5..10 {
            order.push(number, Priority::NORMAL, 0);
        }
        assert_eq!(drain(&mut order), [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]);
        assert!(order.levels.is_empty() && order.is_empty());
    }

    #[test]
    fn less_urgent_key_follows_sixteen_others() {
        let mut order = Order::default();
        order.push(1000, Priority::LOW, 0);
        order.push(2000, Priority(-50), 0);
        let mut seen = Vec::new();
        for number in 0..40 {
            order.push(number, Priority::NORMAL, 0);
            seen.extend(pop(&mut order));
            order.push(100 + number, Priority::NORMAL, 0);
        }
        let at = |number| seen.iter().position(|seen| *seen == number);
        assert_eq!((at(1000), at(2000)), (Some(16), Some(33)), "{seen:?}");
    }

    #[test]
    fn groups_take_turns() {
        let mut order = Order::default();
        for number in 100..200 {
            order.push(number, Priority::NORMAL, 1);
        }
        for number in 0..3 {
            order.push(number, Priority::NORMAL, 2);
        }
        assert_eq!(drain(&mut order)[..8], [100, 0, 101, 1, 102, 2, 103, 104]);
        assert!(order.levels.is_empty());
    }

    #[test]
    fn recurring_group_starves_no_other() {
        let mut order = Order::default();
        for number in 100..120 {
            order.push(number, Priority::NORMAL, 1);
        }
        let mut others = 0;
        for number in 0..20 {
            order.push(number, Priority::NORMAL, 2);
            others += pop(&mut order).map_or(0, |number| usize::from(number >= 100));
        }
        assert_eq!(others, 10);
    }

    #[test]
    fn group_keeps_its_turn_after_removals() {
        let mut order = Order::default();
        let places: Vec<_> = (0..1000).map(|number| order.push(number, Priority::LOW, 1)).collect();
        for position in &places[1..999] {
            order.remove(*position);
        }
        order.push(2000, Priority::LOW, 2);
        order.push(2001, Priority::LOW, 2);
        assert_eq!(drain(&mut order), [0, 2000, 999, 2001]);
    }
}
