//! Registry of an informer's handlers, with constant-time insertion and removal.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::ordinals::Ordinals;

/// Members by place. Places are small numbers and are reused.
pub(crate) struct Roster<T> {
    members: BTreeMap<usize, T>,
    places: Ordinals,
    /// Places of members that have left but are still stored.
    left: Arc<Mutex<Vec<usize>>>,
    /// Number of members visited by insertions and removals, for a test.
    #[cfg(test)]
    steps: usize,
}

/// Place of a member. It can leave without locking the registry.
#[derive(Debug)]
pub(crate) struct Seat {
    place: usize,
    given_up: AtomicBool,
    left: Arc<Mutex<Vec<usize>>>,
}

impl Seat {
    /// Returns the member's number within the registry.
    #[cfg(any(feature = "metrics", test))]
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// Leaves the registry. The next access removes the member.
    pub(crate) fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::AcqRel) {
            self.left.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
        }
    }
}

impl<T> Roster<T> {
    /// Adds the member that the closure creates for its seat.
    pub(crate) fn add(&mut self, member: impl FnOnce(Seat) -> T) {
        self.forget_left();
        let place = self.places.take();
        let seat = Seat { place, given_up: AtomicBool::new(false), left: self.left.clone() };
        self.members.insert(place, member(seat));
    }

    /// Returns all members that have not left, by place.
    pub(crate) fn members(&mut self) -> impl Iterator<Item = &T> {
        self.forget_left();
        self.members.values()
    }

    fn forget_left(&mut self) {
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        for place in left {
            #[cfg(test)]
            {
                self.steps += 1;
            }
            self.members.remove(&place);
            self.places.give_back(place);
        }
    }
}

// Implemented manually: a derive would require `T: Default`.
impl<T> Default for Roster<T> {
    fn default() -> Self {
        Self {
            members: BTreeMap::new(),
            places: Ordinals::default(),
            left: Arc::default(),
            #[cfg(test)]
            steps: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Roster, Seat};

    fn come(roster: &mut Roster<Arc<Seat>>) -> Arc<Seat> {
        let mut own = None;
        roster.add(|seat| own.insert(Arc::new(seat)).clone());
        own.expect("a seat was given")
    }

    fn places(roster: &mut Roster<Arc<Seat>>) -> Vec<usize> {
        roster.members().map(|seat| seat.place()).collect()
    }

    #[test]
    fn free_place_is_reused() {
        let mut roster = Roster::default();
        let first = come(&mut roster);
        let _second = come(&mut roster);
        first.give_up();
        first.give_up();
        assert_eq!(places(&mut roster), [1]);
        assert_eq!(come(&mut roster).place(), 0);
        first.give_up();
        assert_eq!(places(&mut roster), [0, 1], "the place is another's now");
    }

    /// Adding the handlers took cubic time, and removing them one by one quadratic time.
    #[test]
    fn handler_registration_takes_constant_steps() {
        const MANY: usize = 10_000;
        let mut roster = Roster::default();
        let seats: Vec<_> = (0..MANY).map(|_| come(&mut roster)).collect();
        assert_eq!(roster.steps, 0, "nobody is looked at when another comes");
        for seat in seats {
            seat.give_up();
            come(&mut roster).give_up();
        }
        assert_eq!(roster.members().count(), 0);
        assert_eq!(roster.steps, 2 * MANY, "and only those that went are when they go");
    }
}
