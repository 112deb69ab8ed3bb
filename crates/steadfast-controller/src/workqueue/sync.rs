//! Mutex of the standard library, or of the model checker that tries interleavings.

#[cfg(not(feature = "shuttle"))]
pub(super) use std::sync::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::{Mutex, MutexGuard};

/// Yields to the model checker between two critical sections. A real thread can be preempted here anyway.
pub(super) fn interleaving_point() {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
}
