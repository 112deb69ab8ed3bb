//! The lock, as the threads of the machine have it, or as those of a model checker have it that tries their interleavings.

#[cfg(not(feature = "shuttle"))]
pub(super) use std::sync::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::{Mutex, MutexGuard};

/// Where another thread may come in between, beside the locks. A machine's thread needs no permission for that.
pub(super) fn between() {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
}
