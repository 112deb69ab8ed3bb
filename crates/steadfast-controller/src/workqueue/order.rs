//! Who is next among those that are ready: by priority, by turns among groups, and first come, first served.

use std::cmp::Reverse;
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
pub(super) const PATIENCE: u32 = 16;

/// Numbers in the order in which it is their turn.
///
/// Among groups of the same priority it is one of each group's turn: a group that is not waiting joins behind those of
/// which each has one waiting (start-time fair queueing, Goyal 1996, each key at the same cost).
#[derive(Default)]
pub(super) struct Order {
    ready: BTreeMap<Place, u32>,
    lanes: BTreeMap<Priority, Lane>,
    sequence: u64,
    passed: u32,
}

/// Where a number stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    priority: Reverse<Priority>,
    round: u64,
    sequence: u64,
}

impl Place {
    pub(super) fn priority(self) -> Priority {
        self.priority.0
    }

    const fn first_of(priority: Priority) -> Self {
        Self { priority: Reverse(priority), round: 0, sequence: 0 }
    }
}

/// All of one priority.
#[derive(Default)]
struct Lane {
    /// The round of the one whose turn it was last.
    round: u64,
    waiting: usize,
    /// Of the groups that wait: the round of the last one, and how many there are.
    groups: HashMap<u64, (u64, usize)>,
}

impl Order {
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Puts a number behind those of its group, or behind all where it is of none.
    pub(super) fn push(&mut self, number: u32, priority: Priority, group: Option<u64>) -> Place {
        self.sequence += 1;
        let lane = self.lanes.entry(priority).or_default();
        lane.waiting += 1;
        let round = group.map_or(0, |group| {
            let next = lane.round + 1;
            let (last, waiting) = lane.groups.entry(group).or_default();
            *last = if *waiting == 0 { next } else { next.max(*last + 1) };
            *waiting += 1;
            *last
        });
        let place = Place { priority: Reverse(priority), round, sequence: self.sequence };
        self.ready.insert(place, number);
        place
    }

    /// Takes out what stands at `place`, of that group.
    pub(super) fn remove(&mut self, place: Place, group: Option<u64>) {
        if self.ready.remove(&place).is_none() {
            return;
        }
        let Some(lane) = self.lanes.get_mut(&place.priority()) else { return };
        lane.waiting -= 1;
        if lane.waiting == 0 {
            self.lanes.remove(&place.priority());
            return;
        }
        if let Some(group) = group
            && let Some((_, waiting)) = lane.groups.get_mut(&group)
        {
            *waiting -= 1;
            if *waiting == 0 {
                lane.groups.remove(&group);
            }
        }
    }

    /// Whose turn it is, and where that stands; `group` says of which group a number is. Takes it out.
    pub(super) fn pop(&mut self, group: impl FnOnce(u32) -> Option<u64>) -> Option<u32> {
        let (&first, _) = self.ready.first_key_value()?;
        let place = match self.less_urgent(first.priority()) {
            None => {
                self.passed = 0;
                first
            }
            Some(other) if self.passed >= PATIENCE => {
                self.passed = 0;
                other
            }
            Some(_) => {
                self.passed += 1;
                first
            }
        };
        let number = self.ready.get(&place).copied()?;
        if let Some(lane) = self.lanes.get_mut(&place.priority()) {
            lane.round = place.round;
        }
        self.remove(place, group(number));
        Some(number)
    }

    /// Of the first of each lane below `priority` the one that has waited longest.
    fn less_urgent(&self, priority: Priority) -> Option<Place> {
        let below = self.lanes.range(..priority);
        let firsts = below.filter_map(|(lane, _)| self.ready.range(Place::first_of(*lane)..).next());
        firsts.map(|(place, _)| *place).min_by_key(|place| place.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out, each by its group if there are such.
    fn drain(order: &mut Order, group: impl Fn(u32) -> Option<u64>) -> Vec<u32> {
        std::iter::from_fn(|| order.pop(&group)).collect()
    }

    #[test]
    fn those_of_one_priority_come_as_they_came_and_those_of_a_higher_one_before() {
        let mut order = Order::default();
        for number in 0..5 {
            order.push(number, Priority::LOW, None);
        }
        for number in 5..10 {
            order.push(number, Priority::NORMAL, None);
        }
        assert_eq!(drain(&mut order, |_| None), [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]);
        assert!(order.lanes.is_empty() && order.is_empty());
    }

    #[test]
    fn what_is_less_urgent_has_its_turn_after_sixteen_others() {
        let mut order = Order::default();
        order.push(1000, Priority::LOW, None);
        order.push(2000, Priority(-50), None);
        let mut seen = Vec::new();
        for number in 0..40 {
            order.push(number, Priority::NORMAL, None);
            seen.extend(order.pop(|_| None));
            order.push(100 + number, Priority::NORMAL, None);
        }
        let at = |number| seen.iter().position(|seen| *seen == number);
        assert_eq!((at(1000), at(2000)), (Some(16), Some(33)), "{seen:?}");
    }

    #[test]
    fn a_group_with_much_to_do_has_one_turn_for_each_of_another() {
        let group = |number: u32| Some(u64::from(number >= 100));
        let mut order = Order::default();
        for number in 100..200 {
            order.push(number, Priority::NORMAL, group(number));
        }
        for number in 0..3 {
            order.push(number, Priority::NORMAL, group(number));
        }
        assert_eq!(drain(&mut order, group)[..8], [100, 0, 101, 1, 102, 2, 103, 104]);
        assert!(order.lanes.is_empty());
    }

    #[test]
    fn a_group_that_comes_again_and_again_keeps_none_away() {
        let group = |number: u32| Some(u64::from(number >= 100));
        let mut order = Order::default();
        for number in 100..120 {
            order.push(number, Priority::NORMAL, group(number));
        }
        let mut others = 0;
        for number in 0..20 {
            order.push(number, Priority::NORMAL, group(number));
            others += order.pop(group).map_or(0, |number| usize::from(number >= 100));
        }
        assert_eq!(others, 10);
    }
}
