//! Locks, atomics, threads and the clock: those of the machine, or those of a model checker.
//!
//! All other modules of this crate take them from here. The model checker therefore runs the same code.

#[cfg(not(feature = "shuttle"))]
mod machine;
#[cfg(feature = "shuttle")]
mod model;

#[cfg(not(feature = "shuttle"))]
pub(crate) use machine::{AtomicUsize, Condvar, Instant, Mutex, MutexGuard, spawn_thread};
#[cfg(feature = "shuttle")]
pub(crate) use model::{AtomicUsize, Condvar, ModelInstant as Instant, Mutex, MutexGuard, spawn_thread};
#[cfg(feature = "shuttle")]
pub use model::{advance_clock, fail_thread_starts};
