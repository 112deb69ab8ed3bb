//! Which of a member's own keys are given out: those of which caches have what others had written before they were gained.
//!
//! Who had a key before writes nothing more to it once it is another's. So a cache that has come to what the server has when it
//! is asked after the gain, has all of that one's writes.

use std::sync::Arc;

use steadfast::ObjectKey;

use super::membership::Part;

/// So many changes in a row are told apart. Beyond them nothing is given out until caches have caught up.
const MOST: usize = 64;

/// The parts that were a member's own, one after the other, and since when caches have caught up.
#[derive(Clone, Default)]
pub(super) struct Gains {
    /// Each with the number of the change with which it came, without a gap.
    parts: Vec<(u64, Arc<Part>)>,
    /// Whether caches have caught up since the first of them was there.
    caught_up: bool,
}

impl Gains {
    /// With the change of this number, this is its own, or nothing.
    pub(super) fn turn(&mut self, number: u64, part: Option<Arc<Part>>) {
        let Some(part) = part else {
            *self = Self::default();
            return;
        };
        if self.parts.last().is_some_and(|(_, last)| *last == part) {
            return;
        }
        if self.parts.len() == MOST {
            *self = Self::default();
        }
        self.parts.push((number, part));
    }

    /// Whether caches have to catch up before all that is its own is given out.
    pub(super) fn lag(&self) -> bool {
        self.parts.len() > usize::from(self.caught_up)
    }

    /// Caches have all that was written before the change after that of this number.
    pub(super) fn caught_up(&mut self, number: u64) {
        let Some(at) = self.parts.iter().rposition(|(since, _)| *since <= number) else { return };
        self.parts.drain(..at);
        self.caught_up = true;
    }

    /// Whether `key` has been its own ever since caches caught up.
    pub(super) fn own(&self, key: &ObjectKey) -> bool {
        self.caught_up && self.parts.iter().all(|(_, part)| part.owns(key))
    }
}
