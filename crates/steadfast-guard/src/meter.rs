//! Selection of the counted part of a stage.

use std::alloc::System;
use std::hint::black_box;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Counts the work in [`Meter::count`] only.
#[derive(Default)]
pub(crate) struct Meter {
    is_on: bool,
    pub(crate) allocations: usize,
    pub(crate) bytes: usize,
}

impl Meter {
    /// Creates a meter that counts.
    pub(crate) fn on() -> Self {
        Self { is_on: true, ..Self::default() }
    }

    /// Creates a meter that does not count, for a first run that performs the work done once per process.
    pub(crate) fn off() -> Self {
        Self::default()
    }

    /// Runs `work` and counts its costs. The caller drops the result, which is not counted.
    pub(crate) fn count<T>(&mut self, work: impl FnOnce() -> T) -> T {
        if !self.is_on {
            // `black_box` keeps the work, although its result is not used.
            return black_box(work());
        }
        let region = Region::new(ALLOCATOR);
        let result = steadfast_guard_counted(work);
        let change = region.change();
        // A reallocation may copy all bytes, and costs as much as an allocation.
        self.allocations += change.allocations + change.reallocations;
        self.bytes += change.bytes_allocated;
        result
    }
}

/// Function by which callgrind starts and stops counting. Callgrind finds it by its name.
#[inline(never)]
fn steadfast_guard_counted<T>(work: impl FnOnce() -> T) -> T {
    // Not inlined, so that callgrind sees its entry and its exit. The name must stay in sync with the pattern.
    black_box(work())
}
