//! Which part of a stage is counted.

use std::alloc::System;
use std::hint::black_box;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Counts what is done in [`Meter::count`], and nothing of what comes before and after.
#[derive(Default)]
pub(crate) struct Meter {
    is_on: bool,
    pub(crate) allocations: usize,
    pub(crate) bytes: usize,
}

impl Meter {
    /// One that counts.
    pub(crate) fn on() -> Self {
        Self { is_on: true, ..Self::default() }
    }

    /// One that lets a stage run without counting it: what is done once in a process is done then.
    pub(crate) fn off() -> Self {
        Self::default()
    }

    /// Does `work`, which counts; what it returns is dropped outside.
    pub(crate) fn count<T>(&mut self, work: impl FnOnce() -> T) -> T {
        if !self.is_on {
            return black_box(work());
        }
        let region = Region::new(ALLOCATOR);
        let done = steadfast_guard_counted(work);
        let change = region.change();
        self.allocations += change.allocations + change.reallocations;
        self.bytes += change.bytes_allocated;
        done
    }
}

/// Callgrind counts between this function's beginning and its end, and knows it by its name.
#[inline(never)]
fn steadfast_guard_counted<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}
