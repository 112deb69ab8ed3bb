//! Who is next among those that are ready: by priority, by turns among groups, and first come, first served.

use std::collections::{BTreeMap, HashMap};

/// How urgent it is that a key is worked on; the larger, the sooner. Of several additions of a key the most urgent counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// What has changed just now.
    pub const NORMAL: Self = Self(0);

    /// What was there when the informer began, or is looked at again by a resync: after all that has changed, as
    /// controller-runtime's `LowPriority`.
    pub const LOW: Self = Self(-100);
}

/// After so many others in a row, it is the turn of one that is less urgent, so that what is urgent keeps nothing away for
/// ever.
const PATIENCE: u32 = 16;

/// Numbers in the order in which it is their turn.
///
/// Among the groups of a priority it is one of each group's turn: a group that begins to wait joins behind those of which
/// each has one waiting (start-time fair queueing, Goyal 1996, each key at the same cost).
#[derive(Default)]
pub(super) struct Order {
    lanes: BTreeMap<Priority, Lane>,
    len: usize,
    sequence: u64,
    passed: u32,
}

/// Where a number stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    priority: Priority,
    group: u64,
    sequence: u64,
}

impl Place {
    pub(super) fn priority(self) -> Priority {
        self.priority
    }
}

/// All of one priority.
#[derive(Default)]
struct Lane {
    /// The round of the one whose turn it was last.
    round: u64,
    /// The first of each group, by its round and by when it came.
    firsts: BTreeMap<(u64, u64), u64>,
    groups: HashMap<u64, Group>,
}

/// Those of a group, by when they came.
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

    /// Puts a number behind those of its group.
    pub(super) fn push(&mut self, number: u32, priority: Priority, group: u64) -> Place {
        self.sequence += 1;
        self.len += 1;
        let place = Place { priority, group, sequence: self.sequence };
        let Lane { round, firsts, groups } = self.lanes.entry(priority).or_default();
        let others = groups.entry(group).or_default();
        if others.waiting.is_empty() {
            others.round = *round + 1;
            firsts.insert((others.round, place.sequence), group);
        }
        others.waiting.insert(place.sequence, number);
        place
    }

    /// Takes out what stands at `place`.
    pub(super) fn remove(&mut self, place: Place) {
        let Some(lane) = self.lanes.get_mut(&place.priority) else { return };
        let Some(group) = lane.groups.get_mut(&place.group) else { return };
        if group.waiting.remove(&place.sequence).is_none() {
            return;
        }
        self.len -= 1;
        let was_first = lane.firsts.remove(&(group.round, place.sequence)).is_some();
        match group.waiting.first_key_value() {
            Some((&next, _)) if was_first => drop(lane.firsts.insert((group.round, next), place.group)),
            Some(_) => {}
            None => drop(lane.groups.remove(&place.group)),
        }
        if lane.groups.is_empty() {
            self.lanes.remove(&place.priority);
        }
    }

    /// Whose turn it is, and where that stands.
    pub(super) fn next(&self) -> Option<(Place, u32)> {
        let (&urgent, lane) = self.lanes.last_key_value()?;
        if self.passed < PATIENCE {
            return lane.first(urgent);
        }
        let less_urgent = self.lanes.range(..urgent).filter_map(|(priority, lane)| lane.first(*priority));
        less_urgent.min_by_key(|(place, _)| place.sequence).or_else(|| lane.first(urgent))
    }

    /// Takes out the one whose turn it [is](Self::next).
    pub(super) fn take(&mut self, place: Place) {
        let is_urgent = self.lanes.last_key_value().is_some_and(|(urgent, _)| *urgent == place.priority);
        // What is taken while nothing less urgent waits has passed nobody.
        let passes = is_urgent && self.lanes.len() > 1;
        self.passed = if passes { self.passed + 1 } else { 0 };
        if let Some(lane) = self.lanes.get_mut(&place.priority)
            && let Some(group) = lane.groups.get_mut(&place.group)
        {
            lane.round = group.round;
            if lane.firsts.remove(&(group.round, place.sequence)).is_some() {
                group.round += 1;
                lane.firsts.insert((group.round, place.sequence), place.group);
            }
        }
        self.remove(place);
    }
}

impl Lane {
    fn first(&self, priority: Priority) -> Option<(Place, u32)> {
        let (&(_, sequence), &group) = self.firsts.first_key_value()?;
        let number = self.groups.get(&group)?.waiting.get(&sequence)?;
        Some((Place { priority, group, sequence }, *number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pop(order: &mut Order) -> Option<u32> {
        let (place, number) = order.next()?;
        order.take(place);
        Some(number)
    }

    fn drain(order: &mut Order) -> Vec<u32> {
        std::iter::from_fn(|| pop(order)).collect()
    }

    #[test]
    fn those_of_one_priority_come_as_they_came_and_those_of_a_higher_one_before() {
        let mut order = Order::default();
        for number in 0..5 {
            order.push(number, Priority::LOW, 0);
        }
        for number in 5..10 {
            order.push(number, Priority::NORMAL, 0);
        }
        assert_eq!(drain(&mut order), [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]);
        assert!(order.lanes.is_empty() && order.is_empty());
    }

    #[test]
    fn what_is_less_urgent_has_its_turn_after_sixteen_others() {
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
    fn a_group_with_much_to_do_has_one_turn_for_each_of_another() {
        let mut order = Order::default();
        for number in 100..200 {
            order.push(number, Priority::NORMAL, 1);
        }
        for number in 0..3 {
            order.push(number, Priority::NORMAL, 2);
        }
        assert_eq!(drain(&mut order)[..8], [100, 0, 101, 1, 102, 2, 103, 104]);
        assert!(order.lanes.is_empty());
    }

    #[test]
    fn a_group_that_comes_again_and_again_keeps_none_away() {
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
    fn a_group_of_which_most_became_urgent_waits_no_longer_for_the_rest() {
        let mut order = Order::default();
        let places: Vec<_> = (0..1000).map(|number| order.push(number, Priority::LOW, 1)).collect();
        for place in &places[1..999] {
            order.remove(*place);
        }
        order.push(2000, Priority::LOW, 2);
        order.push(2001, Priority::LOW, 2);
        assert_eq!(drain(&mut order), [0, 2000, 999, 2001]);
    }
}
