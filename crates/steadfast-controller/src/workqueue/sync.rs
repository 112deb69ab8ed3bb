//! Mutex of `parking_lot`, or of the model checker that tries interleavings.

#[cfg(not(feature = "shuttle"))]
pub(super) use parking_lot::{Mutex, MutexGuard};

#[cfg(feature = "shuttle")]
pub(super) use shuttle::sync::{Mutex, MutexGuard};

/// Locks the mutex, even if another thread panicked while it held the lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(feature = "shuttle")]
    return mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    #[cfg(not(feature = "shuttle"))]
    mutex.lock()
}

/// Yields to the model checker between two critical sections. A real thread can be preempted here anyway.
pub(super) fn interleaving_point() {
    #[cfg(feature = "shuttle")]
    shuttle::thread::yield_now();
}
