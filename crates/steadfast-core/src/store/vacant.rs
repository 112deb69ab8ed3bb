//! The slots that nobody has.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::slots::Slot;

/// The slots that nobody has, to be given away: the lowest first, so that what is held stays close together.
#[derive(Clone, Default)]
pub(super) struct Vacant {
    gaps: BinaryHeap<Reverse<Slot>>,
    /// From here on all are vacant.
    end: Slot,
}

impl Vacant {
    /// The slot that is taken next.
    pub(super) fn first(&self) -> Slot {
        self.gaps.peek().map_or(self.end, |Reverse(slot)| *slot)
    }

    /// Takes the first one.
    pub(super) fn take(&mut self) -> Slot {
        if let Some(Reverse(slot)) = self.gaps.pop() {
            return slot;
        }
        let slot = self.end;
        self.end = slot.checked_add(1).expect("nobody keeps four thousand million objects");
        slot
    }

    /// Takes one back.
    pub(super) fn give_back(&mut self, slot: Slot) {
        self.gaps.push(Reverse(slot));
    }
}
