//! The handlers of one informer: to come and to go costs the same however many there are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::ordinals::Ordinals;

/// Members by their places: small numbers, used again once they are free.
pub(crate) struct Roster<T> {
    members: BTreeMap<usize, T>,
    places: Ordinals,
    /// The places of those that have left and are still among the members.
    left: Arc<Mutex<Vec<usize>>>,
    /// How many members were looked at by whoever came or went.
    #[cfg(test)]
    steps: usize,
}

/// A member's place, which it gives up when it likes; it needs no lock on the roster for that.
#[derive(Debug)]
pub(crate) struct Seat {
    place: usize,
    given_up: AtomicBool,
    left: Arc<Mutex<Vec<usize>>>,
}

impl Seat {
    /// What tells its owner from the other members.
    #[cfg(any(feature = "metrics", test))]
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// Leaves the roster; whoever asks it next finds the member gone.
    pub(crate) fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::AcqRel) {
            self.left.lock().unwrap_or_else(PoisonError::into_inner).push(self.place);
        }
    }
}

impl<T> Roster<T> {
    /// Takes in the member that `make` makes of its seat.
    pub(crate) fn add(&mut self, member: impl FnOnce(Seat) -> T) {
        self.forget_left();
        let place = self.places.take();
        let seat = Seat { place, given_up: AtomicBool::new(false), left: self.left.clone() };
        self.members.insert(place, member(seat));
    }

    /// All that have not left, by their places.
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

// By hand: a derive would ask for members with a default.
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
    fn a_place_is_used_again_once_it_is_free() {
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

    /// It took the cube of their number to add them, and its square to have them go one by one.
    #[test]
    fn ten_thousand_handlers_come_and_go_in_as_many_steps() {
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
