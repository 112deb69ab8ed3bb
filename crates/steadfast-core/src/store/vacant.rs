//! Vacant slots.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::slots::Slot;

/// Vacant slots, the lowest first, so that entries stay close together.
#[derive(Clone, Default)]
pub(super) struct Vacant {
    gaps: BinaryHeap<Reverse<Slot>>,
    /// First slot beyond all used ones.
    end: Slot,
}

impl Vacant {
    /// Returns the slot that is taken next.
    pub(super) fn first(&self) -> Slot {
        self.gaps.peek().map_or(self.end, |Reverse(slot)| *slot)
    }

    /// Takes the lowest vacant slot.
    pub(super) fn take(&mut self) -> Slot {
        if let Some(Reverse(slot)) = self.gaps.pop() {
            return slot;
        }
        let slot = self.end;
        self.end = slot.checked_add(1).expect("a cache has fewer than 2^32 objects");
        slot
    }

    /// Returns a slot to the vacant ones.
    pub(super) fn give_back(&mut self, slot: Slot) {
        self.gaps.push(Reverse(slot));
    }
}
